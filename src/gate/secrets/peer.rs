//! One side of an exchange: a TLS connection whose socket never blocks, with buffers of bounded size.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

/// The size of one read, and of what waits to be written.
pub const BUFFER: usize = 64 * 1024;

pub struct Peer {
    socket: TcpStream,
    tls: Connection,
    raw: Vec<u8>,
    /// What was received and not used yet.
    pub plain: Vec<u8>,
    /// Nothing more will be received.
    pub is_ended: bool,
    /// The end was announced, so nothing is missing.
    pub is_clean: bool,
    /// Nothing more can be sent.
    pub is_broken: bool,
    pub received: u64,
    pub sent: u64,
}

impl Peer {
    pub fn new(socket: TcpStream, mut tls: Connection) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        tls.set_buffer_limit(Some(BUFFER));
        let mut peer = Peer {
            socket,
            tls,
            raw: vec![0; BUFFER],
            plain: Vec::new(),
            is_ended: false,
            is_clean: false,
            is_broken: false,
            received: 0,
            sent: 0,
        };
        peer.take_plain();
        Ok(peer)
    }

    /// Whether more may be received now.
    pub fn has_room(&self) -> bool {
        !self.is_ended && self.plain.len() < BUFFER
    }

    /// Accepts bytes to send, as many as fit, and removes them from `bytes`.
    pub fn send(&mut self, bytes: &mut Vec<u8>) {
        while !bytes.is_empty() && !self.is_broken {
            match self.tls.writer().write(bytes) {
                Ok(0) => {
                    self.flush();
                    if self.tls.wants_write() {
                        return;
                    }
                }
                Ok(length) => {
                    self.sent += length as u64;
                    bytes.drain(..length);
                }
                Err(_) => self.is_broken = true,
            }
        }
        self.flush();
    }

    pub fn has_unsent(&self) -> bool {
        self.tls.wants_write() && !self.is_broken
    }

    /// Tells the other side that nothing more will be sent.
    pub fn close(&mut self) {
        self.tls.send_close_notify();
        self.flush();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    pub fn flush(&mut self) {
        while self.tls.wants_write() && !self.is_broken {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_broken = true,
            }
        }
    }

    /// Reads once from the socket.
    fn receive(&mut self) {
        let length = match self.socket.read(&mut self.raw) {
            Ok(0) => {
                self.is_ended = true;
                return;
            }
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => {
                (self.is_ended, self.is_broken) = (true, true);
                return;
            }
        };
        let raw = std::mem::take(&mut self.raw);
        let mut rest = &raw[..length];
        while !rest.is_empty() && !self.is_ended {
            let taken = self.tls.read_tls(&mut rest);
            if taken.is_err() || self.tls.process_new_packets().is_err() {
                // The other side learns why.
                self.flush();
                (self.is_ended, self.is_broken) = (true, true);
            }
            self.take_plain();
        }
        self.raw = raw;
    }

    fn take_plain(&mut self) {
        let mut part = [0; 16 * 1024];
        loop {
            match self.tls.reader().read(&mut part) {
                Ok(0) => {
                    (self.is_ended, self.is_clean) = (true, true);
                    return;
                }
                Ok(length) => {
                    self.received += length as u64;
                    self.plain.extend_from_slice(&part[..length]);
                }
                Err(_) => return,
            }
        }
    }

    /// Whether the other side has closed the connection, or sent what nobody asked for.
    pub fn is_unusable(&mut self) -> bool {
        self.receive();
        self.is_ended || self.is_broken || !self.plain.is_empty()
    }
}

/// Waits until one of two peers can go on, and reads what has arrived. `reads` tells whose bytes are
/// wanted. Returns `false` if the time is over.
pub fn wait(guest: &mut Peer, server: Option<&mut Peer>, reads: [bool; 2], limit: Option<Instant>) -> io::Result<bool> {
    let mut peers: Vec<(&mut Peer, bool)> = vec![(guest, reads[0])];
    peers.extend(server.map(|server| (server, reads[1])));
    let flags: Vec<PollFlags> = peers
        .iter()
        .map(|(peer, reads)| {
            let read = if *reads && peer.has_room() { PollFlags::IN } else { PollFlags::empty() };
            let write = if peer.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            read | write
        })
        .collect();
    let ready: Vec<bool> = {
        // A socket without interest would wake the loop again and again once it is closed.
        let wanted = peers.iter().zip(&flags).filter(|(_, flags)| !flags.is_empty());
        let mut polled: Vec<PollFd<'_>> = wanted.map(|((peer, _), flags)| PollFd::new(&peer.socket, *flags)).collect();
        if polled.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        let timeout = left.map(timespec);
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = polled.iter().map(|fd| !fd.revents().is_empty());
        flags.iter().map(|flags| !flags.is_empty() && events.next().unwrap_or_default()).collect()
    };
    for (((peer, _), flags), ready) in peers.iter_mut().zip(&flags).zip(ready) {
        if ready {
            peer.flush();
            if flags.contains(PollFlags::IN) {
                peer.receive();
            }
        }
    }
    Ok(true)
}

fn timespec(duration: Duration) -> Timespec {
    // Rounded up, so that the loop does not spin in the last millisecond.
    Timespec::try_from(duration + Duration::from_millis(1)).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}
