//! One stream of a channel: its local end, and what waits for it. At most the window of its kind
//! waits, because the other side may send only what it has credit for.

use std::io;

use rustix::event::PollFlags;

use super::endpoint::{Endpoint, Transfer};
use super::frame::{ChannelFrame, MAX_DATA};
use super::{ProtocolError, StreamKind};

#[derive(Debug)]
pub struct Stream {
    id: u32,
    kind: StreamKind,
    endpoint: Endpoint,
    /// Bytes for the local end, from `written` on.
    waiting: Vec<u8>,
    written: usize,
    /// Bytes that the other side has sent and has no new credit for.
    taken: usize,
    /// Bytes that may be sent to the other side.
    credit: usize,
    /// Whether the local end has not ended.
    reads: bool,
    /// Whether the other side sends no more.
    is_other_over: bool,
    /// Whether the local end knows that.
    is_writing_over: bool,
}

impl Stream {
    pub fn new(id: u32, kind: StreamKind, endpoint: Endpoint) -> Self {
        Stream {
            id,
            kind,
            endpoint,
            waiting: Vec::new(),
            written: 0,
            taken: 0,
            credit: kind.window(),
            reads: true,
            is_other_over: false,
            is_writing_over: false,
        }
    }

    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn wants_to_read(&self) -> bool {
        !self.endpoint.is_connecting() && self.reads && self.credit > 0
    }

    pub fn wants_to_write(&self) -> bool {
        self.endpoint.is_connecting() || !self.waiting.is_empty()
    }

    /// Tells whether both directions have ended.
    pub fn is_over(&self) -> bool {
        !self.reads && self.is_writing_over
    }

    /// Takes bytes of the other side.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        if self.taken + bytes.len() > self.kind.window() || self.is_other_over {
            return Err(ProtocolError);
        }
        self.taken += bytes.len();
        self.waiting.extend_from_slice(bytes);
        Ok(())
    }

    pub fn add_credit(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        self.credit = self.credit.saturating_add(bytes as usize);
        if self.credit > self.kind.window() { Err(ProtocolError) } else { Ok(()) }
    }

    pub fn end_other(&mut self) -> Result<(), ProtocolError> {
        if std::mem::replace(&mut self.is_other_over, true) { Err(ProtocolError) } else { Ok(()) }
    }

    /// Continues after the local end could be written to.
    pub fn write_ready(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.endpoint.is_connecting() {
            self.endpoint.continue_connecting()?;
        }
        self.write(out)
    }

    /// Writes what it can, and gives credit for it.
    pub fn write(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.endpoint.is_connecting() {
            return Ok(());
        }
        while self.written < self.waiting.len() {
            match self.endpoint.write(self.waiting.get(self.written..).unwrap_or_default())? {
                Transfer::Done(count) => self.written += count,
                Transfer::NotReady => return Ok(()),
            }
        }
        self.waiting.clear();
        self.written = 0;
        if self.is_other_over {
            if !std::mem::replace(&mut self.is_writing_over, true) {
                self.endpoint.end_writing();
            }
        } else if self.taken >= self.kind.window() / 2 {
            let bytes = u32::try_from(std::mem::take(&mut self.taken)).unwrap_or_default();
            ChannelFrame::Credit { id: self.id, bytes }.encode(out);
        }
        Ok(())
    }

    /// Reads once from the local end, and passes that on.
    pub fn read(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> io::Result<()> {
        if !self.wants_to_read() {
            return Ok(());
        }
        let most = self.credit.min(MAX_DATA).min(buffer.len());
        match self.endpoint.read(buffer.get_mut(..most).unwrap_or_default())? {
            Transfer::NotReady => {}
            Transfer::Done(0) => {
                self.reads = false;
                ChannelFrame::Eof { id: self.id }.encode(out);
            }
            Transfer::Done(count) => {
                self.credit = self.credit.saturating_sub(count);
                let bytes = buffer.get(..count).unwrap_or_default();
                ChannelFrame::Data { id: self.id, bytes }.encode(out);
            }
        }
        Ok(())
    }

    /// A direction that does not exist ends at once.
    pub fn end_missing_directions(&mut self, out: &mut Vec<u8>) {
        if !self.endpoint.is_connecting() && self.endpoint.reader().is_none() {
            self.reads = false;
            ChannelFrame::Eof { id: self.id }.encode(out);
        }
    }
}

/// The events at which a descriptor has something to read, or has failed.
pub const READABLE: PollFlags = PollFlags::IN.union(PollFlags::HUP).union(PollFlags::ERR);
