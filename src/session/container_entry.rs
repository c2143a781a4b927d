//! Runs another command in a running container, through the engine's client.

use std::ffi::OsString;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::client_terminal::{self, ClientTerminal, HangUp};
use super::client_wait::ClientProcess;
use super::error::SessionError;
use super::registry::Record;
use crate::error::Result;
use crate::facts;
use crate::host::{Host, Platform};
use crate::plan::{CONTROL_DIR, HelperConfig};
use crate::process::lock::OWNER;
use crate::process::signals::{SignalQueue, end_at_hang_up};
use crate::process::terminal::Terminal;
use crate::process::{Client, Outcome};

/// A command for a running container.
#[derive(Debug)]
pub struct ContainerCommand<'a> {
    record: &'a Record,
    client: Client,
    /// The byte of the launcher's file that this process has locked, and the lock.
    lock: Option<(u32, File)>,
    /// Whether the engine gives it a terminal.
    pub has_terminal: bool,
    /// Whether the engine starts it without waiting for its end.
    pub is_detached: bool,
    /// The helper that starts it, if it is mounted.
    pub helper: Option<HelperConfig>,
    pub command: Vec<OsString>,
}

impl<'a> ContainerCommand<'a> {
    pub fn new(host: &Host, record: &'a Record) -> Result<Self> {
        // Another machine, or a virtual one, does not see locks of the host.
        let sees_locks = record.has_helper && host.platform == Platform::Linux && !record.is_elsewhere();
        let owner = facts::session_base(host).join(&record.id).join(OWNER);
        let lock = sees_locks.then(|| lock_client(owner.as_path(), host.process.pid)).transpose();
        Ok(ContainerCommand {
            record,
            client: record.client(&facts::host_path(host)),
            lock: lock.map_err(SessionError::LockClient)?,
            has_terminal: false,
            is_detached: false,
            helper: None,
            command: Vec::new(),
        })
    }

    /// Returns the byte of the launcher's file that tells the helper whether this process lives.
    pub fn client_byte(&self) -> Option<u32> {
        self.lock.as_ref().map(|(byte, _)| *byte)
    }

    /// Runs it with sandpen's streams, and waits for its end.
    pub fn run(&self) -> Result<Outcome> {
        let _terminal = Terminal::save();
        let mut command = self.client.command(self.arguments())?;
        if let Some(terminal) = ClientTerminal::open(self.has_terminal)? {
            return run_relayed(command, terminal);
        }
        if self.has_terminal {
            end_at_hang_up();
        }
        Ok(Outcome::from(command.status().map_err(SessionError::RunClient)?))
    }

    /// Starts it with pipes for stdin and stdout, in a process group that keys do not signal.
    pub fn start_with_pipes(&self) -> Result<Child> {
        use std::os::unix::process::CommandExt;
        let mut command = self.client.command(self.arguments())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        Ok(command.spawn().map_err(SessionError::RunClient)?)
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut arguments = self.client.pin();
        arguments.push("exec".into());
        let flags =
            [("--interactive", !self.is_detached), ("--detach", self.is_detached), ("--tty", self.has_terminal)];
        arguments.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into()));
        arguments.extend(["--workdir".into(), self.record.directory.clone().into()]);
        if let Some((uid, gid)) = self.record.user {
            arguments.extend(["--user".into(), format!("{uid}:{gid}").into()]);
        }
        arguments.push(self.record.name.clone().into());
        if let Some(config) = &self.helper {
            let json = serde_json::to_string(config).unwrap_or_default();
            arguments.extend([format!("{CONTROL_DIR}/sandpen").into(), "guest".into(), json.into()]);
        }
        arguments.extend(self.command.iter().cloned());
        arguments
    }
}

/// Runs the client with a terminal that is relayed to the caller's.
fn run_relayed(mut command: Command, terminal: ClientTerminal) -> Result<Outcome> {
    let mut signals = SignalQueue::start().map_err(SessionError::Signals)?;
    terminal.give_to(&mut command, HangUp::Ends)?;
    let mut child = command.spawn().map_err(SessionError::RunClient)?;
    let process = ClientProcess::of(&child);
    terminal.relay(&mut signals)?;
    let target = client_terminal::signal_target(&child, true);
    let forwarder = signals.forward_in_thread(target, None, move || process.kill_after(Duration::ZERO), None);
    process.await_exit();
    drop(forwarder);
    Ok(Outcome::from(child.wait().map_err(SessionError::WaitForClient)?))
}

#[cfg(target_os = "linux")]
fn lock_client(owner: &std::path::Path, pid: u32) -> std::io::Result<(u32, File)> {
    crate::process::lock::take_byte(owner, pid).map(|file| (pid, file))
}

#[cfg(not(target_os = "linux"))]
fn lock_client(_: &std::path::Path, _: u32) -> std::io::Result<(u32, File)> {
    Err(std::io::ErrorKind::Unsupported.into())
}
