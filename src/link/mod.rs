//! The connection between a launcher and a sandbox on another machine: frames over one stream, which
//! the engine's client carries. Decides nothing about sandboxes; `helper` and `session` are its ends.

mod frame;
mod start;
mod stream;
mod watch;
mod window;

pub use frame::{Entry, EntryKind, LinkFrame, Stream};
pub use start::StartRequest;
pub use stream::{LinkReader, LinkWriter};
pub use watch::WatchRequest;
pub use window::Window;

use std::time::Duration;

/// The version of the protocol. Both ends are the same build of sandpen, so it only tells a helper
/// that an older launcher left from this one's.
pub const VERSION: u16 = 2;
/// How often each end says that it is there.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// An end that has said nothing for this long is taken for lost.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(30);
