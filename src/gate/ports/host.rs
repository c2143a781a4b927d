//! The host's end: accepts connections on the host's loopback. Only the host opens connections, and
//! each to the port that the user named.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::channel::{Channel, ChannelError, CloseReason, Endpoint, Side, StreamKind};

/// A listening port of the host, and the port inside that it leads to.
#[derive(Debug)]
pub struct Forward {
    pub listener: TcpListener,
    pub port: u16,
}

/// Relays connections until the channel ends. A connection to a port that is not permitted at that
/// moment is closed.
pub fn forward(
    input: OwnedFd,
    output: OwnedFd,
    forwards: Vec<Forward>,
    is_permitted: impl Fn(u16) -> bool,
) -> Result<(), ChannelError> {
    for forward in &forwards {
        forward.listener.set_nonblocking(true)?;
    }
    let listeners: Vec<BorrowedFd<'_>> = forwards.iter().map(|forward| forward.listener.as_fd()).collect();
    let mut channel = Channel::new(Side::Launcher, input, output)?;
    loop {
        // Others wait until the host accepts them.
        let watched = if channel.has_room(StreamKind::Port) { listeners.as_slice() } else { &[] };
        let step = channel.step(watched, &mut |_, _| Err(CloseReason::Refused))?;
        if step.is_over {
            return Ok(());
        }
        for Forward { listener, port } in step.ready.iter().filter_map(|number| forwards.get(*number)) {
            let Some(connection) = accept(listener)? else { continue };
            if is_permitted(*port) {
                // A connection for which there is no room is closed.
                let _ = channel.open(StreamKind::Port, &port.to_le_bytes(), connection);
            }
        }
    }
}

/// Accepts a connection, if there is one.
fn accept(listener: &TcpListener) -> io::Result<Option<Endpoint>> {
    match listener.accept() {
        Ok((socket, _)) => Endpoint::tcp(socket).map(Some),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => Ok(None),
        Err(error) => Err(error),
    }
}
