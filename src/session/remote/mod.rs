//! What all engines on other machines have in common: the connection to the helper there, the files that
//! are sent and come back, and the streams of the command. Knows no engine.

mod command;
mod connection;
mod copy;
mod error;
mod exec;
mod recover;
mod relay;
mod returns;
mod seed;

pub use command::{Relayed, describe, relay as relay_command};
pub use connection::{Connection, SentHelper, link_command, with_pipes};
pub use copy::{copy_files, prepare_returns};
pub use error::RemoteError;
pub use exec::{exec, exec_command};
pub use recover::{Elsewhere, Presence, Recovered, bring_back, recover};
pub use relay::{RelayEnd, terminal_size};
pub use returns::ReturnRecord;
