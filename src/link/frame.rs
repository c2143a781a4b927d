//! The frames of the link. A frame is its length (4 bytes, little endian, of the rest), its kind
//! (1 byte) and its contents.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The most contents of one frame: a variable or an argument may have 128 KiB.
pub const MAX_CONTENTS: usize = 256 * 1024;

/// A stream of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

impl Stream {
    const ALL: [Stream; 3] = [Stream::Stdin, Stream::Stdout, Stream::Stderr];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A file, directory or symbolic link that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: PathBuf,
    pub kind: EntryKind,
    /// The permission bits.
    pub mode: u32,
    /// The time of the last change: seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    /// Its bytes follow in frames with [`LinkFrame::Content`].
    File {
        size: u64,
    },
    Link {
        to: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkFrame {
    /// The other end can be spoken to. It comes first.
    Ready {
        version: u16,
    },
    /// The other end is there.
    Ping,
    /// A file, directory or link; a path of the sandbox.
    Entry(Entry),
    /// Bytes of the file that came last.
    Content(Vec<u8>),
    /// All entries were sent.
    EntriesEnd,
    /// All entries were taken.
    Received,
    /// A path that the sandbox had at its start does not exist any more.
    Removed(PathBuf),
    /// Asks for everything that has changed since the start, or since what was received last.
    Collect,
    /// What was asked for is not possible.
    Failed(String),
    /// An argument of the command that is started next.
    Argument(OsString),
    /// A variable of that command, as `NAME=VALUE`.
    Variable(OsString),
    /// Starts the command, with a description in JSON.
    Start(String),
    Input(Vec<u8>),
    InputEnd,
    Resize {
        rows: u16,
        columns: u16,
    },
    Signal(i32),
    Output {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// So many bytes more of a stream may be sent.
    Credit {
        stream: Stream,
        bytes: u32,
    },
    /// The text of a `CommandStatus`. All output came before one that tells of the end.
    Status(String),
    /// The first process of the sandbox has gone without a status.
    GuestLost,
    /// A `WatchRequest` in JSON, before the end of the entries.
    Watch(String),
    /// A file that has changed cannot be sent, and why.
    Unreadable(String),
    /// The launcher needs the sandbox no more.
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("a frame of kind {0} is malformed or unknown")]
    Malformed(u8),
}

impl LinkFrame {
    /// Tells whether the keeper passes it on to the guest.
    #[cfg(target_os = "linux")]
    pub fn is_for_guest(&self) -> bool {
        matches!(
            self,
            Self::Argument(_)
                | Self::Variable(_)
                | Self::Start(_)
                | Self::Input(_)
                | Self::InputEnd
                | Self::Resize { .. }
                | Self::Signal(_)
                | Self::Credit { .. }
        )
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let path = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let (kind, contents) = match self {
            Self::Ready { version } => (0, version.to_le_bytes().to_vec()),
            Self::Ping => (1, Vec::new()),
            Self::Entry(entry) => (2, entry.encode()),
            Self::Content(bytes) => (3, bytes.clone()),
            Self::EntriesEnd => (4, Vec::new()),
            Self::Received => (5, Vec::new()),
            Self::Removed(removed) => (6, path(removed)),
            Self::Collect => (7, Vec::new()),
            Self::Failed(text) => (8, text.clone().into_bytes()),
            Self::Argument(word) => (9, word.as_bytes().to_vec()),
            Self::Variable(pair) => (10, pair.as_bytes().to_vec()),
            Self::Start(json) => (11, json.clone().into_bytes()),
            Self::Input(bytes) => (12, bytes.clone()),
            Self::InputEnd => (13, Vec::new()),
            Self::Resize { rows, columns } => (14, [rows.to_le_bytes(), columns.to_le_bytes()].concat()),
            Self::Signal(number) => (15, number.to_le_bytes().to_vec()),
            Self::Output { stream, bytes } => (16, [&[*stream as u8], bytes.as_slice()].concat()),
            Self::Credit { stream, bytes } => (17, [&[*stream as u8][..], &bytes.to_le_bytes()].concat()),
            Self::Status(text) => (18, text.clone().into_bytes()),
            Self::GuestLost => (19, Vec::new()),
            Self::Watch(json) => (20, json.clone().into_bytes()),
            Self::Unreadable(text) => (21, text.clone().into_bytes()),
            Self::Leave => (22, Vec::new()),
        };
        // Callers keep within the limit; the other end refuses more.
        let length = u32::try_from(contents.len() + 1).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&contents);
    }

    fn parse(kind: u8, contents: &[u8]) -> Option<Self> {
        let text = || String::from_utf8(contents.to_vec()).ok();
        let word = || OsString::from_vec(contents.to_vec());
        let nothing = |frame| contents.is_empty().then_some(frame);
        Some(match kind {
            0 => Self::Ready { version: u16::from_le_bytes(contents.try_into().ok()?) },
            1 => return nothing(Self::Ping),
            2 => Self::Entry(Entry::parse(contents)?),
            3 => Self::Content(contents.to_vec()),
            4 => return nothing(Self::EntriesEnd),
            5 => return nothing(Self::Received),
            6 => Self::Removed(word().into()),
            7 => return nothing(Self::Collect),
            8 => Self::Failed(text()?),
            9 => Self::Argument(word()),
            10 => Self::Variable(word()),
            11 => Self::Start(text()?),
            12 => Self::Input(contents.to_vec()),
            13 => return nothing(Self::InputEnd),
            14 => match contents {
                [a, b, c, d] => {
                    Self::Resize { rows: u16::from_le_bytes([*a, *b]), columns: u16::from_le_bytes([*c, *d]) }
                }
                _ => return None,
            },
            15 => Self::Signal(i32::from_le_bytes(contents.try_into().ok()?)),
            16 => {
                let (stream, bytes) = contents.split_first()?;
                Self::Output { stream: Stream::from_number(*stream)?, bytes: bytes.to_vec() }
            }
            17 => {
                let (stream, bytes) = contents.split_first()?;
                let bytes = u32::from_le_bytes(bytes.try_into().ok()?);
                Self::Credit { stream: Stream::from_number(*stream)?, bytes }
            }
            18 => Self::Status(text()?),
            19 => return nothing(Self::GuestLost),
            20 => Self::Watch(text()?),
            21 => Self::Unreadable(text()?),
            22 => return nothing(Self::Leave),
            _ => return None,
        })
    }
}

impl Entry {
    fn encode(&self) -> Vec<u8> {
        let (kind, size, to) = match &self.kind {
            EntryKind::Directory => (0_u8, 0, &[][..]),
            EntryKind::File { size } => (1, *size, &[][..]),
            EntryKind::Link { to } => (2, 0, to.as_os_str().as_bytes()),
        };
        let path = self.path.as_os_str().as_bytes();
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        let (seconds, nanoseconds) = self.modified;
        let fixed = [&[kind][..], &self.mode.to_le_bytes(), &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()];
        [&fixed.concat(), &size.to_le_bytes()[..], &length.to_le_bytes(), path, to].concat()
    }

    fn parse(contents: &[u8]) -> Option<Self> {
        let (kind, rest) = contents.split_first()?;
        let (mode, rest) = rest.split_first_chunk()?;
        let (seconds, rest) = rest.split_first_chunk()?;
        let (nanoseconds, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (path, to) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let os = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let kind = match (kind, to) {
            (0, []) => EntryKind::Directory,
            (1, []) => EntryKind::File { size: u64::from_le_bytes(*size) },
            (2, to) => EntryKind::Link { to: os(to) },
            _ => return None,
        };
        let modified = (i64::from_le_bytes(*seconds), u32::from_le_bytes(*nanoseconds));
        Some(Entry { path: os(path), kind, mode: u32::from_le_bytes(*mode), modified })
    }
}

/// Divides a stream of bytes into frames. It holds no more than one frame and what was pushed last.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    used: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole frame. After an error the stream cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<LinkFrame>, FrameError> {
        let Some((length, rest)) = self.buffer.get(self.used..).and_then(|rest| rest.split_first_chunk()) else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_CONTENTS + 1 {
            return Err(FrameError::TooLong(length));
        }
        let Some((kind, contents)) =
            rest.get(..length).map(<[u8]>::split_first).map(|parts| parts.unwrap_or((&0, &[])))
        else {
            return Ok(None);
        };
        let frame = LinkFrame::parse(*kind, contents).ok_or(FrameError::Malformed(*kind))?;
        self.used += 4 + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        vec(any::<u8>(), 0..300)
    }

    fn word() -> impl Strategy<Value = OsString> {
        bytes().prop_map(OsString::from_vec)
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let kind = prop_oneof![
            Just(EntryKind::Directory),
            any::<u64>().prop_map(|size| EntryKind::File { size }),
            word().prop_map(|to| EntryKind::Link { to: to.into() }),
        ];
        (word(), kind, any::<u32>(), any::<(i64, u32)>()).prop_map(|(path, kind, mode, modified)| Entry {
            path: path.into(),
            kind,
            mode,
            modified,
        })
    }

    fn stream() -> impl Strategy<Value = Stream> {
        prop_oneof![Just(Stream::Stdin), Just(Stream::Stdout), Just(Stream::Stderr)]
    }

    fn frame() -> impl Strategy<Value = LinkFrame> {
        prop_oneof![
            any::<u16>().prop_map(|version| LinkFrame::Ready { version }),
            entry().prop_map(LinkFrame::Entry),
            bytes().prop_map(LinkFrame::Content),
            word().prop_map(|path| LinkFrame::Removed(path.into())),
            word().prop_map(LinkFrame::Argument),
            word().prop_map(LinkFrame::Variable),
            any::<String>().prop_map(LinkFrame::Start),
            bytes().prop_map(LinkFrame::Input),
            any::<(u16, u16)>().prop_map(|(rows, columns)| LinkFrame::Resize { rows, columns }),
            any::<i32>().prop_map(LinkFrame::Signal),
            (stream(), bytes()).prop_map(|(stream, bytes)| LinkFrame::Output { stream, bytes }),
            (stream(), any::<u32>()).prop_map(|(stream, bytes)| LinkFrame::Credit { stream, bytes }),
            any::<String>().prop_map(LinkFrame::Status),
            any::<String>().prop_map(LinkFrame::Failed),
            any::<String>().prop_map(LinkFrame::Watch),
            any::<String>().prop_map(LinkFrame::Unreadable),
            Just(LinkFrame::Ping),
            Just(LinkFrame::EntriesEnd),
            Just(LinkFrame::Received),
            Just(LinkFrame::Collect),
            Just(LinkFrame::InputEnd),
            Just(LinkFrame::GuestLost),
            Just(LinkFrame::Leave),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_division(frames in vec(frame(), 0..8), piece in 1..400_usize) {
            let mut stream = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut stream));
            let mut decoder = Decoder::default();
            let mut received = Vec::new();
            for part in stream.chunks(piece) {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame()? {
                    received.push(frame);
                }
            }
            prop_assert_eq!(received, frames);
        }

        #[test]
        fn no_bytes_cause_a_panic(pieces in vec(vec(any::<u8>(), 0..200), 0..20)) {
            let mut decoder = Decoder::default();
            for piece in pieces {
                decoder.push(&piece);
                while let Ok(Some(_)) = decoder.next_frame() {}
            }
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_an_error_before_it_arrives() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong(u32::MAX as usize)));
    }

    #[test]
    fn an_empty_frame_and_an_unknown_kind_are_errors() {
        for bytes in [&[0, 0, 0, 0][..], &[1, 0, 0, 0, 77]] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert!(decoder.next_frame().is_err(), "{bytes:?}");
        }
    }
}
