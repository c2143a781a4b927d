//! Copies bytes both ways between two sockets in one thread, with bounded memory.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The size of one read. A connection has one buffer, and one more for each direction whose
/// receiver is slow.
const BUFFER: usize = 32 * 1024;
/// How long no byte may move once one side has closed its direction or does not read.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How many reads one direction may do before the other gets its turn.
const READS_PER_TURN: usize = 16;

/// The number of bytes that were copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the guest.
    pub sent: u64,
    /// To the guest.
    pub received: u64,
}

/// Copies until both sides have closed their direction, or a connection fails. `read_ahead` has
/// already been read from the client. `stall_timeout` limits how long no byte may move once one
/// side has closed its direction or does not read.
pub fn both_ways(
    client: &TcpStream,
    server: &TcpStream,
    read_ahead: &[u8],
    stall_timeout: Option<Duration>,
) -> Traffic {
    let mut up = Flow { pending: read_ahead.to_vec(), ..Flow::new(client, server) };
    let mut down = Flow::new(server, client);
    // An error means that one side is gone; the count stays right.
    let _ = run(&mut up, &mut down, stall_timeout);
    Traffic { sent: up.moved, received: down.moved }
}

fn run(up: &mut Flow<'_>, down: &mut Flow<'_>, stall_timeout: Option<Duration>) -> io::Result<()> {
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
        // Polling a socket without interest would return at once when it is closed, again and
        // again.
        let some: &mut [PollFd<'_>] = match waits {
            [true, true] => &mut polled,
            [true, false] => &mut polled[..1],
            [false, true] => &mut polled[1..],
            [false, false] => return Ok(()),
        };
        let limited = up.done || down.done || up.wants_write() || down.wants_write();
        let limit =
            stall_timeout.filter(|_| limited).map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 });
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

/// One direction of a connection.
struct Flow<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    /// Bytes that the receiver has not accepted yet.
    pending: Vec<u8>,
    /// The sender has closed its direction.
    ended: bool,
    /// The write direction of the receiver has been closed, too.
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

    /// Copies as much as possible without blocking.
    fn advance(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.flush()?;
        for _ in 0..READS_PER_TURN {
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

    /// Writes as much as the receiver accepts.
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
