//! Takes the terminal back from a guest whose group was in its foreground.

use rustix::process::{Pid, getpgrp};
use rustix::stdio::stdin;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Who had the terminal before the launch. Dropping it puts sandpen's group there again, if the guest's took it.
pub struct Foreground {
    had: bool,
    guest: Option<Pid>,
}

impl Foreground {
    /// Looks at the terminal, if stdin is one.
    pub fn remember() -> Self {
        Foreground { had: tcgetpgrp(stdin()) == Ok(getpgrp()), guest: None }
    }

    /// The guest's group, which takes the terminal itself.
    pub fn expect(&mut self, guest: Pid) {
        self.guest = Some(guest);
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let holder = tcgetpgrp(stdin()).ok();
        if holder.is_some() && (self.had || holder == self.guest) {
            give_terminal_to(getpgrp());
        }
    }
}

/// Makes a group the terminal's foreground. From the background this would stop the caller, were the signal not blocked.
pub fn give_terminal_to(group: Pid) {
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
