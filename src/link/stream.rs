//! Reads and writes frames. A writer is shared by the threads of its end.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::frame::{Decoder, LinkFrame};

const BUFFER: usize = 64 * 1024;

/// Sends frames.
#[derive(Clone)]
pub struct LinkWriter(Arc<Mutex<Box<dyn Write + Send>>>);

impl LinkWriter {
    pub fn new(stream: impl Write + Send + 'static) -> Self {
        LinkWriter(Arc::new(Mutex::new(Box::new(stream))))
    }

    /// Sends a frame; waits until the stream has taken it.
    pub fn send(&self, frame: &LinkFrame) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&bytes)?;
        stream.flush()
    }
}

/// Receives frames.
pub struct LinkReader<R> {
    stream: R,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl<R: Read> LinkReader<R> {
    pub fn new(stream: R) -> Self {
        LinkReader { stream, decoder: Decoder::default(), buffer: vec![0; BUFFER] }
    }

    /// Waits for the next frame; `None` at the end of the stream.
    pub fn next(&mut self) -> io::Result<Option<LinkFrame>> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.decoder.push(self.buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
