//! Copies bytes both ways between two sockets in one thread, with memory that does not grow.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What one read takes. A connection holds one of these, and one more for each direction whose receiver is slow.
const BUFFER: usize = 32 * 1024;
/// The proxy's limit for connections that are half open.
pub const HALF_OPEN: Duration = Duration::from_secs(120);
/// How often one direction may go on before the other has its turn.
const TURNS: usize = 16;

/// Bytes moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the guest.
    pub sent: u64,
    /// To the guest.
    pub received: u64,
}

/// Copies until both sides are done, or one is gone. `early` has been read from the client already. `half_open` limits how long
/// nothing may move once one side has finished, or does not take what is there for it.
pub fn both_ways(client: &TcpStream, server: &TcpStream, early: &[u8], half_open: Option<Duration>) -> Traffic {
    let mut up = Flow { pending: early.to_vec(), ..Flow::new(client, server) };
    let mut down = Flow::new(server, client);
    // An error means that one side is gone; what was moved is what counts.
    let _ = run(&mut up, &mut down, half_open);
    Traffic { sent: up.moved, received: down.moved }
}

fn run(up: &mut Flow<'_>, down: &mut Flow<'_>, half_open: Option<Duration>) -> io::Result<()> {
    up.from.set_nonblocking(true)?;
    down.from.set_nonblocking(true)?;
    let mut buffer = vec![0; BUFFER];
    up.flush()?;
    while !(up.done && down.done) {
        let waits = [up.wants_read() || down.wants_write(), down.wants_read() || up.wants_write()];
        let interest = |reads: bool, writes: bool| {
            let of = |wanted, flag| if wanted { flag } else { PollFlags::empty() };
            of(reads, PollFlags::IN) | of(writes, PollFlags::OUT)
        };
        let mut polled = [
            PollFd::new(up.from, interest(up.wants_read(), down.wants_write())),
            PollFd::new(down.from, interest(down.wants_read(), up.wants_write())),
        ];
        // A side of which nothing is wanted would wake this thread for its end again and again.
        let some: &mut [PollFd<'_>] = match waits {
            [true, true] => &mut polled,
            [true, false] => &mut polled[..1],
            [false, true] => &mut polled[1..],
            [false, false] => return Ok(()),
        };
        let limited = up.done || down.done || up.wants_write() || down.wants_write();
        let limit = half_open.filter(|_| limited).map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 });
        match poll(some, limit.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        up.advance(&mut buffer)?;
        down.advance(&mut buffer)?;
    }
    Ok(())
}

/// One direction.
struct Flow<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    /// What the receiver would not take yet.
    pending: Vec<u8>,
    /// The sender has finished.
    ended: bool,
    /// … and the receiver knows.
    done: bool,
    moved: u64,
}

impl<'a> Flow<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream) -> Self {
        Flow { from, to, pending: Vec::new(), ended: false, done: false, moved: 0 }
    }

    fn wants_read(&self) -> bool {
        !self.ended && self.pending.is_empty()
    }

    fn wants_write(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Moves what can be moved without waiting.
    fn advance(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.flush()?;
        for _ in 0..TURNS {
            if !self.wants_read() {
                break;
            }
            let length = match self.from.read(buffer) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let written = self.write(&buffer[..length])?;
            self.pending.extend_from_slice(&buffer[written..length]);
            if length < buffer.len() {
                break;
            }
        }
        if self.ended && !self.done && self.pending.is_empty() {
            self.done = true;
            let _ = self.to.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.wants_write() {
            let pending = std::mem::take(&mut self.pending);
            let written = self.write(&pending)?;
            self.pending = pending[written..].to_vec();
        }
        Ok(())
    }

    /// As much as the receiver takes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match self.to.write(&bytes[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => written += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.moved += written as u64;
        Ok(written)
    }
}
