//! Runs an engine's client to ask a question, with a time limit: an engine that hangs must not
//! block sandpen.

#![allow(clippy::disallowed_methods, reason = "asks the engine's client")]

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::process::Client;

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
    let child = command.spawn().ok()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let output = answer.recv_timeout(timeout);
    if output.is_err() {
        // The thread has not reaped the child, so the pid cannot have been reused.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    output.ok()?.ok()
}
