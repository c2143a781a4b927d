//! Separates the sandbox from the session and the terminal of the caller.

use std::os::fd::BorrowedFd;

use rustix::io::Result;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};
use rustix::termios::isatty;

/// Makes the calling process the leader of a new session, with `terminal` as its controlling
/// terminal and in the place of each standard stream that is a terminal. Its children are in the
/// same session, so that the kernel stops them for keys, and the caller learns of it.
///
/// Makes system calls only.
pub(crate) fn begin(terminal: Option<BorrowedFd<'_>>) -> Result<()> {
    rustix::process::setsid()?;
    let Some(terminal) = terminal else { return Ok(()) };
    rustix::process::ioctl_tiocsctty(terminal)?;
    if isatty(stdin()) {
        dup2_stdin(terminal)?;
    }
    if isatty(stdout()) {
        dup2_stdout(terminal)?;
    }
    if isatty(stderr()) {
        dup2_stderr(terminal)?;
    }
    Ok(())
}
