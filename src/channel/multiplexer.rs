//! Many streams over one pair of byte streams: waits for all descriptors, and passes bytes on. Used by
//! both sides. All bytes from the other side are untrusted.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::decoder::Decoder;
use super::endpoint::{Endpoint, set_nonblocking};
use super::frame::{ChannelFrame, CloseReason, MAX_ARGUMENT, VERSION};
use super::stream::{READABLE, Stream};
use super::{ChannelError, ProtocolError, Side, StreamKind};

/// A side that has nothing to send says so this often.
const BEAT_INTERVAL: Duration = Duration::from_secs(10);
/// A side of which nothing is received for so long is taken for gone.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// No local end is read while so many bytes wait for the other side.
const MAX_WAITING: usize = 256 * 1024;
/// Far more than what waits if the other side reads.
const MAX_UNREAD: usize = 4 * 1024 * 1024;

/// Decides where a stream that the other side opens leads to. It has the argument of the other side.
pub type Accept<'a> = &'a mut dyn FnMut(StreamKind, &[u8]) -> Result<Endpoint, CloseReason>;

pub struct Channel {
    input: OwnedFd,
    output: OwnedFd,
    decoder: Decoder,
    buffer: Vec<u8>,
    is_greeted: bool,
    received_at: Instant,
    sent_at: Instant,
    silence_limit: Duration,
    streams: Streams,
}

/// The streams, and the frames that wait for the other side.
struct Streams {
    side: Side,
    by_id: BTreeMap<u32, Stream>,
    next_id: u32,
    /// Encoded frames, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
}

/// What has happened.
#[derive(Debug, Default)]
pub struct Step {
    /// The other side has closed the channel.
    pub is_over: bool,
    /// The numbers of watched descriptors that are ready.
    pub ready: Vec<usize>,
}

impl Channel {
    /// Makes one side of a channel. The descriptors become non-blocking.
    pub fn new(side: Side, input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&input)?;
        set_nonblocking(&output)?;
        let mut streams =
            Streams { side, by_id: BTreeMap::new(), next_id: side.first_id(), outgoing: Vec::new(), sent: 0 };
        streams.send(&ChannelFrame::Hello { version: VERSION });
        Ok(Channel {
            input,
            output,
            decoder: Decoder::default(),
            buffer: vec![0; 64 * 1024],
            is_greeted: false,
            received_at: Instant::now(),
            sent_at: Instant::now(),
            silence_limit: SILENCE_LIMIT,
            streams,
        })
    }

    /// Changes how long the other side may be silent.
    pub fn with_silence_limit(self, silence_limit: Duration) -> Self {
        Channel { silence_limit, ..self }
    }

    /// Tells whether another stream of the kind can be opened now.
    pub fn has_room(&self, kind: StreamKind) -> bool {
        self.streams.has_room(kind) && self.streams.waiting() < MAX_WAITING
    }

    /// Tells whether the other side has answered, with the same version.
    pub fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Opens a stream and relays the local end to it.
    pub fn open(&mut self, kind: StreamKind, argument: &[u8], endpoint: Endpoint) -> Result<(), CloseReason> {
        self.streams.open(kind, argument, endpoint)
    }

    /// Waits for something to happen, and passes bytes on.
    pub fn step(&mut self, watched: &[BorrowedFd<'_>], accept: Accept<'_>) -> Result<Step, ChannelError> {
        let Ready { input, ready, streams } = self.wait(watched)?;
        if input {
            if !self.receive(accept)? {
                return Ok(Step { is_over: true, ready });
            }
        } else if self.received_at.elapsed() >= self.silence_limit {
            return Err(ChannelError::Silent(self.silence_limit));
        }
        for (id, is_readable) in streams {
            self.streams.relay(id, is_readable, &mut self.buffer);
        }
        if self.streams.waiting() == 0 && self.sent_at.elapsed() >= BEAT_INTERVAL {
            self.streams.send(&ChannelFrame::Beat);
        }
        self.flush()?;
        if self.streams.waiting() > MAX_UNREAD {
            return Err(ChannelError::Unread);
        }
        Ok(Step { is_over: false, ready })
    }

    fn wait(&self, watched: &[BorrowedFd<'_>]) -> io::Result<Ready> {
        let may_read = self.streams.waiting() < MAX_WAITING;
        let output = if self.streams.waiting() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.input, PollFlags::IN), PollFd::new(&self.output, output)];
        fds.extend(watched.iter().map(|file| PollFd::new(file, PollFlags::IN)));
        // The stream of each further descriptor, and whether it is waited for to be read.
        let mut owners = Vec::new();
        for (id, stream) in &self.streams.by_id {
            let reader = stream.endpoint().reader().filter(|_| may_read && stream.wants_to_read());
            let writer = stream.endpoint().writer().filter(|_| stream.wants_to_write());
            for (file, flags) in [(reader, PollFlags::IN), (writer, PollFlags::OUT)] {
                let Some(file) = file else { continue };
                fds.push(PollFd::from_borrowed_fd(file, flags));
                owners.push((*id, flags == PollFlags::IN));
            }
        }
        match poll(&mut fds, Timespec::try_from(self.timeout()).ok().as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(errno) => return Err(errno.into()),
        }
        let mut happened = fds.iter().map(PollFd::revents);
        let input = happened.next().is_some_and(|events| events.intersects(READABLE));
        // A broken output shows as the end of the input.
        let output = happened.next().is_some_and(|events| events.contains(PollFlags::ERR));
        let ready = (0..watched.len()).filter(|_| happened.next().is_some_and(|events| !events.is_empty()));
        let ready = ready.collect();
        let streams = owners.into_iter().zip(happened).filter(|(_, events)| !events.is_empty());
        Ok(Ready { input: input || output, ready, streams: streams.map(|(owner, _)| owner).collect() })
    }

    /// Returns the time until the next beat, or until the other side has been silent for too long.
    fn timeout(&self) -> Duration {
        let beat = BEAT_INTERVAL.saturating_sub(self.sent_at.elapsed());
        let silence = self.silence_limit.saturating_sub(self.received_at.elapsed());
        // While frames wait, the output is ready before a beat is due.
        if self.streams.waiting() > 0 { silence } else { beat.min(silence) }
    }

    /// Reads frames; returns `false` at the end of the stream.
    fn receive(&mut self, accept: Accept<'_>) -> Result<bool, ChannelError> {
        match rustix::io::read(&self.input, self.buffer.as_mut_slice()) {
            Ok(0) => return Ok(false),
            Ok(count) => self.decoder.push(self.buffer.get(..count).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(_) => return Ok(false),
        }
        self.received_at = Instant::now();
        loop {
            // Whatever else than a channel's other side answers, such as a shell, does not begin with a frame.
            let is_greeted = self.is_greeted;
            let no_frame = |error| if is_greeted { ChannelError::Frame(error) } else { ChannelError::NoGreeting };
            let Some((kind, contents)) = self.decoder.next_frame().map_err(no_frame)? else { return Ok(true) };
            match ChannelFrame::parse(kind, contents) {
                Ok(ChannelFrame::Hello { version }) if !self.is_greeted => {
                    self.is_greeted = true;
                    if version != VERSION {
                        return Err(ChannelError::Version { theirs: version });
                    }
                }
                Ok(frame) if self.is_greeted => self.streams.handle(frame, accept)?,
                Ok(_) => return Err(ChannelError::NoGreeting),
                Err(error) => return Err(no_frame(error)),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Streams { outgoing, sent, .. } = &mut self.streams;
        while *sent < outgoing.len() {
            match rustix::io::write(self.output.as_fd(), outgoing.get(*sent..).unwrap_or_default()) {
                Ok(count) => {
                    *sent += count;
                    self.sent_at = Instant::now();
                }
                Err(Errno::AGAIN) => {
                    // What was sent is dropped from time to time, so that the buffer does not grow.
                    if *sent >= MAX_WAITING {
                        outgoing.drain(..*sent);
                        *sent = 0;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                // The other side is gone, which shows when the input is read.
                Err(Errno::PIPE | Errno::CONNRESET) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        outgoing.clear();
        *sent = 0;
        Ok(())
    }
}

#[derive(Default)]
struct Ready {
    input: bool,
    ready: Vec<usize>,
    /// Streams, and whether they are to be read.
    streams: Vec<(u32, bool)>,
}

impl Streams {
    fn waiting(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    fn send(&mut self, frame: &ChannelFrame<'_>) {
        frame.encode(&mut self.outgoing);
    }

    fn has_room(&self, kind: StreamKind) -> bool {
        self.by_id.values().filter(|stream| stream.kind() == kind).count() < kind.limit()
    }

    fn open(&mut self, kind: StreamKind, argument: &[u8], endpoint: Endpoint) -> Result<(), CloseReason> {
        if kind.opener() != self.side || argument.len() > MAX_ARGUMENT {
            return Err(CloseReason::Refused);
        }
        if !self.has_room(kind) {
            return Err(CloseReason::TooMany);
        }
        while self.by_id.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(2);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(2);
        self.send(&ChannelFrame::Open { id, kind: kind as u8, argument });
        self.add(id, kind, endpoint);
        Ok(())
    }

    fn add(&mut self, id: u32, kind: StreamKind, endpoint: Endpoint) {
        let mut stream = Stream::new(id, kind, endpoint);
        stream.end_missing_directions(&mut self.outgoing);
        self.by_id.insert(id, stream);
    }

    /// Frames of a stream that has ended here are ignored: the other side did not know it.
    fn handle(&mut self, frame: ChannelFrame<'_>, accept: Accept<'_>) -> Result<(), ProtocolError> {
        match frame {
            ChannelFrame::Hello { .. } => return Err(ProtocolError),
            ChannelFrame::Beat => {}
            ChannelFrame::Open { id, kind, argument } => self.accept(id, kind, argument, accept)?,
            ChannelFrame::Close { id, .. } => drop(self.by_id.remove(&id)),
            ChannelFrame::Data { id, bytes } => self.with(id, |stream| stream.receive(bytes))?,
            ChannelFrame::Credit { id, bytes } => self.with(id, |stream| stream.add_credit(bytes))?,
            ChannelFrame::Eof { id } => self.with(id, Stream::end_other)?,
        }
        Ok(())
    }

    fn accept(&mut self, id: u32, kind: u8, argument: &[u8], accept: Accept<'_>) -> Result<(), ProtocolError> {
        if id % 2 == self.side.first_id() || self.by_id.contains_key(&id) {
            return Err(ProtocolError);
        }
        let accepted = match StreamKind::from_number(kind) {
            None => Err(CloseReason::Refused),
            Some(kind) if kind.opener() == self.side => return Err(ProtocolError),
            Some(kind) if !self.has_room(kind) => Err(CloseReason::TooMany),
            Some(kind) => accept(kind, argument).map(|endpoint| (kind, endpoint)),
        };
        match accepted {
            Ok((kind, endpoint)) => self.add(id, kind, endpoint),
            Err(reason) => self.send(&ChannelFrame::Close { id, reason }),
        }
        Ok(())
    }

    /// Changes a stream, and writes what it then can.
    fn with(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut Stream) -> Result<(), ProtocolError>,
    ) -> Result<(), ProtocolError> {
        let Some(stream) = self.by_id.get_mut(&id) else { return Ok(()) };
        change(stream)?;
        let written = stream.write(&mut self.outgoing);
        self.settle(id, written);
        Ok(())
    }

    fn relay(&mut self, id: u32, is_readable: bool, buffer: &mut [u8]) {
        let Some(stream) = self.by_id.get_mut(&id) else { return };
        let relayed = match is_readable {
            true => stream.read(buffer, &mut self.outgoing),
            false => stream.write_ready(&mut self.outgoing),
        };
        self.settle(id, relayed);
    }

    /// Removes a stream that has ended or failed.
    fn settle(&mut self, id: u32, relayed: io::Result<()>) {
        if let Err(error) = &relayed {
            let reason = match error.kind() {
                io::ErrorKind::ConnectionRefused => CloseReason::NotConnected,
                _ => CloseReason::Broken,
            };
            self.send(&ChannelFrame::Close { id, reason });
        }
        if relayed.is_err() || self.by_id.get(&id).is_some_and(Stream::is_over) {
            self.by_id.remove(&id);
        }
    }
}
