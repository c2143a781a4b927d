//! Gives an engine's client a pseudo-terminal in place of the caller's streams. In the foreground the
//! launcher relays it to the caller's terminal, as it does for a native guest: it sees what the guest
//! prints, and takes the terminal's answers to queries before they reach the shell.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::Pid;

use super::error::SessionError;
use crate::error::Result;
use crate::gate::terminal::Pty;
#[cfg(target_os = "linux")]
use crate::gate::terminal::{GuestTerminal, Relay};
#[cfg(target_os = "linux")]
use crate::process::signals::SignalQueue;
use crate::process::signals::SignalTarget;

/// What a client does when its terminal hangs up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangUp {
    /// It ends.
    Ends,
    /// It goes on: only its launcher decides. A launcher that is killed hangs up, and the client must
    /// then end only after the engine has answered it: otherwise a container could appear when its
    /// record is gone.
    Ignored,
}

/// A terminal for a client that has not started yet, to be relayed to the caller's.
#[derive(Debug)]
pub struct ClientTerminal {
    #[cfg(target_os = "linux")]
    guest: GuestTerminal,
}

impl ClientTerminal {
    /// Opens one if the client is to have a terminal and sandpen has one that it can relay.
    #[cfg(target_os = "linux")]
    pub fn open(is_wanted: bool) -> Result<Option<Self>> {
        if !is_wanted {
            return Ok(None);
        }
        let guest = GuestTerminal::open().map_err(SessionError::Terminal)?;
        Ok(guest.filter(GuestTerminal::starts_in_foreground).map(|guest| ClientTerminal { guest }))
    }

    /// Elsewhere the client has the caller's terminal.
    #[cfg(not(target_os = "linux"))]
    pub fn open(_: bool) -> Result<Option<Self>> {
        Ok(None)
    }

    /// Makes it the terminal of a client.
    #[cfg(target_os = "linux")]
    pub fn give_to(&self, command: &mut Command, hang_up: HangUp) -> Result<()> {
        // Another stderr stays the caller's.
        give(command, self.guest.slave(), rustix::termios::isatty(rustix::stdio::stderr()), hang_up)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn give_to(&self, _: &mut Command, _: HangUp) -> Result<()> {
        Ok(())
    }

    /// Starts the relay, which ends with the forwarder of `signals`.
    #[cfg(target_os = "linux")]
    pub fn relay(self, signals: &mut SignalQueue) -> Result<()> {
        signals.catch_stop().map_err(SessionError::Signals)?;
        let relay: Relay = self.guest.relay().map_err(SessionError::Terminal)?;
        signals.set_hook(Box::new(move |signal| match signal {
            libc::SIGWINCH => relay.resize(),
            libc::SIGTSTP => relay.suspend(),
            _ => {}
        }));
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    pub fn relay(self, _: &mut crate::process::signals::SignalQueue) -> Result<()> {
        Ok(())
    }
}

/// Returns where signals for a client go. With a terminal of its own it leads a process group, which
/// the caller's terminal does not signal.
pub fn signal_target(child: &Child, has_own_terminal: bool) -> SignalTarget {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).filter(|_| has_own_terminal);
    group.map_or(SignalTarget::Process(child.id()), SignalTarget::Group)
}

/// Gives a client the terminal of a detached sandbox.
pub fn use_detached(command: &mut Command, pty: &Pty) -> Result<()> {
    give(command, pty.slave.as_fd(), true, HangUp::Ignored)
}

fn give(command: &mut Command, slave: BorrowedFd<'_>, with_stderr: bool, hang_up: HangUp) -> Result<()> {
    let slave = || slave.try_clone_to_owned().map_err(SessionError::Terminal);
    command.stdin(slave()?).stdout(slave()?);
    if with_stderr {
        command.stderr(slave()?);
    }
    // SAFETY: these are plain system calls, which is all that may happen between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let action = if hang_up == HangUp::Ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            libc::signal(libc::SIGHUP, action);
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
    Ok(())
}
