//! Runs a container on another machine through its engine's client: one `run`, over whose streams the helper,
//! the files and the command's own streams pass.
//!
//! ```text
//! run ─► helper ─► files ─► command ─► its status ─► the container is removed
//! ```

use std::ffi::OsString;
use std::process::Child;
use std::time::{Duration, Instant};

use super::channel::{ChannelThread, Existence};
use super::container::ContainerGuard;
use super::end_calls::EndCalls;
use super::error::SessionError;
use super::registry::Record;
use super::remote::{
    self, Connection, LostLink, Presence, Recovered, RelayEnd, RemoteError, ReturnError, ReturnRecord, SentHelper,
};
use super::{Session, failure};
use crate::error::{Diagnostic, Error, Kind, Result};
use crate::facts::engines::ask;
use crate::host::Host;
use crate::launch::{CONTAINER_ID, ContainerLaunch, Transfer};
use crate::link::{LinkFrame, StartRequest};
use crate::path::HostPath;
use crate::plan::{CONTROL_DIR, HelperConfig};
use crate::process::ready::Startup;
use crate::process::signals::SignalQueue;
use crate::process::status_file::CommandStatus;
use crate::process::{Client, KILLED, Outcome};
use crate::ui::Ui;
use crate::ui::progress::Progress;
use crate::ui::shell::shell_words;

/// How long the client may take to remove the container after the command has ended.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the engine may take to say whether it has a container.
const LOOK_TIMEOUT: Duration = Duration::from_secs(15);

/// The connection broke while the sandbox ran, or before its command started.
#[derive(Debug, thiserror::Error)]
pub enum RemoteContainerError {
    #[error("the connection to the sandbox at `{address}` was lost")]
    Lost { address: String, message: String, look: String },
    #[error("the sandbox at `{address}` ended without its command's exit code")]
    Ended { address: String },
}

impl Diagnostic for RemoteContainerError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Lost { message, .. } => vec![message.clone()],
            Self::Ended { .. } => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Lost { look, .. } => vec![
                "the command ends within 45 s, and the container keeps its work for an hour".into(),
                format!("see what is left with `{look}`"),
            ],
            Self::Ended { .. } => vec!["its machine or its daemon may have been restarted".into()],
        }
    }
}

/// Runs a container and waits for the end of its command.
pub fn run(
    session: &mut Session<'_>,
    launch: &ContainerLaunch,
    transfer: &Transfer,
    mut signals: SignalQueue,
) -> Result<Outcome> {
    session.record_start()?;
    session.repositories.begin_delayed_copies();
    let _push = session.serve_pushes();
    let Session { host, plan, ui, .. } = *session;
    let calls = &session.calls.insert(EndCalls::new(&launch.client)).clone();
    for (path, content) in &launch.files {
        session.directory.write_private(path, content)?;
    }
    let mut container = ContainerGuard { launch, calls, name: plan.id.name(), armed: true };
    let mut command = launch.client.command(launch.argv.iter().skip(1))?;
    remote::with_pipes(&mut command);
    ui.verbose(&format!("starting: {}", shell_words(&launch.argv)));
    let engine = plan.engine.kind.name();
    let helper = SentHelper::of(host);
    let client = command.spawn().map_err(|source| SessionError::StartClient { engine, source })?;
    session.sweep.start();
    let progress = Progress::start(ui, format!("{engine} at {} to start the sandbox", transfer.address));
    let connection = match Connection::open(client, helper, || signals.termination_signal()) {
        Ok(Startup::Ready(connection)) => connection,
        Ok(Startup::Interrupted(signal)) => return Ok(Outcome::Signaled(signal)),
        Err(RemoteError::SendHelper { message }) => {
            // One of the same name may be another user's.
            container.armed = plan.session_dir.join(CONTAINER_ID).as_path().exists();
            return Err(failure::explain_remote(host, plan, launch, calls, message));
        }
        Err(error) => return Err(error.into()),
    };
    drop(progress);
    let record = ReturnRecord::of(plan);
    let mut returns = remote::prepare_returns(plan, record.as_ref())?;
    remote::copy_files(plan, &transfer.copies, record.as_ref(), &connection, ui)?;
    if let Some(signal) = signals.termination_signal() {
        return Ok(Outcome::Signaled(signal));
    }
    let channel = ChannelThread::start(plan, &launch.client, &launch.channel, Existence::Now, ui);
    session.gates.start(plan);
    let lost = |message: String| -> Error {
        let name = plan.id.name();
        let words = launch.client.pin().into_iter().map(|word| word.to_string_lossy().into_owned());
        let pin = words.collect::<Vec<_>>().join(" ");
        let look = format!("{engine} {pin} ps --all --filter name={name}");
        RemoteContainerError::Lost { address: transfer.address.clone(), message, look }.into()
    };
    let request = StartRequest {
        directory: plan.workdir.as_path().to_owned(),
        terminal: plan.terminal.then(remote::terminal_size),
        is_offline: false,
        helper: plan.helper_config.clone(),
    };
    remote::describe(&connection.writer, &plan.env, &plan.command, &request)
        .map_err(|error| lost(error.to_string()))?;
    session.repositories.exchange_in_background();
    let on_agent = session.gates.take_agent_action();
    let end = remote::relay_command(&connection, signals, plan.terminal, returns.as_mut(), on_agent);
    drop(channel);
    let is_lost = matches!(end, RelayEnd::Lost(_));
    // An exit code counts only if the helper said it.
    let outcome = match end {
        RelayEnd::Status(CommandStatus::Ended(code)) => Ok(Outcome::Exited(code)),
        RelayEnd::Status(CommandStatus::OutOfMemory) => {
            failure::explain_memory(plan, KILLED, ui);
            Ok(KILLED)
        }
        RelayEnd::Status(status) => {
            failure::explain_command(plan, status, ui);
            Ok(Outcome::Exited(status.exit_code()))
        }
        RelayEnd::GuestLost => Err(RemoteContainerError::Ended { address: transfer.address.clone() }.into()),
        RelayEnd::Failed(message) => Err(RemoteError::Protocol { message }.into()),
        RelayEnd::Lost(link) => Err(lost(link.message)),
    };
    let mut is_back = true;
    if let Some(returns) = &mut returns {
        let progress = Progress::start(ui, "the changes to come back");
        let first = if is_lost { None } else { Some(returns.finish(&connection)) };
        let there = There { client: &launch.client, name: plan.id.name() };
        let done = match first {
            Some(Err(ReturnError::Lost(_))) | None => remote::reconnect(returns, || there.connect(), || there.look()),
            Some(done) => done,
        };
        drop(progress);
        returns.report(ui);
        if let Err(ReturnError::Failed(reason) | ReturnError::Lost(LostLink { message: reason })) = done {
            is_back = false;
            ui.warn(&format!("the last changes are still in the container `{}`: {reason}", plan.id.name()));
            ui.hint("the container keeps them for an hour, and the next `sandpen diff` or `sandpen ps` brings them");
        }
    }
    if !is_back {
        container.armed = false;
        session.is_waiting = true;
        return outcome;
    }
    // The client exits when the engine has removed the container.
    let _ = connection.writer.send(&LinkFrame::Leave);
    container.armed = is_lost || !connection.await_exit(Instant::now() + EXIT_TIMEOUT);
    outcome
}

/// A container that was started by another connection.
struct There<'a> {
    client: &'a Client,
    name: String,
}

impl There<'_> {
    /// Connects to the first process inside.
    fn connect(&self) -> std::result::Result<Child, String> {
        self.exec("0:0", "/", &remote::link_command())
    }

    /// Starts a process inside, over pipes.
    fn exec(&self, user: &str, directory: &str, command: &[String]) -> std::result::Result<Child, String> {
        let exec = ["exec", "--interactive", "--user", user, "--workdir", directory, &self.name].map(OsString::from);
        let words = self.client.pin().into_iter().chain(exec).chain(command.iter().map(OsString::from));
        let mut command = self.client.command(words).map_err(|error| error.to_string())?;
        remote::with_pipes(&mut command);
        command.spawn().map_err(|error| error.to_string())
    }

    fn look(&self) -> Presence {
        let filter = format!("name=^/?{}$", self.name);
        let question = ask::question(self.client, &["ps", "--filter", &filter, "--format", "{{.Names}}"]);
        match question.and_then(|mut command| ask::within(&mut command, LOOK_TIMEOUT)) {
            Some(output) if output.status.success() && output.stdout.trim_ascii().is_empty() => Presence::Gone,
            Some(output) if output.status.success() => Presence::There,
            _ => Presence::Unknown,
        }
    }
}

/// Brings home what a killed launcher left in a container.
pub fn recover(client: &Client, name: &str, session: &HostPath, ui: Ui) -> Recovered {
    let there = There { client, name: name.to_owned() };
    remote::recover(session, name, || there.connect(), || there.look(), ui)
}

/// Runs another command in a container, with the restrictions and the variables of the first one.
pub fn exec(host: &Host, record: &Record, command: Vec<OsString>) -> Result<Outcome> {
    let client = record.client(&crate::facts::host_path(host));
    let there = There { client: &client, name: record.name.clone() };
    let user = record.user.map_or_else(String::new, |(user, group)| format!("{user}:{group}"));
    let words = [&format!("{CONTROL_DIR}/sandpen"), "pod", "exec"].map(str::to_owned);
    let lost = |message: String| -> Error {
        let address = record.endpoint.last().cloned().unwrap_or_default();
        RemoteContainerError::Lost { address, message, look: "sandpen ps".into() }.into()
    };
    let signals = SignalQueue::start().map_err(SessionError::Signals)?;
    let started = there.exec(&user, "/", &words).map_err(lost)?;
    let connection = Connection::resume(started).map_err(|error| lost(error.message))?;
    let has_terminal = host.terminal.stdin && host.terminal.stdout;
    let request = StartRequest {
        directory: record.directory.clone().into(),
        terminal: has_terminal.then(remote::terminal_size),
        is_offline: false,
        helper: HelperConfig { exec: true, append_path: record.append_path.clone(), ..HelperConfig::default() },
    };
    remote::describe(&connection.writer, &[], &command, &request).map_err(|error| lost(error.to_string()))?;
    match remote::relay_command(&connection, signals, has_terminal, None, None) {
        RelayEnd::Status(CommandStatus::Ended(code)) => Ok(Outcome::Exited(code)),
        RelayEnd::Status(CommandStatus::OutOfMemory) => Ok(KILLED),
        RelayEnd::Status(status) => Ok(Outcome::Exited(status.exit_code())),
        RelayEnd::GuestLost => Err(lost("the sandbox has ended".into())),
        RelayEnd::Failed(message) => Err(RemoteError::Protocol { message }.into()),
        RelayEnd::Lost(error) => Err(lost(error.message)),
    }
}
