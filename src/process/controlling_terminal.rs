//! Gives a command a session of its own, with the terminal on its stdin as the controlling one.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Its stdin must be a terminal that is no other session's.
pub fn take(command: &mut Command) {
    // SAFETY: these are plain system calls, which is all that may happen between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
}
