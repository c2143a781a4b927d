//! The frames of a channel.

use super::decoder::{FrameError, put};

/// The version of the protocol that this program speaks.
pub const VERSION: u16 = 1;
/// The most bytes of one stream in one frame.
pub const MAX_DATA: usize = 32 * 1024;
/// The most bytes of the argument with which a stream is opened.
pub const MAX_ARGUMENT: usize = 1024;
/// The start of the first frame in each direction, in every version.
const MAGIC: [u8; 8] = *b"sandpen\0";

/// A frame. `id` is the number of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelFrame<'a> {
    /// The first frame of each side. Later versions may add to it.
    Hello {
        version: u16,
    },
    /// Nothing but a sign that the sender is there.
    Beat,
    /// Opens a stream. `kind` is a number of [`StreamKind`](super::StreamKind), or one that a later
    /// version has.
    Open {
        id: u32,
        kind: u8,
        argument: &'a [u8],
    },
    Data {
        id: u32,
        bytes: &'a [u8],
    },
    /// So many bytes more may be sent.
    Credit {
        id: u32,
        bytes: u32,
    },
    /// No more data follows in this direction.
    Eof {
        id: u32,
    },
    /// The stream has failed, was refused, or could not be connected. Both directions end.
    Close {
        id: u32,
        reason: CloseReason,
    },
}

/// Why a stream was closed before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// A connection was reset, or a program closed it.
    Broken,
    /// Nothing answers at the other end.
    NotConnected,
    /// The other side does not permit such a stream, or does not know the kind.
    Refused,
    /// There are too many streams of the kind.
    TooMany,
}

impl CloseReason {
    const ALL: [Self; 4] = [Self::Broken, Self::NotConnected, Self::Refused, Self::TooMany];

    /// Reasons of later versions are plain failures.
    fn from_number(number: u8) -> Self {
        Self::ALL.into_iter().find(|reason| *reason as u8 == number).unwrap_or(Self::Broken)
    }
}

impl<'a> ChannelFrame<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version } => put(out, 0, &[&MAGIC, &version.to_le_bytes()]),
            Self::Beat => put(out, 1, &[]),
            Self::Open { id, kind, argument } => put(out, 2, &[&id.to_le_bytes(), &[*kind], argument]),
            Self::Data { id, bytes } => put(out, 3, &[&id.to_le_bytes(), bytes]),
            Self::Credit { id, bytes } => put(out, 4, &[&id.to_le_bytes(), &bytes.to_le_bytes()]),
            Self::Eof { id } => put(out, 5, &[&id.to_le_bytes()]),
            Self::Close { id, reason } => put(out, 6, &[&id.to_le_bytes(), &[*reason as u8]]),
        }
    }

    pub fn parse(kind: u8, contents: &'a [u8]) -> Result<Self, FrameError> {
        Self::parse_contents(kind, contents).ok_or(FrameError::Malformed(kind))
    }

    fn parse_contents(kind: u8, contents: &'a [u8]) -> Option<Self> {
        match kind {
            0 => {
                let (version, _) = contents.strip_prefix(&MAGIC)?.split_first_chunk()?;
                return Some(Self::Hello { version: u16::from_le_bytes(*version) });
            }
            1 => return contents.is_empty().then_some(Self::Beat),
            _ => {}
        }
        let (id, rest) = contents.split_first_chunk()?;
        let id = u32::from_le_bytes(*id);
        match (kind, rest) {
            (2, [kind, argument @ ..]) if argument.len() <= MAX_ARGUMENT => {
                Some(Self::Open { id, kind: *kind, argument })
            }
            (3, bytes) if bytes.len() <= MAX_DATA => Some(Self::Data { id, bytes }),
            (4, bytes) => Some(Self::Credit { id, bytes: u32::from_le_bytes(bytes.try_into().ok()?) }),
            (5, []) => Some(Self::Eof { id }),
            (6, [reason]) => Some(Self::Close { id, reason: CloseReason::from_number(*reason) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::decoder::Decoder;
    use super::*;

    /// The number of a frame's kind, its numbers and its bytes.
    type Parts = (u8, u32, u32, Vec<u8>);

    fn frame((kind, id, number, bytes): &Parts) -> ChannelFrame<'_> {
        let (id, number) = (*id, *number);
        match kind {
            0 => ChannelFrame::Hello { version: number as u16 },
            1 => ChannelFrame::Beat,
            2 => ChannelFrame::Open { id, kind: number as u8, argument: bytes },
            3 => ChannelFrame::Data { id, bytes },
            4 => ChannelFrame::Credit { id, bytes: number },
            5 => ChannelFrame::Eof { id },
            _ => ChannelFrame::Close { id, reason: CloseReason::from_number(number as u8 % 4) },
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_division(
            frames in vec((0..7_u8, any::<u32>(), any::<u32>(), vec(any::<u8>(), 0..300)), 0..8),
            piece in 1..400_usize,
        ) {
            let mut stream = Vec::new();
            frames.iter().for_each(|parts| frame(parts).encode(&mut stream));
            let mut decoder = Decoder::default();
            let mut expected = frames.iter().map(frame);
            for piece in stream.chunks(piece) {
                decoder.push(piece);
                while let Some((kind, contents)) = decoder.next_frame()? {
                    prop_assert_eq!(Some(ChannelFrame::parse(kind, contents)?), expected.next());
                }
            }
            prop_assert_eq!(expected.next(), None);
        }

        #[test]
        fn no_bytes_cause_a_panic(pieces in vec(vec(any::<u8>(), 0..200), 0..20)) {
            let mut decoder = Decoder::default();
            for piece in pieces {
                decoder.push(&piece);
                while let Ok(Some((kind, contents))) = decoder.next_frame() {
                    let _ = ChannelFrame::parse(kind, contents);
                }
            }
        }
    }

    #[test]
    fn the_format_stays_as_it_is() {
        let encoded = |frame: ChannelFrame| {
            let mut out = Vec::new();
            frame.encode(&mut out);
            out
        };
        assert_eq!(encoded(ChannelFrame::Hello { version: 1 }), b"\x0b\0\0\0\0sandpen\0\x01\0");
        assert_eq!(encoded(ChannelFrame::Open { id: 2, kind: 1, argument: b"ab" }), b"\x08\0\0\0\x02\x02\0\0\0\x01ab");
        assert_eq!(encoded(ChannelFrame::Data { id: 2, bytes: b"ab" }), b"\x07\0\0\0\x03\x02\0\0\0ab");
    }

    #[test]
    fn a_hello_of_a_later_version_is_understood() {
        let hello = ChannelFrame::Hello { version: 9 };
        assert_eq!(ChannelFrame::parse(0, b"sandpen\0\x09\0 and more"), Ok(hello));
        assert!(ChannelFrame::parse(0, b"Welcome to Debian").is_err());
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut contents = vec![0; 4 + MAX_DATA + 1];
        assert!(ChannelFrame::parse(3, &contents).is_err());
        assert!(ChannelFrame::parse(2, &contents).is_err());
        contents.pop();
        assert!(ChannelFrame::parse(3, &contents).is_ok());
    }
}
