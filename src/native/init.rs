//! Pid 1 of the sandbox (and, for `exec`, the parent of an entered command): starts the guest,
//! passes signals on, reaps orphans, tells the launcher what happens, and ends everything at last.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::native::guest::{self, Command};
use crate::native::link::{Link, Message};
use crate::native::walls;
use crate::process::release_pages;

/// What the launcher may send for the guest. SIGTSTP and the like are the terminal's business.
const FORWARDED: [i32; 8] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
];

/// The handle of the code that runs inside, in front of the guest.
pub struct Init {
    link: Link,
    /// The launcher's signal mask, which the guest inherits; here all signals are blocked.
    mask: libc::sigset_t,
    is_first: bool,
}

impl Init {
    pub(crate) fn first(link: Link, mask: libc::sigset_t) -> Self {
        Self { link, mask, is_first: true }
    }

    pub(crate) fn entered(link: Link, mask: libc::sigset_t) -> Self {
        Self { is_first: false, ..Self::first(link, mask) }
    }

    /// The rest of the process's life.
    pub(crate) fn run(self, init: impl FnOnce(&Self) -> i32) -> ! {
        let code = init(&self);
        if self.is_first {
            end_all();
        }
        // Said before the end, not by it: taking a mount namespace down costs the last process in
        // it some 100 µs that nobody needs to wait for.
        let _ = self.link.send(Message::Exited(code), None);
        self.link.await_message();
        walls::exit(code)
    }

    /// Starts the guest and stays with it until its end: its exit code, 128 + n if a signal ended
    /// it, 127 if the command was not found, 126 if it could not be executed.
    pub fn run_guest(&self, command: &Command) -> i32 {
        match guest::start(command, &self.mask, !self.is_first) {
            Ok(guest) => self.supervise(guest, command.own_group),
            Err(errno) => {
                let _ = self.link.send(Message::NotStarted(errno.raw_os_error()), None);
                if matches!(errno, Errno::NOENT | Errno::NOTDIR) { 127 } else { 126 }
            }
        }
    }

    /// Waits for the end of `guest`, a child of this process.
    pub fn supervise(&self, guest: Pid, own_group: bool) -> i32 {
        // In a group shared with the launcher the guest gets the terminal's signals by itself;
        // passing on a second copy would be wrong.
        let _ = rustix::process::setpgid(None, None);
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
            if FORWARDED.contains(&signal) {
                // SAFETY: of the list above only.
                let signal = unsafe { Signal::from_raw_unchecked(signal) };
                // A stopped guest may be more than one process.
                let _ = if signal == Signal::CONT && own_group {
                    rustix::process::kill_process_group(guest, signal)
                } else {
                    rustix::process::kill_process(guest, signal)
                };
            }
        }
    }

    /// Takes all news of children; the guest's end is the result.
    fn reap(&self, guest: Pid) -> Option<i32> {
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            match rustix::process::wait(options) {
                Ok(Some((pid, status))) if pid == guest => match status.stopping_signal() {
                    Some(signal) => {
                        let _ = self.link.send(Message::Stopped(signal), None);
                    }
                    None => return Some(code(status)),
                },
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// Waits for any signal; all are blocked, so none is lost and no handler is needed. `None` when it takes too long.
fn next_signal(timeout: Option<Duration>) -> Option<i32> {
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // SAFETY: the set is initialised before it is read, the limit is null or outlives the call, and no information is asked for.
    let signal = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        libc::sigtimedwait(&raw const all, std::ptr::null_mut(), limit)
    };
    (signal > 0).then_some(signal)
}

/// Pid 1's last act: when the launcher hears of the end, no process is left.
fn end_all() {
    // In any other pid namespace than its own this would end everything the user has.
    if !rustix::process::getpid().is_init() {
        return;
    }
    // SAFETY: -1 means every process of this pid namespace but the caller, who is its pid 1.
    if unsafe { libc::kill(-1, libc::SIGKILL) } == 0 {
        while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    }
}

/// As shells put it.
pub(crate) fn code(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    }
}
