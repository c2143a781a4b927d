//! Asks a program of the host a question, and never waits for ever: an engine that hangs must not hang what asks it.

#![allow(clippy::disallowed_methods, reason = "facts that only the engine's client knows")]

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::process::Client;

/// The client's command for a question: no input, its own language, and a PATH without mounted directories.
pub fn question(client: &Client, arguments: &[&str]) -> Option<Command> {
    let pinned = client.pin().into_iter().chain(arguments.iter().map(OsString::from));
    let mut command = client.quiet_command(pinned).ok()?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// The output, unless it takes too long.
pub fn within(command: &mut Command, timeout: Duration) -> Option<Output> {
    let child = command.spawn().ok()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let output = answer.recv_timeout(timeout);
    if output.is_err() {
        // The thread has not seen its end, so the id is still this process's own.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    output.ok()?.ok()
}
