//! Many connections over one stream: waits for the stream and all sockets, and passes bytes on. Used
//! on the host and inside.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::connection::{Connection, ProtocolError};
use super::frame::PortFrame;
use crate::gate::attach::frame::{Decoder, Frame};

/// The most connections at once. Others wait until the host accepts them.
pub const MAX_CONNECTIONS: usize = 256;
/// No socket is read while so many bytes wait for the stream.
const MAX_WAITING: usize = 256 * 1024;
/// Far more than what waits if the other end reads.
const MAX_UNREAD: usize = 4 * 1024 * 1024;

/// The end of the stream that a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It opens connections.
    Host,
    /// It connects to the ports that the host names.
    Inside,
}

pub struct Multiplexer {
    end: End,
    input: OwnedFd,
    output: OwnedFd,
    decoder: Decoder<PortFrame>,
    /// Encoded frames, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    connections: BTreeMap<u32, Connection>,
    buffer: Vec<u8>,
}

/// What has happened and is not done here.
#[derive(Debug, Default)]
pub struct Step {
    /// The stream has ended.
    pub is_over: bool,
    /// The numbers of listeners with a connection.
    pub accepts: Vec<usize>,
}

impl Multiplexer {
    pub fn new(end: End, input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        for stream in [&input, &output] {
            rustix::fs::fcntl_setfl(stream, rustix::fs::fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
        }
        Ok(Multiplexer {
            end,
            input,
            output,
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            sent: 0,
            connections: BTreeMap::new(),
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Relays a connection. A number that is in use is refused.
    pub fn add(&mut self, id: u32, connection: io::Result<Connection>) -> Result<(), ProtocolError> {
        if self.connections.contains_key(&id) || self.connections.len() >= MAX_CONNECTIONS {
            return Err(ProtocolError);
        }
        match connection {
            Ok(connection) => drop(self.connections.insert(id, connection)),
            Err(_) => self.send(&PortFrame::Close { id }),
        }
        Ok(())
    }

    pub fn send(&mut self, frame: &PortFrame) {
        frame.encode(&mut self.outgoing);
    }

    /// Waits for something to happen, and passes bytes on.
    pub fn step(&mut self, listeners: &[TcpListener]) -> io::Result<Step> {
        let mut step = Step::default();
        let (input, events) = self.wait(listeners, &mut step);
        if input && !self.receive()? {
            step.is_over = true;
            return Ok(step);
        }
        for (id, events) in events {
            self.relay(id, events);
        }
        self.flush()?;
        if self.outgoing.len() - self.sent > MAX_UNREAD {
            return Err(io::Error::other(ProtocolError));
        }
        Ok(step)
    }

    /// Returns whether the stream is ready, and the connections that are.
    fn wait(&self, listeners: &[TcpListener], step: &mut Step) -> (bool, Vec<(u32, PollFlags)>) {
        let may_read = self.outgoing.len() - self.sent < MAX_WAITING;
        let output = if self.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut fds = vec![PollFd::new(&self.input, PollFlags::IN), PollFd::new(&self.output, output)];
        let accepts = may_read && self.connections.len() < MAX_CONNECTIONS;
        let listeners = if accepts { listeners } else { &[] };
        fds.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let waiting = || {
            let all = self.connections.iter().map(|(id, connection)| (*id, connection, connection.interest(may_read)));
            all.filter(|(_, _, interest)| !interest.is_empty())
        };
        fds.extend(waiting().map(|(_, connection, interest)| PollFd::new(connection, interest)));
        if poll(&mut fds, None).is_err() {
            return (false, Vec::new());
        }
        let happened: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let at = |index: usize| happened.get(index).copied().unwrap_or(PollFlags::empty());
        step.accepts = (0..listeners.len()).filter(|number| !at(number + 2).is_empty()).collect();
        let connections = waiting().enumerate().map(|(number, (id, _, _))| (id, at(number + 2 + listeners.len())));
        // A broken output shows as the end of the input.
        (
            !at(0).is_empty() || at(1).contains(PollFlags::ERR),
            connections.filter(|(_, events)| !events.is_empty()).collect(),
        )
    }

    /// Reads frames; returns `false` at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        match rustix::io::read(&self.input, self.buffer.as_mut_slice()) {
            Ok(0) => return Ok(false),
            Ok(count) => self.decoder.push(self.buffer.get(..count).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(_) => return Ok(false),
        }
        while let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? {
            self.handle(frame).map_err(io::Error::other)?;
        }
        Ok(true)
    }

    /// Frames of a connection that has ended here are ignored: the other end did not know it.
    fn handle(&mut self, frame: PortFrame) -> Result<(), ProtocolError> {
        let id = match frame {
            PortFrame::Open { .. } if self.end == End::Host => return Err(ProtocolError),
            PortFrame::Open { id, port } => return self.add(id, Connection::to_port(id, port)),
            PortFrame::Close { id } => {
                self.connections.remove(&id);
                return Ok(());
            }
            PortFrame::Data { id, .. } | PortFrame::Credit { id, .. } | PortFrame::Eof { id } => id,
        };
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        match frame {
            PortFrame::Data { bytes, .. } => connection.receive(&bytes)?,
            PortFrame::Credit { bytes, .. } => connection.add_credit(bytes)?,
            _ => connection.end_other(),
        }
        self.relay(id, PollFlags::empty());
        Ok(())
    }

    fn relay(&mut self, id: u32, events: PollFlags) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let relayed = connection.relay(events, &mut self.buffer, &mut self.outgoing);
        if relayed.is_err() {
            self.send(&PortFrame::Close { id });
        }
        if relayed.is_err() || self.connections.get(&id).is_some_and(Connection::is_over) {
            self.connections.remove(&id);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outgoing.len() {
            match rustix::io::write(self.output.as_fd(), self.outgoing.get(self.sent..).unwrap_or_default()) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => {
                    // What was sent is dropped from time to time, so that the buffer does not grow.
                    if self.sent >= MAX_WAITING {
                        self.outgoing.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                // The other end is gone, which shows when the input is read.
                Err(Errno::PIPE) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Accepts a connection, if there is one.
pub fn accept(id: u32, listener: &TcpListener) -> io::Result<Option<Connection>> {
    match listener.accept() {
        Ok((socket, _)) => Connection::accepted(id, socket).map(Some),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => Ok(None),
        Err(error) => Err(error),
    }
}
