//! The protocol between a detached sandbox's launcher and `sandpen attach`: frames over a Unix
//! socket. A frame is its length (4 bytes, little endian, of the rest), its kind (1 byte) and its
//! contents. The first frame of a client carries the protocol's version in front, so that any later
//! version can be refused with a message.

use std::marker::PhantomData;

use crate::channel::{self, put};
pub use crate::channel::{FrameError, MAX_CONTENTS};

/// The version of the protocol that this program speaks.
pub const VERSION: u16 = 1;

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFrame {
    /// Comes first.
    Hello { version: u16, rows: u16, cols: u16, read_only: bool },
    /// Keys, or whatever else the client's terminal sends.
    Input(Vec<u8>),
    /// The new size of the client's terminal. The launcher answers the old size with a redraw.
    Resize { rows: u16, cols: u16 },
}

/// What a launcher sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LauncherFrame {
    /// The client is attached; a redraw follows.
    Welcome,
    /// The client is not attached, with the reason for the user.
    Refused(String),
    /// Output of the guest, or a redraw.
    Output(Vec<u8>),
    /// Another client has attached for input.
    TakenOver,
    /// The guest has ended. All its output came before.
    Ended { exit_code: i32 },
}

/// A frame of one direction.
pub trait Frame: Sized {
    /// Appends the encoded frame. Contents beyond [`MAX_CONTENTS`] are cut off.
    fn encode(&self, out: &mut Vec<u8>);

    /// Parses the contents of a frame; `None` if they are malformed or the kind is unknown.
    fn parse(kind: u8, contents: &[u8]) -> Option<Self>;
}

impl Frame for ClientFrame {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version, rows, cols, read_only } => put(
                out,
                0,
                &[&version.to_le_bytes(), &rows.to_le_bytes(), &cols.to_le_bytes(), &[u8::from(*read_only)]],
            ),
            Self::Input(bytes) => put(out, 1, &[bytes]),
            Self::Resize { rows, cols } => put(out, 2, &[&rows.to_le_bytes(), &cols.to_le_bytes()]),
        }
    }

    fn parse(kind: u8, contents: &[u8]) -> Option<Self> {
        let number = |pair: &[u8; 2]| u16::from_le_bytes(*pair);
        match kind {
            0 => {
                let (version, rest) = contents.split_first_chunk()?;
                if number(version) != VERSION {
                    // Another version may have other fields.
                    return Some(Self::Hello { version: number(version), rows: 0, cols: 0, read_only: true });
                }
                let (rows, rest) = rest.split_first_chunk()?;
                let (cols, rest) = rest.split_first_chunk()?;
                let read_only = match rest {
                    [0] => false,
                    [1] => true,
                    _ => return None,
                };
                Some(Self::Hello { version: VERSION, rows: number(rows), cols: number(cols), read_only })
            }
            1 => Some(Self::Input(contents.to_vec())),
            2 => match contents {
                [a, b, c, d] => Some(Self::Resize { rows: number(&[*a, *b]), cols: number(&[*c, *d]) }),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Frame for LauncherFrame {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Welcome => put(out, 128, &[]),
            Self::Refused(reason) => put(out, 129, &[reason.as_bytes()]),
            Self::Output(bytes) => put(out, 130, &[bytes]),
            Self::TakenOver => put(out, 131, &[]),
            Self::Ended { exit_code } => put(out, 132, &[&exit_code.to_le_bytes()]),
        }
    }

    fn parse(kind: u8, contents: &[u8]) -> Option<Self> {
        match (kind, contents) {
            (128, []) => Some(Self::Welcome),
            (129, reason) => Some(Self::Refused(String::from_utf8_lossy(reason).into_owned())),
            (130, bytes) => Some(Self::Output(bytes.to_vec())),
            (131, []) => Some(Self::TakenOver),
            (132, code) => code.try_into().ok().map(|code| Self::Ended { exit_code: i32::from_le_bytes(code) }),
            _ => None,
        }
    }
}

/// Divides a stream of bytes into frames of one direction.
#[derive(Debug)]
pub struct Decoder<F> {
    decoder: channel::Decoder,
    frame: PhantomData<F>,
}

impl<F> Default for Decoder<F> {
    fn default() -> Self {
        Decoder { decoder: channel::Decoder::default(), frame: PhantomData }
    }
}

impl<F: Frame> Decoder<F> {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// Returns the next whole frame. After an error the stream cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<F>, FrameError> {
        let Some((kind, contents)) = self.decoder.next_frame()? else { return Ok(None) };
        F::parse(kind, contents).map(Some).ok_or(FrameError::Malformed(kind))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn client_frame() -> impl Strategy<Value = ClientFrame> {
        prop_oneof![
            any::<(u16, u16, bool)>().prop_map(|(rows, cols, read_only)| ClientFrame::Hello {
                version: VERSION,
                rows,
                cols,
                read_only
            }),
            vec(any::<u8>(), 0..300).prop_map(ClientFrame::Input),
            any::<(u16, u16)>().prop_map(|(rows, cols)| ClientFrame::Resize { rows, cols }),
        ]
    }

    fn launcher_frame() -> impl Strategy<Value = LauncherFrame> {
        prop_oneof![
            Just(LauncherFrame::Welcome),
            any::<String>().prop_map(LauncherFrame::Refused),
            vec(any::<u8>(), 0..300).prop_map(LauncherFrame::Output),
            Just(LauncherFrame::TakenOver),
            any::<i32>().prop_map(|exit_code| LauncherFrame::Ended { exit_code }),
        ]
    }

    /// Encodes frames and decodes them from pieces of some size.
    fn through<F: Frame>(frames: &[F], piece: usize) -> Result<Vec<F>, FrameError> {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        let mut decoder = Decoder::default();
        let mut decoded = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame()? {
                decoded.push(frame);
            }
        }
        Ok(decoded)
    }

    proptest! {
        #[test]
        fn client_frames_survive_any_division(frames in vec(client_frame(), 0..8), piece in 1..400_usize) {
            prop_assert_eq!(through(&frames, piece), Ok(frames));
        }

        #[test]
        fn launcher_frames_survive_any_division(frames in vec(launcher_frame(), 0..8), piece in 1..400_usize) {
            prop_assert_eq!(through(&frames, piece), Ok(frames));
        }

        #[test]
        fn no_bytes_cause_a_panic(pieces in vec(vec(any::<u8>(), 0..200), 0..20)) {
            let mut decoder = Decoder::<ClientFrame>::default();
            for piece in pieces {
                decoder.push(&piece);
                while let Ok(Some(_)) = decoder.next_frame() {}
            }
        }
    }

    #[test]
    fn frames_that_were_returned_take_no_memory() {
        let mut bytes = Vec::new();
        ClientFrame::Input(vec![7; 1000]).encode(&mut bytes);
        let mut decoder = Decoder::<ClientFrame>::default();
        for _ in 0..100 {
            decoder.push(&bytes);
            assert!(decoder.next_frame().is_ok_and(|frame| frame.is_some()));
        }
        assert!(decoder.decoder.held() <= 2 * bytes.len(), "{} bytes", decoder.decoder.held());
    }

    #[test]
    fn a_frame_that_is_too_long_is_an_error_before_it_arrives() {
        let mut decoder = Decoder::<ClientFrame>::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong(u32::MAX as usize)));
    }

    #[test]
    fn the_largest_frame_passes() {
        let frame = LauncherFrame::Output(vec![7; MAX_CONTENTS]);
        assert_eq!(through(std::slice::from_ref(&frame), 1000), Ok(vec![frame]));
    }

    #[test]
    fn a_hello_of_another_version_is_understood() {
        let mut decoder = Decoder::default();
        decoder.push(&[6, 0, 0, 0, 0, 9, 0, b'n', b'e', b'w']);
        let hello = ClientFrame::Hello { version: 9, rows: 0, cols: 0, read_only: true };
        assert_eq!(decoder.next_frame(), Ok(Some(hello)));
    }

    #[test]
    fn unknown_kinds_are_errors() {
        let mut decoder = Decoder::<LauncherFrame>::default();
        decoder.push(&[1, 0, 0, 0, 77]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Malformed(77)));
    }
}
