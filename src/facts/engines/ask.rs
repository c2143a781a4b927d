//! Runs an engine's client to ask a question, with a time limit: an engine that hangs must not
//! block sandpen.

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::process::{Client, output_within};

/// Prepares a command of the client: no input, untranslated messages, and a PATH without mounted
/// directories.
pub fn question(client: &Client, arguments: &[&str]) -> Option<Command> {
    let pinned = client.pin().into_iter().chain(arguments.iter().map(OsString::from));
    let mut command = client.quiet_command(pinned).ok()?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// Runs a command; `None` if it cannot be started or takes longer than the timeout.
pub fn within(command: &mut Command, timeout: Duration) -> Option<Output> {
    output_within(command, timeout).ok()
}
