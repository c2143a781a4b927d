//! The end inside the sandbox: connects to ports of the sandbox's loopback, as the host asks for.

use std::os::fd::BorrowedFd;

use crate::channel::{Channel, ChannelError, CloseReason, Endpoint, Side, StreamKind};

/// Makes connections until the channel ends.
pub fn serve(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> Result<(), ChannelError> {
    let mut channel = Channel::new(Side::Sandbox, input.try_clone_to_owned()?, output.try_clone_to_owned()?)?;
    while !channel.step(&[], &mut connect)?.is_over {}
    Ok(())
}

/// Connects to the port that the argument of a stream names.
pub fn connect(kind: StreamKind, argument: &[u8]) -> Result<Endpoint, CloseReason> {
    match (kind, argument.try_into().map(u16::from_le_bytes)) {
        (StreamKind::Port, Ok(port)) => Endpoint::to_port(port).map_err(|_| CloseReason::NotConnected),
        _ => Err(CloseReason::Refused),
    }
}

/// Returns the listening sockets of all visible processes as JSON.
pub fn list() -> String {
    #[cfg(target_os = "linux")]
    let listeners = super::listener::of_all_processes();
    #[cfg(not(target_os = "linux"))]
    let listeners: Vec<super::Listener> = Vec::new();
    serde_json::to_string(&listeners).unwrap_or_default()
}
