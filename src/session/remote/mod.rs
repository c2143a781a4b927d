//! What all engines on other machines have in common: the connection to the helper there, the files that
//! are sent and come back, and the streams of the command. Knows no engine.

mod command;
mod connection;
mod error;
mod relay;
mod returns;
mod seed;

pub use command::{describe, relay as relay_command};
pub use connection::{Connection, LostLink, SentHelper, link_command, with_pipes};
pub use error::RemoteError;
pub use relay::{RelayEnd, terminal_size};
pub use returns::{ReturnError, ReturnRecord, Returns};
pub use seed::send as send_files;
