//! The launcher's side of one connection of `sandpen attach`. It decides what is dropped for a client
//! that reads too slowly, so that the guest never waits for one.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::frame::{ClientFrame, Decoder, Frame, LauncherFrame, MAX_CONTENTS};

/// The most output that waits for one client, in bytes.
const MAX_QUEUED: usize = 1024 * 1024;
/// The bytes that a queued frame takes beside its contents, so that many small ones are counted too.
const FRAME_COST: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Connected, without a hello so far.
    New,
    Writer,
    Watcher,
    /// Gets what is queued, and is closed then.
    Leaving,
}

pub struct Connection {
    stream: UnixStream,
    decoder: Decoder<ClientFrame>,
    pub role: Role,
    /// Encoded frames.
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    /// How much of the first frame was sent.
    sent: usize,
    /// Output was dropped, or the size changed: a redraw follows when the queue is empty.
    pub needs_redraw: bool,
    pub is_broken: bool,
}

impl Connection {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            decoder: Decoder::default(),
            role: Role::New,
            queue: VecDeque::new(),
            queued: 0,
            sent: 0,
            needs_redraw: false,
            is_broken: false,
        })
    }

    pub fn is_attached(&self) -> bool {
        matches!(self.role, Role::Writer | Role::Watcher)
    }

    /// Returns whether the connection can be closed.
    pub fn is_over(&self) -> bool {
        self.is_broken || self.role == Role::Leaving && self.queue.is_empty()
    }

    pub fn is_flushed(&self) -> bool {
        self.is_broken || self.queue.is_empty()
    }

    /// Returns the events to wait for.
    pub fn interest(&self, takes_input: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.role != Role::Leaving && (takes_input || self.role != Role::Writer));
        flags.set(PollFlags::OUT, !self.queue.is_empty());
        flags
    }

    pub fn send(&mut self, frame: &LauncherFrame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.queued += bytes.len() + FRAME_COST;
        self.queue.push_back(bytes);
    }

    /// Queues output, unless a redraw will show its effect. Where too much is queued, all of it is
    /// dropped for a redraw.
    pub fn send_output(&mut self, output: &[u8]) {
        if !self.is_attached() || self.needs_redraw {
            return;
        }
        if self.queued + output.len() > MAX_QUEUED {
            // A frame that was sent in part must be completed.
            self.queue.truncate(usize::from(self.sent > 0));
            self.queued = self.queue.iter().map(|frame| frame.len() + FRAME_COST).sum();
            self.needs_redraw = true;
            return;
        }
        self.send_all(output);
    }

    /// Queues the redraw that is due, once the client has got everything before.
    pub fn send_redraw(&mut self, redraw: impl FnOnce() -> Vec<u8>) {
        if self.needs_redraw && self.is_attached() && self.queue.is_empty() {
            self.needs_redraw = false;
            self.send_all(&redraw());
        }
    }

    fn send_all(&mut self, output: &[u8]) {
        for part in output.chunks(MAX_CONTENTS) {
            self.send(&LauncherFrame::Output(part.to_vec()));
        }
    }

    /// Queues a last frame, after which the connection is closed.
    pub fn close_with(&mut self, frame: &LauncherFrame) {
        self.send(frame);
        self.role = Role::Leaving;
    }

    /// Queues the last output, in place of which a redraw may be due, and the exit code.
    pub fn finish(&mut self, redraw: impl FnOnce() -> Vec<u8>, exit_code: i32) {
        if !self.is_attached() {
            return;
        }
        if self.needs_redraw {
            self.send_all(&redraw());
        }
        self.close_with(&LauncherFrame::Ended { exit_code });
    }

    /// Sends what the client takes now.
    pub fn flush(&mut self) {
        while let Some(frame) = self.queue.front() {
            match self.stream.write(frame.get(self.sent..).unwrap_or_default()) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.is_broken = true;
                    return;
                }
            }
            if self.sent >= frame.len() {
                self.queued = self.queued.saturating_sub(frame.len() + FRAME_COST);
                self.sent = 0;
                self.queue.pop_front();
            }
        }
    }

    /// Receives the frames that have arrived. A client that sends anything else is disconnected.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Vec<ClientFrame> {
        let mut frames = Vec::new();
        match self.stream.read(buffer) {
            Ok(0) => self.is_broken = true,
            Ok(length) => self.decoder.push(buffer.get(..length).unwrap_or_default()),
            Err(error) => {
                self.is_broken = !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        }
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return frames,
                Err(_) => {
                    self.is_broken = true;
                    return frames;
                }
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Returns whether the peer of a connection is a process of the same user.
#[cfg(target_os = "linux")]
pub fn is_same_user(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Returns whether the peer of a connection is a process of the same user.
#[cfg(not(target_os = "linux"))]
pub fn is_same_user(stream: &UnixStream) -> bool {
    use std::os::fd::AsRawFd;

    let (mut uid, mut gid) = (0, 0);
    // SAFETY: the descriptor is open, and both pointers are to variables that outlive the call.
    let result = unsafe { libc::getpeereid(stream.as_raw_fd(), &raw mut uid, &raw mut gid) };
    result == 0 && uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives everything that can be received without blocking.
    fn received(stream: &mut UnixStream, decoder: &mut Decoder<LauncherFrame>) -> Vec<LauncherFrame> {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            decoder.push(&buffer[..length]);
        }
        std::iter::from_fn(|| decoder.next_frame().expect("whole frames")).collect()
    }

    #[test]
    fn a_queue_that_is_too_long_is_replaced_by_a_redraw() {
        let (stream, mut client) = UnixStream::pair().expect("a pair");
        client.set_nonblocking(true).expect("nonblocking");
        let mut connection = Connection::new(stream).expect("a connection");
        connection.role = Role::Watcher;
        for _ in 0..100 {
            connection.send_output(&[b'x'; 50_000]);
            connection.flush();
            assert!(connection.queued <= MAX_QUEUED + FRAME_COST + 5, "{} bytes wait", connection.queued);
        }
        assert!(connection.needs_redraw);
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        while !connection.queue.is_empty() {
            connection.send_redraw(|| b"too early".to_vec());
            frames.extend(received(&mut client, &mut decoder));
            connection.flush();
        }
        connection.send_redraw(|| b"redraw".to_vec());
        connection.send_output(b"later");
        connection.flush();
        frames.extend(received(&mut client, &mut decoder));
        assert!(frames.len() < 30, "{} frames", frames.len());
        let output = |text: &[u8]| LauncherFrame::Output(text.to_vec());
        assert_eq!(frames[frames.len() - 2..], [output(b"redraw"), output(b"later")]);
        assert!(frames[..frames.len() - 2].iter().all(|frame| *frame == output(&[b'x'; 50_000])));
    }
}
