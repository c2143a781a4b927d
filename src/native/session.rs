//! Separates the sandbox from the session and the terminal of the caller.

use std::os::fd::BorrowedFd;

use rustix::io::Result;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};
use rustix::termios::isatty;

/// The terminal of a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct SessionTerminal<'a> {
    pub slave: BorrowedFd<'a>,
    /// Whether it takes the place of all standard streams, rather than of those that are terminals.
    pub is_all_streams: bool,
}

/// A descriptor and the number of the standard stream that it replaces.
pub type Replacement<'a> = (u8, BorrowedFd<'a>);

/// Makes the calling process the leader of a new session, with `terminal` as its controlling
/// terminal and in the place of standard streams. Its children are in the same session, so that the
/// kernel stops them for keys, and the caller learns of it.
///
/// Makes system calls only.
pub(crate) fn begin(terminal: Option<SessionTerminal<'_>>, replacements: &[Replacement<'_>]) -> Result<()> {
    rustix::process::setsid()?;
    for (number, with) in replacements {
        match number {
            0 => dup2_stdin(with)?,
            1 => dup2_stdout(with)?,
            _ => dup2_stderr(with)?,
        }
    }
    let Some(SessionTerminal { slave, is_all_streams }) = terminal else { return Ok(()) };
    rustix::process::ioctl_tiocsctty(slave)?;
    if is_all_streams || isatty(stdin()) {
        dup2_stdin(slave)?;
    }
    if is_all_streams || isatty(stdout()) {
        dup2_stdout(slave)?;
    }
    if is_all_streams || isatty(stderr()) {
        dup2_stderr(slave)?;
    }
    Ok(())
}
