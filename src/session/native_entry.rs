//! Runs another command in a running native sandbox.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::Streams;
use super::environment;
use super::error::SessionError;
use super::native::{Prepared, supervise};
use super::registry::Record;
use crate::error::Result;
use crate::gate::streams::RelayedStreams;
use crate::helper::PreparedCommand;
use crate::launch::native::step::NativeEntry;
use crate::native::{Child, Command, CommandLifetime, Event, Init, Namespaces, SessionStreams, enter as enter_sandbox};
use crate::plan::HelperConfig;
use crate::process::Outcome;
use crate::process::signals::SignalQueue;
use crate::process::status_file::CommandStatus;
use crate::ui::Ui;

/// Runs a command with the environment of the sandbox's first one, and waits for its end.
pub fn enter(record: &Record, argv: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    let signals = SignalQueue::start().map_err(SessionError::Signals)?;
    let mut relayed = RelayedStreams::open().map_err(SessionError::Streams)?;
    let mut streams = Streams::Caller;
    let terminal = Prepared::open(&mut streams)?;
    let environment = environment_of(record)?;
    let child = enter_with(record, terminal.streams(), CommandLifetime::Command, |init| {
        start(&argv, &environment, |command| terminal.start(init, command, || ()))
    })?;
    relayed.start();
    let (outcome, status) = supervise(child, terminal, signals, &mut super::Repositories::default(), None)?;
    if status.is_some() {
        explain(&argv, ui);
    }
    Ok(outcome)
}

/// Starts a command that reads and prints nothing, and runs until it or the sandbox ends.
pub fn leave(record: &Record, argv: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    let null = File::options().read(true).write(true).open("/dev/null").map_err(SessionError::Detach)?;
    let environment = environment_of(record)?;
    let streams = SessionStreams::File(null.as_fd());
    let mut child = enter_with(record, streams, CommandLifetime::Sandbox, |init| {
        start(&argv, &environment, |command| init.run_guest(&command, || ()))
    })?;
    loop {
        match child.event() {
            Ok(Event::Exited(code)) => return Ok(Outcome::Exited(code as u8)),
            Ok(Event::NotStarted(_)) => explain(&argv, ui),
            Ok(Event::Started | Event::Stopped(_)) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SessionError::WaitForSandbox(error).into()),
        }
    }
}

/// Runs `init` in the sandbox, behind the same walls as its first command.
pub fn enter_with(
    record: &Record,
    streams: SessionStreams<'_>,
    lifetime: CommandLifetime,
    init: impl FnOnce(&Init) -> i32,
) -> Result<Child> {
    let entry = NativeEntry { cwd: PathBuf::from(&record.directory), pids: record.pids, nested: record.nested };
    Ok(enter_sandbox(record.owner.pid, &entry, streams, lifetime, init)?)
}

/// Makes the command and starts it. Looks for shells, so it must be called inside the sandbox.
fn start(argv: &[OsString], environment: &[(OsString, OsString)], start: impl FnOnce(Command) -> i32) -> i32 {
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let prepared = PreparedCommand::new(&HelperConfig::default(), argv.to_vec(), path, None);
    let environment = environment.iter().map(|(name, value)| (name, value));
    match Command::new(&prepared.argv, environment, &prepared.path) {
        Some(command) => start(command),
        None => CommandStatus::NotExecutable.exit_code().into(),
    }
}

fn explain(argv: &[OsString], ui: Ui) {
    let name = argv.first().map_or("sh".into(), |name| name.display().to_string());
    ui.notice(&format!("`{name}` was not found in the sandbox, or cannot be executed"));
}

fn environment_of(record: &Record) -> Result<Vec<(OsString, OsString)>> {
    Ok(environment::of_launcher(record.owner.pid).map_err(|source| not_running(record, source))?)
}

fn not_running(record: &Record, source: io::Error) -> SessionError {
    SessionError::NoEnvironment { id: record.id.clone(), source }
}

/// The processes of a running sandbox.
#[derive(Debug)]
pub struct NativeProcesses {
    /// The name of their pid namespace.
    namespace: PathBuf,
    launcher: u32,
}

impl NativeProcesses {
    pub fn of(record: &Record) -> Result<Self> {
        let launcher = record.owner.pid;
        Namespaces::await_launcher(launcher).map_err(|error| not_running(record, error))?;
        let namespace = namespace_of_launcher(launcher, "pid:[");
        let namespace = namespace.ok_or_else(|| not_running(record, io::ErrorKind::NotFound.into()))?;
        Ok(NativeProcesses { namespace, launcher })
    }

    /// Lists those that can be looked at, which pid 1 cannot.
    pub fn list(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_inside = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path().join("ns/pid")).is_ok_and(|namespace| namespace == self.namespace)
        };
        let inside = entries.filter(is_inside);
        inside.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns whether they are in the network of the launcher.
    pub fn is_network_shared(&self) -> bool {
        namespace_of_launcher(self.launcher, "net:[").is_none()
    }
}

/// Returns the name of a namespace that the launcher keeps open.
fn namespace_of_launcher(launcher: u32, prefix: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(format!("/proc/{launcher}/fd")).ok()?.flatten();
    let mut names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    names.find(|name| name.as_os_str().as_bytes().starts_with(prefix.as_bytes()))
}
