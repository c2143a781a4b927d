//! Finds the end of a message's body, and writes it with an end of its own.

use super::head::MalformedMessage;

/// The length limit of a chunk's header or a trailer, in bytes.
const MAX_LINE: usize = 4096;
/// The length limit of all trailers.
const MAX_TRAILERS: usize = 16 * 1024;

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    Length(u64),
    Chunked,
    /// At the end of the connection.
    Close,
}

/// Reads one body.
#[derive(Debug)]
pub struct BodyReader {
    state: ReadState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Plain { left: u64 },
    UntilClose,
    ChunkHeader,
    Chunk { left: u64 },
    ChunkEnd,
    Trailers { seen: usize },
    Done,
}

impl BodyReader {
    pub fn new(end: BodyEnd) -> Self {
        let state = match end {
            BodyEnd::Length(0) => ReadState::Done,
            BodyEnd::Length(left) => ReadState::Plain { left },
            BodyEnd::Chunked => ReadState::ChunkHeader,
            BodyEnd::Close => ReadState::UntilClose,
        };
        BodyReader { state }
    }

    pub fn is_done(&self) -> bool {
        self.state == ReadState::Done
    }

    /// Takes the connection's end as the body's. Fails if the body is not complete.
    pub fn close(&mut self) -> Result<(), MalformedMessage> {
        match self.state {
            ReadState::UntilClose | ReadState::Done => {
                self.state = ReadState::Done;
                Ok(())
            }
            _ => Err(MalformedMessage("the connection ended within a body")),
        }
    }

    /// Moves the data of the body from the front of `input` to `data`, and leaves what follows it.
    pub fn read(&mut self, input: &mut Vec<u8>, data: &mut Vec<u8>) -> Result<(), MalformedMessage> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            self.state = match self.state {
                ReadState::Done => break,
                ReadState::UntilClose => {
                    data.extend_from_slice(rest);
                    at = input.len();
                    break;
                }
                ReadState::Plain { left } | ReadState::Chunk { left } => {
                    let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    data.extend_from_slice(&rest[..taken]);
                    at += taken;
                    let left = left - taken as u64;
                    match (self.state, left) {
                        (ReadState::Plain { .. }, 0) => ReadState::Done,
                        (_, 0) => ReadState::ChunkEnd,
                        (ReadState::Plain { .. }, left) => {
                            self.state = ReadState::Plain { left };
                            break;
                        }
                        (_, left) => {
                            self.state = ReadState::Chunk { left };
                            break;
                        }
                    }
                }
                state => {
                    let Some(line) = line(rest)? else { break };
                    at += line.len() + 2;
                    match state {
                        ReadState::ChunkHeader => match size(line)? {
                            0 => ReadState::Trailers { seen: 0 },
                            left => ReadState::Chunk { left },
                        },
                        ReadState::ChunkEnd if line.is_empty() => ReadState::ChunkHeader,
                        ReadState::ChunkEnd => return Err(MalformedMessage("a chunk has a wrong length")),
                        _ if line.is_empty() => ReadState::Done,
                        ReadState::Trailers { seen } if seen + line.len() <= MAX_TRAILERS => {
                            ReadState::Trailers { seen: seen + line.len() + 2 }
                        }
                        _ => return Err(MalformedMessage("the trailers are too long")),
                    }
                }
            };
        }
        input.drain(..at);
        Ok(())
    }
}

/// Returns a line without its end; `None` if the end is missing.
fn line(input: &[u8]) -> Result<Option<&[u8]>, MalformedMessage> {
    match input.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(end) => match input[..end].strip_suffix(b"\r") {
            Some(line) if !line.contains(&b'\r') => Ok(Some(line)),
            _ => Err(MalformedMessage("a line of a body does not end with CR LF")),
        },
        None if input.len() < MAX_LINE => Ok(None),
        None => Err(MalformedMessage("a line of a body is too long")),
    }
}

fn size(line: &[u8]) -> Result<u64, MalformedMessage> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_number = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
    text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(MalformedMessage("a chunk has no length"))
}

/// Writes data as a body that is chunked or not.
pub fn write(is_chunked: bool, data: &[u8], out: &mut Vec<u8>) {
    match (is_chunked, data.len()) {
        (_, 0) => {}
        (true, length) => {
            out.extend_from_slice(format!("{length:x}\r\n").as_bytes());
            out.extend_from_slice(data);
            out.extend_from_slice(b"\r\n");
        }
        (false, _) => out.extend_from_slice(data),
    }
}

pub fn write_end(is_chunked: bool, out: &mut Vec<u8>) {
    if is_chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(end: BodyEnd, parts: &[&[u8]]) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        let (mut reader, mut input, mut data) = (BodyReader::new(end), Vec::new(), Vec::new());
        for part in parts {
            input.extend_from_slice(part);
            reader.read(&mut input, &mut data).ok()?;
        }
        Some((data, input, reader.is_done()))
    }

    #[test]
    fn a_body_ends_where_it_says() {
        assert_eq!(read(BodyEnd::Length(3), &[b"abcGET"]), Some((b"abc".to_vec(), b"GET".to_vec(), true)));
        assert_eq!(read(BodyEnd::Close, &[b"abc"]), Some((b"abc".to_vec(), Vec::new(), false)));
        let chunks = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: z\r\n\r\nGET";
        let expected = Some((b"abc0123456789".to_vec(), b"GET".to_vec(), true));
        assert_eq!(read(BodyEnd::Chunked, &[chunks]), expected);
        let bytes: Vec<&[u8]> = chunks.chunks(1).collect();
        assert_eq!(read(BodyEnd::Chunked, &bytes), expected);
        for text in
            ["-3\r\nabc\r\n", "3\nabc", "3\r\nabcd\r\n", "ffffffffffffffff\r\n", " 3\r\n", ";\r\n", "0x3\r\nabc"]
        {
            assert_eq!(read(BodyEnd::Chunked, &[text.as_bytes()]), None, "{text:?}");
        }
    }

    #[test]
    fn a_truncated_body_is_an_error() {
        for (end, is_complete) in [(BodyEnd::Length(3), false), (BodyEnd::Chunked, false), (BodyEnd::Close, true)] {
            assert_eq!(BodyReader::new(end).close().is_ok(), is_complete, "{end:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..10)) {
            let mut out = Vec::new();
            parts.iter().for_each(|part| write(true, part, &mut out));
            write_end(true, &mut out);
            prop_assert_eq!(read(BodyEnd::Chunked, &[&out]), Some((parts.concat(), Vec::new(), true)));
        }
    }
}
