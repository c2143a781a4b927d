//! Takes the terminal back from a guest whose group was in its foreground.

use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Whether sandpen was in the foreground before the launch; dropping it puts it there again.
pub struct Foreground(bool);

impl Foreground {
    /// Looks at the terminal, if stdin is one.
    pub fn remember() -> Self {
        Foreground(tcgetpgrp(stdin()) == Ok(getpgrp()))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if self.0 {
            give_terminal_to(getpgrp());
        }
    }
}

/// Makes a group the terminal's foreground. From the background this would stop the caller, were the signal not blocked.
pub fn give_terminal_to(group: rustix::process::Pid) {
    // SAFETY: both sets are plain data that the calls fill in; they only change this thread's mask, and put it back.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        let _ = tcsetpgrp(stdin(), group);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}
