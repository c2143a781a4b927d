//! The end inside the sandbox: connects to ports of the sandbox's loopback, as the host asks for.

use std::io;
use std::os::fd::BorrowedFd;

use super::multiplexer::{End, Multiplexer};

/// Makes connections until the stream ends.
pub fn serve(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<()> {
    let mut multiplexer = Multiplexer::new(End::Inside, input.try_clone_to_owned()?, output.try_clone_to_owned()?)?;
    while !multiplexer.step(&[])?.is_over {}
    Ok(())
}

/// Returns the listening sockets of all visible processes as JSON.
pub fn list() -> String {
    #[cfg(target_os = "linux")]
    let listeners = super::listener::of_all_processes();
    #[cfg(not(target_os = "linux"))]
    let listeners: Vec<super::Listener> = Vec::new();
    serde_json::to_string(&listeners).unwrap_or_default()
}
