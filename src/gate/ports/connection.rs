//! One end of a relayed connection: a socket, and what waits for it. At most [`WINDOW`] bytes wait,
//! because the other end may send only what it has credit for.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use super::frame::{MAX_DATA, PortFrame};
use crate::gate::attach::frame::Frame;

/// The most bytes on their way in one direction of a connection.
const WINDOW: usize = 64 * 1024;

/// The other end broke the protocol.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the sandbox is out of step")]
pub struct ProtocolError;

#[derive(Debug)]
pub struct Connection {
    id: u32,
    socket: TcpStream,
    /// `Some` until it is connected, with the addresses that are left to try.
    connecting: Option<Vec<SocketAddr>>,
    /// Bytes for the socket, from `written` on.
    waiting: Vec<u8>,
    written: usize,
    /// Bytes that the other end has sent and has no new credit for.
    taken: usize,
    /// Bytes that may be sent to the other end.
    credit: usize,
    /// Whether the socket has not ended.
    reads: bool,
    /// Whether the other end sends no more.
    is_other_over: bool,
    is_shut_down: bool,
}

impl Connection {
    /// Relays an accepted connection.
    pub fn accepted(id: u32, socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Frames are whole messages already.
        socket.set_nodelay(true)?;
        Ok(Self::new(id, socket, None))
    }

    /// Connects to a port of this network's loopback.
    pub fn to_port(id: u32, port: u16) -> io::Result<Self> {
        let addresses: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
        let mut left = addresses.map(|address| SocketAddr::new(address, port)).to_vec();
        let socket = connect_to_first(&mut left)?;
        Ok(Self::new(id, socket, Some(left)))
    }

    fn new(id: u32, socket: TcpStream, connecting: Option<Vec<SocketAddr>>) -> Self {
        Connection {
            id,
            socket,
            connecting,
            waiting: Vec::new(),
            written: 0,
            taken: 0,
            credit: WINDOW,
            reads: true,
            is_other_over: false,
            is_shut_down: false,
        }
    }

    /// Returns the events to wait for; none if the socket has nothing to do.
    pub fn interest(&self, may_read: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, self.connecting.is_some() || !self.waiting.is_empty());
        flags.set(PollFlags::IN, self.connecting.is_none() && self.reads && self.credit > 0 && may_read);
        flags
    }

    /// Tells whether both directions have ended.
    pub fn is_over(&self) -> bool {
        !self.reads && self.is_shut_down
    }

    /// Takes bytes of the other end.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        if self.taken + bytes.len() > WINDOW || self.is_other_over {
            return Err(ProtocolError);
        }
        self.taken += bytes.len();
        self.waiting.extend_from_slice(bytes);
        Ok(())
    }

    pub fn add_credit(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        self.credit += bytes as usize;
        if self.credit > WINDOW { Err(ProtocolError) } else { Ok(()) }
    }

    pub fn end_other(&mut self) {
        self.is_other_over = true;
    }

    /// Writes and reads what it can, and appends the frames for the other end.
    pub fn relay(&mut self, events: PollFlags, buffer: &mut [u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.connecting.is_some() && !self.finish_connecting(events)? {
            return Ok(());
        }
        self.write(out)?;
        if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && self.reads && self.credit > 0 {
            self.read(buffer, out)?;
        }
        Ok(())
    }

    /// Returns whether it is connected.
    fn finish_connecting(&mut self, events: PollFlags) -> io::Result<bool> {
        if events.is_empty() {
            return Ok(false);
        }
        let Some(error) = self.socket.take_error()? else {
            self.connecting = None;
            return Ok(true);
        };
        match &mut self.connecting {
            Some(left) if !left.is_empty() => self.socket = connect_to_first(left)?,
            _ => return Err(error),
        }
        Ok(false)
    }

    fn write(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.written < self.waiting.len() {
            match self.socket.write(self.waiting.get(self.written..).unwrap_or_default()) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.waiting.clear();
        self.written = 0;
        if self.is_other_over {
            if !std::mem::replace(&mut self.is_shut_down, true) {
                // It fails if the socket is gone, which shows when it is read.
                let _ = self.socket.shutdown(Shutdown::Write);
            }
        } else if self.taken >= WINDOW / 2 {
            let bytes = u32::try_from(std::mem::take(&mut self.taken)).unwrap_or_default();
            PortFrame::Credit { id: self.id, bytes }.encode(out);
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> io::Result<()> {
        let most = self.credit.min(MAX_DATA).min(buffer.len());
        match self.socket.read(buffer.get_mut(..most).unwrap_or_default()) {
            Ok(0) => {
                self.reads = false;
                PortFrame::Eof { id: self.id }.encode(out);
            }
            Ok(count) => {
                self.credit -= count;
                let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                PortFrame::Data { id: self.id, bytes }.encode(out);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Starts to connect to the last of the addresses that can be connected to, and removes it.
fn connect_to_first(addresses: &mut Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(ErrorKind::ConnectionRefused);
    while let Some(address) = addresses.pop() {
        match start_connecting(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Starts to connect without waiting: a server whose queue is full answers late.
fn start_connecting(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = TcpStream::from(rustix::net::socket(family, SocketType::STREAM, None)?);
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    socket.set_nonblocking(true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    socket.set_nodelay(true)?;
    Ok(socket)
}
