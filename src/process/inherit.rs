//! Lets a program inherit one more open file than its standard streams.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

/// Lets the program of a command inherit a file. Returns the path by which it opens the file. The
/// file is closed with the command.
pub fn inherit(command: &mut Command, file: OwnedFd) -> String {
    let path = format!("/dev/fd/{}", file.as_raw_fd());
    // SAFETY: the closure makes one system call, which is all that may happen between fork and exec.
    unsafe {
        command.pre_exec(move || Ok(fcntl_setfd(&file, FdFlags::empty())?));
    }
    path
}
