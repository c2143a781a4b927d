//! The caller's terminal: saved before a sandbox starts, restored after it has ended. No other file
//! calls `tcsetpgrp`.
//!
//! The process group that holds the terminal's foreground gets its input and its signals:
//!
//! - Containers: sandpen's group keeps the foreground. The engine's client has a pseudo-terminal that
//!   sandpen relays (on macOS the terminal itself, with the client in sandpen's group), and copies
//!   bytes to a second terminal inside, whose foreground group the helper sets.
//! - Native: the guest has a pseudo-terminal, see `gate::terminal`.
//! - Seatbelt, with stdin and stdout on the terminal: the guest inherits the terminal itself. Its own
//!   process group takes the foreground if sandpen's group has it, and sandpen takes it back at the
//!   end.
//! - Seatbelt, in a pipeline (`sandpen run -- git log | less`): the other members need the terminal
//!   too, so sandpen's group keeps the foreground and sandpen restores no settings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, getpgrp};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal as it was when this value was made. Dropping it takes the foreground
/// back, if it was lent, and restores the settings.
#[derive(Debug)]
pub struct Terminal {
    tty: OwnedFd,
    settings: Termios,
    /// Status flags belong to the open file, which the streams share with the shell.
    stream_flags: [Option<OFlags>; 3],
    /// Whether sandpen's group had the foreground, with stdin and stdout on a terminal. From the
    /// background or in a pipeline, `settings` may be those of another program.
    had_foreground: bool,
    is_lent: bool,
    guest_group: Option<Pid>,
}

impl Terminal {
    /// Saves the state of the controlling terminal; `None` if there is none.
    pub fn save() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = rustix::fs::open(c"/dev/tty", flags, Mode::empty()).ok()?;
        let settings = tcgetattr(&tty).ok()?;
        let stream_flags = streams().map(|stream| fcntl_getfl(stream).ok());
        let had_foreground = is_interactive() && tcgetpgrp(&tty) == Ok(getpgrp());
        Some(Self { tty, settings, stream_flags, had_foreground, is_lent: false, guest_group: None })
    }

    /// Lets the guest's process group take the foreground, if sandpen's has it; returns whether it
    /// may.
    pub fn lend_foreground(&mut self) -> bool {
        self.is_lent = self.had_foreground;
        self.is_lent
    }

    /// Names the guest's process group, which may also take the foreground later, by itself.
    pub fn set_guest_group(&mut self, group: Pid) {
        self.guest_group = Some(group);
    }

    fn is_in_foreground(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(getpgrp())
    }

    fn restore_stream_flags(&self) {
        for (stream, flags) in streams().into_iter().zip(self.stream_flags) {
            if let Some(flags) = flags {
                let _ = fcntl_setfl(stream, flags);
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let guest_has_it = self.guest_group.is_some() && tcgetpgrp(&self.tty).ok() == self.guest_group;
        if self.is_lent || guest_has_it {
            set_foreground(&self.tty, getpgrp());
        }
        // The kernel stops a process that changes the settings from the background.
        if self.had_foreground && self.is_in_foreground() {
            // What was typed and not read was meant for the guest.
            let _ = tcsetattr(&self.tty, OptionalActions::Flush, &self.settings);
        }
        self.restore_stream_flags();
    }
}

/// Returns whether sandpen has the terminal for itself, rather than as a member of a pipeline.
pub fn is_interactive() -> bool {
    isatty(stdin()) && isatty(stdout())
}

/// Makes `group` the foreground process group of a terminal. From the background the kernel would
/// stop the caller with SIGTTOU, so the signal is blocked meanwhile.
///
/// Makes system calls only: it may be called between `clone` and `exec`.
pub fn set_foreground(tty: impl AsFd, group: Pid) {
    // SAFETY: both sets are plain data that the calls initialise; they only change this thread's
    // mask, and restore it.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        let _ = tcsetpgrp(tty, group);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

fn streams() -> [BorrowedFd<'static>; 3] {
    [stdin(), stdout(), stderr()]
}
