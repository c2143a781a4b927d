//! Separates the sandbox from the session, the terminal and the streams of the caller.

use std::os::fd::BorrowedFd;

use rustix::io::Result;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};
use rustix::termios::isatty;

/// The standard streams of a sandbox.
#[derive(Debug, Clone, Copy)]
pub enum SessionStreams<'a> {
    /// Those of the caller, of which none is a terminal.
    Caller,
    /// The slave of a pseudo-terminal, in the place of the caller's streams that are terminals.
    Terminal(BorrowedFd<'a>),
    /// The slave of a pseudo-terminal, in the place of all.
    OnlyTerminal(BorrowedFd<'a>),
    /// A file or a socket, in the place of all.
    File(BorrowedFd<'a>),
}

/// Makes the calling process the leader of a new session, with the given streams. A terminal becomes
/// its controlling terminal. Its children are in the same session, so that the kernel stops them for
/// keys, and the caller learns of it.
///
/// Makes system calls only.
pub(crate) fn begin(streams: SessionStreams<'_>) -> Result<()> {
    rustix::process::setsid()?;
    let (file, replaces_all) = match streams {
        SessionStreams::Caller => return Ok(()),
        SessionStreams::Terminal(slave) => (slave, false),
        SessionStreams::OnlyTerminal(file) | SessionStreams::File(file) => (file, true),
    };
    if !matches!(streams, SessionStreams::File(_)) {
        rustix::process::ioctl_tiocsctty(file)?;
    }
    if replaces_all || isatty(stdin()) {
        dup2_stdin(file)?;
    }
    if replaces_all || isatty(stdout()) {
        dup2_stdout(file)?;
    }
    if replaces_all || isatty(stderr()) {
        dup2_stderr(file)?;
    }
    Ok(())
}
