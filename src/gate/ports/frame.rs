//! The frames between the host and the process inside.

use crate::gate::attach::frame::{Frame, put};

/// The most bytes of one connection in one frame.
pub const MAX_DATA: usize = 16 * 1024;

/// A frame. The host numbers the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortFrame {
    /// From the host: connects to a port.
    Open {
        id: u32,
        port: u16,
    },
    Data {
        id: u32,
        bytes: Vec<u8>,
    },
    /// So many bytes more may be sent.
    Credit {
        id: u32,
        bytes: u32,
    },
    /// No more data follows.
    Eof {
        id: u32,
    },
    /// The connection has failed, or could not be made.
    Close {
        id: u32,
    },
}

impl Frame for PortFrame {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open { id, port } => put(out, 0, &[&id.to_le_bytes(), &port.to_le_bytes()]),
            Self::Data { id, bytes } => put(out, 1, &[&id.to_le_bytes(), bytes]),
            Self::Credit { id, bytes } => put(out, 2, &[&id.to_le_bytes(), &bytes.to_le_bytes()]),
            Self::Eof { id } => put(out, 3, &[&id.to_le_bytes()]),
            Self::Close { id } => put(out, 4, &[&id.to_le_bytes()]),
        }
    }

    fn parse(kind: u8, contents: &[u8]) -> Option<Self> {
        let (id, rest) = contents.split_first_chunk()?;
        let id = u32::from_le_bytes(*id);
        match (kind, rest) {
            (0, port) => Some(Self::Open { id, port: u16::from_le_bytes(port.try_into().ok()?) }),
            (1, bytes) if bytes.len() <= MAX_DATA => Some(Self::Data { id, bytes: bytes.to_vec() }),
            (2, bytes) => Some(Self::Credit { id, bytes: u32::from_le_bytes(bytes.try_into().ok()?) }),
            (3, []) => Some(Self::Eof { id }),
            (4, []) => Some(Self::Close { id }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::gate::attach::frame::Decoder;

    fn frame() -> impl Strategy<Value = PortFrame> {
        prop_oneof![
            any::<(u32, u16)>().prop_map(|(id, port)| PortFrame::Open { id, port }),
            (any::<u32>(), vec(any::<u8>(), 0..300)).prop_map(|(id, bytes)| PortFrame::Data { id, bytes }),
            any::<(u32, u32)>().prop_map(|(id, bytes)| PortFrame::Credit { id, bytes }),
            any::<u32>().prop_map(|id| PortFrame::Eof { id }),
            any::<u32>().prop_map(|id| PortFrame::Close { id }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_the_stream(frames in vec(frame(), 0..5)) {
            let mut stream = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut stream));
            let mut decoder = Decoder::<PortFrame>::default();
            let mut received = Vec::new();
            for part in stream.chunks(7) {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame()? {
                    received.push(frame);
                }
            }
            prop_assert_eq!(received, frames);
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in vec(any::<u8>(), 0..100)) {
            let mut decoder = Decoder::<PortFrame>::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
