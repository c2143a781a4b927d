//! Runs a sandbox of macOS Seatbelt: `sandbox-exec` becomes the helper, which starts the command.
//! They are one process group, which takes the terminal, gets every signal that sandpen gets, and
//! is killed at the end.

#![allow(clippy::disallowed_methods, reason = "the session starts sandbox-exec")]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::Session;
use super::error::SessionError;
use super::failure;
use super::proxy::Filter;
use crate::error::Result;
use crate::host::Host;
use crate::launch::{SeatbeltEntry, SeatbeltLaunch};
use crate::path::HostPath;
use crate::plan::{HelperConfig, Plan, Secret};
use crate::process::ready::Startup;
use crate::process::signals::{ReadyAction, SignalQueue, SignalTarget};
use crate::process::status_file::{CommandStatus, MAX_STATUS_BYTES, STATUS};
use crate::process::terminal::Terminal;
use crate::process::{Outcome, untrusted};
use crate::ui::Ui;
use crate::ui::shell::shell_words;

/// The file from which `sandpen exec` learns how to enter, in the session's directory.
const ENTRY: &str = "entry.json";

/// Runs a sandbox and waits for its end.
pub fn run(session: &mut Session, launch: &SeatbeltLaunch, mut signals: SignalQueue) -> Result<Outcome> {
    session.record_start()?;
    let Session { host, plan, ui, .. } = *session;
    let mut filter = match Filter::for_shared_network(host, plan, &session.gates, ui, || signals.termination_signal())?
    {
        Startup::Ready(filter) => filter,
        Startup::Interrupted(signal) => return Ok(Outcome::Signaled(signal)),
    };
    session.directory.write_private(&launch.file, &Secret::new(&launch.profile))?;
    // Without it `sandpen exec` fails; the sandbox runs all the same.
    if let Ok(entry) = serde_json::to_string(&launch.entry) {
        let _ = session.directory.write_private(&plan.session_dir.join(ENTRY), &Secret::new(entry));
    }
    let env = launch.env.iter().map(|(name, value)| (name.into(), value.reveal().to_owned()));
    let program = launch.program.as_ref().map(HostPath::as_path);
    let command = command(program, &launch.argv, plan.workdir.as_path(), env)?;
    ui.verbose(&format!("starting: {}", shell_words(&launch.argv)));
    session.sweep.start();
    session.gates.start(plan);
    let outcome = supervise(command, signals, filter.as_mut(), session.gates.take_agent_action())?;
    filter.map_or(Ok(()), |filter| filter.close(ui))?;
    let status = untrusted::read(plan.session_dir.join(STATUS).as_path(), MAX_STATUS_BYTES).ok();
    check(plan, outcome, status.as_deref().and_then(CommandStatus::parse), ui)
}

/// Runs another command with the sandbox's profile, parameters and environment. Secrets are taken
/// from the caller's environment, if it has them.
pub fn enter(host: &Host, session: &HostPath, argv: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    let signals = SignalQueue::start().map_err(SessionError::Signals)?;
    let entry: SeatbeltEntry = fs::read(session.join(ENTRY).as_path())
        .and_then(|json| serde_json::from_slice(&json).map_err(io::Error::from))
        .map_err(SessionError::Enter)?;
    let helper_config = HelperConfig { exec: true, launcher: Some(host.process.pid), ..HelperConfig::default() };
    let helper_config = serde_json::to_string(&helper_config).unwrap_or_default();
    let argv: Vec<OsString> = entry.argv.iter().cloned().chain([helper_config.into()]).chain(argv).collect();
    let kept = entry.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let secrets = entry.secrets.iter().filter_map(|name| Some((name.into(), host.env.raw(name)?.to_owned())));
    let command = command(entry.program.as_deref(), &argv, &entry.directory, kept.chain(secrets))?;
    ui.verbose(&format!("starting: {}", shell_words(&argv)));
    supervise(command, signals, None, None)
}

fn command(
    program: Option<&Path>,
    argv: &[OsString],
    directory: &Path,
    env: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Command> {
    let program = program.ok_or(SessionError::NoSandboxExec)?;
    let mut command = Command::new(program);
    command.args(argv.iter().skip(1)).current_dir(directory).process_group(0).env_clear().envs(env);
    Ok(command)
}

/// Starts the command, waits for its first process to end, and kills the rest of the group.
fn supervise(
    mut command: Command,
    signals: SignalQueue,
    filter: Option<&mut Filter>,
    ready: Option<ReadyAction>,
) -> Result<Outcome> {
    let mut terminal = Terminal::save();
    let mut child = command.spawn().map_err(SessionError::StartSandboxExec)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| SessionError::StartSandboxExec(io::Error::other("it has no process id")))?;
    if let Some(terminal) = &mut terminal {
        // The helper takes the foreground itself.
        terminal.lend_foreground();
        terminal.set_guest_group(group);
    }
    let end = move || {
        let _ = kill_process_group(group, Signal::KILL);
    };
    if let Some(filter) = filter {
        filter.supervise(None, Box::new(end));
    }
    let forwarder = signals.forward_in_thread(SignalTarget::Group(group), None, end, ready);
    // Not reaped yet, so that no other group can have its number when it is killed.
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
    }
    drop(forwarder);
    end();
    Ok(Outcome::from(child.wait().map_err(SessionError::WaitForSandboxExec)?))
}

/// Returns the guest's outcome, or the error of a sandbox that did not start.
fn check(plan: &Plan, outcome: Outcome, status: Option<CommandStatus>, ui: Ui) -> Result<Outcome> {
    match status {
        Some(
            status @ (CommandStatus::NotFound
            | CommandStatus::NotExecutable
            | CommandStatus::WrongArchitecture
            | CommandStatus::MountReplaced),
        ) => {
            failure::explain_command(plan, status, ui);
            Ok(outcome)
        }
        Some(_) => Ok(outcome),
        None if matches!(outcome, Outcome::Signaled(_)) => Ok(outcome),
        None => Err(SessionError::SandboxExecFailed.into()),
    }
}
