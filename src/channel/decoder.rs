//! Divides a stream of bytes into frames. A frame is its length (4 bytes, little endian, of the rest),
//! its kind (1 byte) and its contents.

/// The most contents of one frame, in bytes.
pub const MAX_CONTENTS: usize = 64 * 1024;
const HEADER: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("a frame of kind {0} is malformed or unknown")]
    Malformed(u8),
}

/// Holds no more than one frame and what was pushed last.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// The start of `buffer` that has been returned as frames.
    used: usize,
}

impl Decoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the kind and the contents of the next whole frame. After an error the stream cannot be
    /// read any further.
    pub fn next_frame(&mut self) -> Result<Option<(u8, &[u8])>, FrameError> {
        let Some((length, rest)) = self.buffer.get(self.used..).and_then(|rest| rest.split_first_chunk()) else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            return Err(FrameError::Malformed(0));
        }
        if length > MAX_CONTENTS + 1 {
            return Err(FrameError::TooLong(length));
        }
        let Some((kind, contents)) = rest.get(..length).and_then(<[u8]>::split_first) else { return Ok(None) };
        self.used += HEADER + length;
        Ok(Some((*kind, contents)))
    }

    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.buffer.len()
    }
}

/// Appends a frame with these contents. Contents beyond [`MAX_CONTENTS`] are cut off.
pub fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum::<usize>().min(MAX_CONTENTS);
    out.extend_from_slice(&u32::try_from(length + 1).unwrap_or_default().to_le_bytes());
    out.push(kind);
    let end = out.len() + length;
    for part in parts {
        let room = end.saturating_sub(out.len());
        out.extend_from_slice(part.get(..room).unwrap_or(part));
    }
}
