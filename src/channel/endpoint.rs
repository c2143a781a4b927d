//! The local end of a stream: a socket, or descriptors to read and to write.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketType};

#[derive(Debug)]
pub struct Endpoint(Files);

#[derive(Debug)]
enum Files {
    Socket(OwnedFd),
    /// A connection that is being made, with the addresses that are left to try.
    Connecting(TcpStream, Vec<SocketAddr>),
    /// `None` for a direction that has ended.
    Pipes(Option<OwnedFd>, Option<OwnedFd>),
}

/// The result of one read or write that does not wait.
pub enum Transfer {
    Done(usize),
    /// Nothing can be transferred now.
    NotReady,
}

impl Endpoint {
    /// Relays a connected socket.
    pub fn socket(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        let socket = socket.into();
        set_nonblocking(&socket)?;
        Ok(Endpoint(Files::Socket(socket)))
    }

    /// Relays an accepted TCP connection.
    pub fn tcp(socket: TcpStream) -> io::Result<Self> {
        // Frames are whole messages already.
        socket.set_nodelay(true)?;
        Self::socket(socket)
    }

    /// Connects to a port of this network's loopback.
    pub fn to_port(port: u16) -> io::Result<Self> {
        let addresses: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
        let mut left = addresses.map(|address| SocketAddr::new(address, port)).to_vec();
        let socket = connect_to_first(&mut left)?;
        Ok(Endpoint(Files::Connecting(socket, left)))
    }

    /// Reads from one descriptor and writes to another, such as pipes. A direction without one has
    /// ended. The descriptors become non-blocking for all processes that share them.
    pub fn pipes(reader: Option<OwnedFd>, writer: Option<OwnedFd>) -> io::Result<Self> {
        for file in reader.iter().chain(&writer) {
            set_nonblocking(file)?;
        }
        Ok(Endpoint(Files::Pipes(reader, writer)))
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.0, Files::Connecting(..))
    }

    /// Goes on connecting after the socket was ready; fails if no address answers.
    pub(super) fn continue_connecting(&mut self) -> io::Result<()> {
        let Files::Connecting(socket, left) = &mut self.0 else { return Ok(()) };
        match socket.take_error()? {
            None => self.0 = Files::Socket(socket.try_clone()?.into()),
            Some(error) if left.is_empty() => return Err(error),
            Some(_) => *socket = connect_to_first(left)?,
        }
        Ok(())
    }

    pub(super) fn reader(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Files::Socket(socket) => Some(socket.as_fd()),
            Files::Connecting(..) => None,
            Files::Pipes(reader, _) => reader.as_ref().map(AsFd::as_fd),
        }
    }

    pub(super) fn writer(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Files::Socket(socket) => Some(socket.as_fd()),
            Files::Connecting(socket, _) => Some(socket.as_fd()),
            Files::Pipes(_, writer) => writer.as_ref().map(AsFd::as_fd),
        }
    }

    /// Reads; `Done(0)` is the end.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Transfer> {
        let Some(reader) = self.reader() else { return Ok(Transfer::Done(0)) };
        match rustix::io::read(reader, buffer) {
            // A pseudo-terminal whose last program has closed it.
            Err(Errno::IO) => Ok(Transfer::Done(0)),
            transferred => ready(transferred),
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<Transfer> {
        match self.writer() {
            Some(writer) => ready(rustix::io::write(writer, bytes)),
            None => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    /// Tells the program at this end that nothing more comes.
    pub(super) fn end_writing(&mut self) {
        match &mut self.0 {
            // It fails if the socket is gone, which shows when it is read.
            Files::Socket(socket) => drop(rustix::net::shutdown(socket, Shutdown::Write)),
            Files::Connecting(..) => {}
            Files::Pipes(_, writer) => *writer = None,
        }
    }
}

fn ready(transferred: rustix::io::Result<usize>) -> io::Result<Transfer> {
    match transferred {
        Ok(count) => Ok(Transfer::Done(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Transfer::NotReady),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn set_nonblocking(file: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(file, rustix::fs::fcntl_getfl(file)? | OFlags::NONBLOCK)?)
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
