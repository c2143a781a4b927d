//! Runs another command in a running sandbox, with the restrictions of the first one.

use std::ffi::OsString;
use std::process::Child;

use super::command::{Relayed, describe, relay};
use super::connection::Connection;
use super::error::RemoteError;
use super::relay::{RelayEnd, terminal_size};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::link::StartRequest;
use crate::plan::{CONTROL_DIR, HelperConfig};
use crate::process::signals::SignalQueue;
use crate::process::status_file::CommandStatus;
use crate::process::{KILLED, Outcome};
use crate::session::error::SessionError;
use crate::session::registry::Record;

/// Returns what a client runs in the sandbox to start another command.
pub fn exec_command() -> Vec<String> {
    [&format!("{CONTROL_DIR}/sandpen"), "pod", "exec"].map(str::to_owned).to_vec()
}

/// Runs a command over a client that runs `exec_command`, with sandpen's streams, and waits for its end; or
/// starts it without streams. `lost` makes the error of a connection that broke.
pub fn exec(
    host: &Host,
    record: &Record,
    client: Child,
    command: &[OsString],
    is_detached: bool,
    lost: impl Fn(String) -> Error,
) -> Result<Outcome> {
    let signals = SignalQueue::start().map_err(SessionError::Signals)?;
    let connection = Connection::resume(client).map_err(|error| lost(error.message))?;
    let has_terminal = host.terminal.stdin && host.terminal.stdout && !is_detached;
    let request = StartRequest {
        directory: record.directory.clone().into(),
        terminal: has_terminal.then(terminal_size),
        is_offline: record.pod.as_ref().is_some_and(|pod| pod.is_offline),
        helper: HelperConfig {
            exec: true,
            detach: is_detached,
            append_path: record.append_path.clone(),
            nested: record.nested,
            ..HelperConfig::default()
        },
    };
    describe(&connection.writer, &[], command, &request).map_err(|error| lost(error.to_string()))?;
    match relay(&connection, signals, Relayed { has_terminal, ..Relayed::default() }) {
        RelayEnd::Status(CommandStatus::Ended(code)) => Ok(Outcome::Exited(code)),
        RelayEnd::Status(CommandStatus::OutOfMemory) => Ok(KILLED),
        RelayEnd::Status(status) => Ok(Outcome::Exited(status.exit_code())),
        RelayEnd::GuestLost => Err(lost("the sandbox has ended".into())),
        RelayEnd::Failed(message) => Err(RemoteError::Protocol { message }.into()),
        RelayEnd::Lost(error) => Err(lost(error.message)),
    }
}
