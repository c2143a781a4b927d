//! Reads and writes the binary encoding of SSH: numbers and strings with their lengths (RFC 4251), and
//! messages of the agent protocol. Every length comes from inside the sandbox, so all are checked.

use std::io::{self, Read, Write};

/// The longest message that OpenSSH's agent accepts, too.
pub const MAX_MESSAGE: usize = 256 << 10;

/// The rest of a value that is being parsed.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    pub fn long_number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }

    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    /// Reads a string that must be UTF-8.
    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.string()?).ok()
    }

    /// Returns `Some` if nothing is left.
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends a string with its length.
pub fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    bytes.extend(u32::try_from(string.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(string);
}

/// Reads a message; `None` at the end of the stream. A length beyond the limit is an error, and so is
/// half a message.
pub fn read_message(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if stream.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[1..])?;
    let length = u32::from_be_bytes(length) as usize;
    if length == 0 || length > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of the SSH agent has a wrong length"));
    }
    // The buffer grows with what arrives: a length alone costs no memory.
    let mut message = Vec::new();
    let received = stream.take(length as u64).read_to_end(&mut message)?;
    if received < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(message))
}

pub fn write_message(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let mut framed = Vec::with_capacity(message.len() + 4);
    put_string(&mut framed, message);
    stream.write_all(&framed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_read() {
        let mut stream: &[u8] = &[0xff, 0xff, 0xff, 0xff, 11];
        assert!(read_message(&mut stream).is_err());
        assert_eq!(stream, &[11]);
        assert!(read_message(&mut &[0, 0, 0, 0][..]).is_err());
        assert!(read_message(&mut &[0, 0, 0, 2, 11][..]).is_err());
        assert!(matches!(read_message(&mut &[][..]), Ok(None)));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(message in prop::collection::vec(any::<u8>(), 1..2000)) {
            let mut bytes = Vec::new();
            write_message(&mut bytes, &message)?;
            prop_assert_eq!(read_message(&mut &bytes[..])?, Some(message));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut reader = Reader(&bytes);
            let _ = (reader.string(), reader.number(), reader.text(), reader.byte());
            prop_assert!(reader.0.len() <= bytes.len());
        }
    }
}
