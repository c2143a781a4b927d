//! One channel between the launcher and a process inside the sandbox: many streams over any pair of
//! byte streams, such as a Unix socket, or the stdin and stdout of an engine's `exec`. Gates use it
//! where a socket of the host cannot be mounted. It does not know what the streams carry.
//!
//! ```text
//! launcher: gate ◄─ socket ─► Channel ◄══ frames over one exec ══► Channel ◄─ socket ─► program inside
//! ```
//!
//! A frame is the length of what follows it (4 bytes, little endian, at most 65,537), its kind
//! (1 byte) and its contents. Numbers are little endian, and `id` has 4 bytes:
//!
//! | kind | name | contents | meaning |
//! |---|---|---|---|
//! | 0 | hello | `sandpen\0`, version (2 bytes) | the first frame in each direction; another version ends the channel |
//! | 1 | beat | | sent after 10 s without another frame |
//! | 2 | open | id, kind of stream (1 byte), argument (at most 1,024 bytes) | opens a stream, without waiting for an answer |
//! | 3 | data | id, at most 32,768 bytes | |
//! | 4 | credit | id, bytes (4 bytes) | the receiver may send so many bytes more |
//! | 5 | eof | id | no more data in this direction |
//! | 6 | close | id, reason (1 byte) | both directions end: broken, not connected, refused, too many |
//!
//! Streams that the launcher opens have even numbers, those of the process inside odd ones. The kind
//! says which side opens it, how many of it there may be, and its window: the bytes that may be sent
//! before there is credit. Frames of streams that have ended are ignored, because both sides may close
//! one at the same time. A side that breaks these rules, of which nothing is received for 30 s, or that
//! does not read 4 MiB of answers, is taken for hostile or gone: the channel ends.

mod decoder;
mod endpoint;
mod frame;
mod kind;
mod multiplexer;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

pub use decoder::{Decoder, FrameError, MAX_CONTENTS, put};
pub use endpoint::Endpoint;
pub use frame::{ChannelFrame, CloseReason};
pub use kind::StreamKind;
pub use multiplexer::Channel;

/// A side of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Launcher,
    Sandbox,
}

impl Side {
    /// Returns the number of the first stream that this side opens; all of it are even, or odd.
    fn first_id(self) -> u32 {
        match self {
            Self::Launcher => 0,
            Self::Sandbox => 1,
        }
    }
}

/// The other side broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side broke the protocol")]
pub struct ProtocolError;

/// Why a channel has ended other than by being closed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("no sandpen answers at the other side")]
    NoGreeting,
    #[error("the other side speaks version {theirs} of the protocol, not {}", frame::VERSION)]
    Version { theirs: u16 },
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Frame(FrameError),
    #[error("nothing was received for {} seconds", .0.as_secs())]
    Silent(Duration),
    #[error("the other side does not read")]
    Unread,
    #[error(transparent)]
    Io(#[from] io::Error),
}
