//! The host's end: accepts connections on the host's loopback. Only the host opens connections, and
//! each to the port that the user named.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use super::frame::PortFrame;
use super::multiplexer::{End, Multiplexer, accept};

/// A listening port of the host, and the port inside that it leads to.
#[derive(Debug)]
pub struct Forward {
    pub listener: TcpListener,
    pub port: u16,
}

/// Relays connections until the stream ends. A connection to a port that is not permitted at that
/// moment is closed.
pub fn forward(
    input: OwnedFd,
    output: OwnedFd,
    forwards: Vec<Forward>,
    is_permitted: impl Fn(u16) -> bool,
) -> io::Result<()> {
    let (listeners, ports): (Vec<TcpListener>, Vec<u16>) =
        forwards.into_iter().map(|forward| (forward.listener, forward.port)).unzip();
    for listener in &listeners {
        listener.set_nonblocking(true)?;
    }
    let mut multiplexer = Multiplexer::new(End::Host, input, output)?;
    let mut next_id = 0_u32;
    loop {
        let step = multiplexer.step(&listeners)?;
        if step.is_over {
            return Ok(());
        }
        for number in step.accepts {
            let (Some(listener), Some(port)) = (listeners.get(number), ports.get(number).copied()) else { continue };
            let Some(connection) = accept(next_id, listener)? else { continue };
            if !is_permitted(port) || multiplexer.add(next_id, Ok(connection)).is_err() {
                continue;
            }
            multiplexer.send(&PortFrame::Open { id: next_id, port });
            next_id = next_id.wrapping_add(1);
        }
    }
}
