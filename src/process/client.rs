//! The command-line client of a container engine: its program, its PATH, and the machine it is
//! pinned to. Every command that is run through a client is made here.

#![allow(clippy::disallowed_methods, reason = "makes the commands of the engine's client")]

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Diagnostic, Kind};
use crate::path::HostPath;

/// An engine's program, and the PATH on which it finds its own helpers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The program, outside of all mounted directories; `None` when PATH has none.
    pub program: Option<HostPath>,
    /// PATH without mounted directories.
    pub path: PathBuf,
    /// The machine that Podman is pinned to: the SSH tunnel ends in one machine, and the container
    /// must run in the same one, whatever the environment says.
    pub machine: Option<Pin>,
    /// The arguments that select a daemon on another machine: its containers must be found again, whatever
    /// the environment says then.
    pub endpoint: Vec<OsString>,
}

/// A virtual machine, and how long it may take to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The name of Podman's connection to it.
    pub connection: String,
    /// Podman itself would wait forever.
    pub timeout: Duration,
}

/// PATH has no program of the engine.
#[derive(Debug, thiserror::Error)]
#[error("the engine's program is not on PATH")]
pub struct ClientMissing;

impl Diagnostic for ClientMissing {
    fn kind(&self) -> Kind {
        Kind::Launch
    }
}

impl Client {
    /// Returns the arguments between the program and its subcommand.
    pub fn pin(&self) -> Vec<OsString> {
        let arguments = self.machine.iter().flat_map(|pin| ["--connection", pin.connection.as_str()]);
        arguments.map(OsString::from).chain(self.endpoint.iter().cloned()).collect()
    }

    /// Makes a command of the client that shares sandpen's streams.
    pub fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Command, ClientMissing> {
        let mut command = Command::new(self.program.as_ref().ok_or(ClientMissing)?.as_path());
        command.args(arguments).env("PATH", &self.path);
        Ok(command)
    }

    /// Makes a command of the client that reads and prints nothing, in a fixed language for callers
    /// that connect its output after all.
    pub fn quiet_command(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Command, ClientMissing> {
        let mut command = self.command(arguments)?;
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    /// Runs a quiet command, and kills it after `timeout`.
    pub fn run_quietly(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>, timeout: Duration) -> CallResult {
        let Ok(mut command) = self.quiet_command(arguments) else { return CallResult::Failed };
        match output_within(&mut command, timeout) {
            Ok(output) if output.status.success() => CallResult::Succeeded,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => CallResult::TimedOut,
            Ok(_) | Err(_) => CallResult::Failed,
        }
    }
}

/// The end of a client's quiet command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    Succeeded,
    /// It could not be started, or the engine reported an error.
    Failed,
    /// It was killed, because the engine did not answer.
    TimedOut,
}

/// Runs a command and returns its output. Kills it after `timeout` and fails with
/// [`io::ErrorKind::TimedOut`].
pub fn output_within(command: &mut Command, timeout: Duration) -> io::Result<Output> {
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, output) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    output.recv_timeout(timeout).unwrap_or_else(|_| {
        // The thread has not reaped the child, so the pid cannot have been reused.
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
        Err(io::ErrorKind::TimedOut.into())
    })
}
