//! What all engines on other machines have in common: the connection to the helper there, the files that
//! are sent and come back, and the streams of the command. Knows no engine.

mod command;
mod connection;
mod copy;
mod error;
mod recover;
mod relay;
mod returns;
mod seed;

pub use command::{describe, relay as relay_command};
pub use connection::{Connection, LostLink, SentHelper, link_command, with_pipes};
pub use copy::{copy_files, prepare_returns};
pub use error::RemoteError;
pub use recover::{Presence, Recovered, reconnect, recover};
pub use relay::{RelayEnd, terminal_size};
pub use returns::{ReturnError, ReturnRecord, Returns};
