//! Pid 1 of the sandbox (and, for `exec`, the parent of an entered command): starts the guest,
//! forwards signals, reaps orphans, reports to the launcher, and ends all other processes last.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::guest::{self, Command};
use super::link::{Link, Message};
use super::{sys, walls};
use crate::process::descendants;
use crate::process::signals::FORWARDED_BY_INIT;
use crate::process::status_file::CommandStatus;
use crate::process::{KILLED, Outcome, release_pages};

/// Tells an entered process that its launcher has ended.
pub(crate) const LAUNCHER_ENDED: i32 = libc::SIGPWR;

/// The process that starts the guest and stays with it.
pub struct Init {
    link: Link,
    /// The launcher's signal mask, which the guest inherits; here all signals are blocked.
    mask: libc::sigset_t,
    role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Pid 1 of the sandbox, which ends with it.
    First,
    /// It has entered the sandbox, and ends with all that its command started.
    Entered,
    /// It has entered the sandbox, and leaves its command to pid 1.
    Leaving,
}

impl Init {
    pub(crate) fn first(link: Link, mask: libc::sigset_t) -> Self {
        Self { link, mask, role: Role::First }
    }

    pub(crate) fn entered(link: Link, mask: libc::sigset_t, leaves_command: bool) -> Self {
        if leaves_command {
            return Self { link, mask, role: Role::Leaving };
        }
        descendants::adopt();
        Self { link, mask, role: Role::Entered }
    }

    /// Runs `init` and exits with its result.
    pub(crate) fn run(self, init: impl FnOnce(&Self) -> i32) -> ! {
        let code = init(&self);
        match self.role {
            // The kernel kills what is left when this process exits, and the launcher waits for that.
            Role::First if !kill_all() => walls::exit(code),
            Role::First => {}
            Role::Entered => descendants::end(),
            Role::Leaving => {}
        }
        // Reported before the exit: taking a mount namespace down costs the last process in it some
        // 100 µs, for which the launcher need not wait.
        let _ = self.link.send(Message::Exited(code), None);
        self.link.await_message();
        walls::exit(code)
    }

    /// Starts the guest, waits for its end, and returns the exit code that a shell would report. If
    /// the guest is left to pid 1, returns 0 as soon as it runs.
    ///
    /// `then` is called as soon as the guest runs.
    pub fn run_guest(&self, command: &Command, then: impl FnOnce()) -> i32 {
        match guest::start(command, &self.mask, self.role == Role::Entered) {
            Ok(_) if self.role == Role::Leaving => 0,
            Ok(guest) => {
                if command.reports_start {
                    let _ = self.link.send(Message::Started, None);
                }
                then();
                self.supervise(guest)
            }
            Err(errno) => {
                let errno = errno.raw_os_error();
                let _ = self.link.send(Message::NotStarted(errno), None);
                CommandStatus::from_exec_error(errno).exit_code().into()
            }
        }
    }

    /// Waits for the end of `guest`, a child of this process.
    pub fn supervise(&self, guest: Pid) -> i32 {
        let mut timeout = Some(release_pages::MIN_GUEST_TIME);
        loop {
            if let Some(code) = self.reap(guest) {
                return code;
            }
            let Some(signal) = next_signal(timeout) else {
                timeout = None;
                release_pages::release_code_pages();
                continue;
            };
            if signal == LAUNCHER_ENDED && self.role == Role::Entered {
                return KILLED.exit_code().into();
            }
            if FORWARDED_BY_INIT.contains(&signal) {
                // SAFETY: the list has valid signal numbers only.
                let signal = unsafe { Signal::from_raw_unchecked(signal) };
                // A stop concerns the guest's whole process group, which may have been stopped because
                // it needs the terminal.
                let _ = if signal == Signal::CONT {
                    guest::give_terminal(guest);
                    rustix::process::kill_process_group(guest, signal)
                } else {
                    rustix::process::kill_process(guest, signal)
                };
            }
        }
    }

    /// Reaps children that have ended; returns the guest's exit code if it is among them.
    fn reap(&self, guest: Pid) -> Option<i32> {
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            match rustix::process::wait(options) {
                Ok(Some((pid, status))) if pid == guest => match status.stopping_signal() {
                    Some(signal) => {
                        let _ = self.link.send(Message::Stopped(signal), None);
                    }
                    None => return Some(Outcome::from_wait(status).exit_code().into()),
                },
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// Waits for a signal; `None` when the timeout is over. All signals are blocked, so none is lost
/// and no handler is needed.
fn next_signal(timeout: Option<Duration>) -> Option<i32> {
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // SAFETY: the set is initialised before it is read, the limit is null or outlives the call, and
    // the null pointer asks for no information about the signal.
    let signal = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        libc::sigtimedwait(&raw const all, std::ptr::null_mut(), limit)
    };
    (signal > 0).then_some(signal)
}

/// Kills all other processes of the sandbox and reaps them, so that none is left when the launcher
/// learns of the guest's end. Returns `false` if there are some that it may not kill: Landlock
/// forbids signals to what a process has left that entered later.
fn kill_all() -> bool {
    // Outside its own pid namespace this would kill every process of the user.
    if !rustix::process::getpid().is_init() {
        return true;
    }
    // SAFETY: -1 means every process of this pid namespace but the caller, which is its pid 1.
    if unsafe { libc::kill(-1, libc::SIGKILL) } != 0 {
        return sys::last_errno() != Errno::PERM;
    }
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return true,
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => {
                let may_kill = |child: &Pid| rustix::process::test_kill_process(*child) != Err(Errno::PERM);
                if !descendants::children("self").iter().any(may_kill) {
                    return false;
                }
                let _ = rustix::process::wait(WaitOptions::empty());
            }
        }
    }
}
