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
use super::proxy::Filter;
use super::registry::Record;
use super::remote::{
    self, Connection, Elsewhere, Presence, Recovered, RelayEnd, Relayed, RemoteError, ReturnRecord, SentHelper,
};
use super::{Session, Streams, failure};
use crate::error::{Diagnostic, Error, Kind, Result};
use crate::facts::engines::ask;
use crate::host::Host;
use crate::launch::{CONTAINER_ID, ContainerLaunch, Transfer};
use crate::link::{LinkFrame, StartRequest};
use crate::path::HostPath;
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
    streams: &mut Streams,
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
    let terminal = streams.take_terminal()?;
    let filter = Filter::for_channel(plan, &session.gates, ui);
    let proxy = filter.as_ref().map(Filter::proxy);
    let channel = ChannelThread::start(plan, &launch.client, &launch.channel, Existence::Now, proxy, ui);
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
    let mut on_start = || streams.report_start();
    let relayed = Relayed {
        has_terminal: plan.terminal,
        returns: returns.as_mut(),
        on_ready: on_agent,
        on_start: Some(&mut on_start),
    };
    let end = remote::relay_command(&connection, signals, relayed);
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
    streams.finish(terminal, &outcome);
    if let Some(filter) = filter {
        filter.close(ui)?;
    }
    let there = There { client: &launch.client, name: plan.id.name() };
    let (is_back, connection) = match &mut returns {
        Some(returns) => remote::bring_back(returns, connection, is_lost, &there, ui),
        None => (true, Some(connection)),
    };
    if !is_back {
        container.armed = false;
        session.is_waiting = true;
        return outcome;
    }
    // The client exits when the engine has removed the container.
    container.armed = connection.filter(|_| !is_lost).is_none_or(|connection| {
        let _ = connection.writer.send(&LinkFrame::Leave);
        !connection.await_exit(Instant::now() + EXIT_TIMEOUT)
    });
    outcome
}

/// A container that was started by another connection.
struct There<'a> {
    client: &'a Client,
    name: String,
}

impl There<'_> {
    /// Starts a process inside, over pipes.
    fn exec(&self, user: &str, directory: &str, command: &[String]) -> std::result::Result<Child, String> {
        let exec = ["exec", "--interactive", "--user", user, "--workdir", directory, &self.name].map(OsString::from);
        let words = self.client.pin().into_iter().chain(exec).chain(command.iter().map(OsString::from));
        let mut command = self.client.command(words).map_err(|error| error.to_string())?;
        remote::with_pipes(&mut command);
        command.spawn().map_err(|error| error.to_string())
    }
}

impl Elsewhere for There<'_> {
    const KIND: &'static str = "container";

    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> std::result::Result<Child, String> {
        self.exec("0:0", "/", &remote::link_command())
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

    /// The commands that clean up after its record remove it.
    fn remove(&self) -> bool {
        true
    }
}

/// Brings home what a killed launcher left in a container.
pub fn recover(client: &Client, name: &str, session: &HostPath, ui: Ui) -> Recovered {
    remote::recover(session, &There { client, name: name.to_owned() }, ui)
}

/// Runs another command in a container, with the restrictions and the variables of the first one.
pub fn exec(host: &Host, record: &Record, command: &[OsString], is_detached: bool) -> Result<Outcome> {
    let client = record.client(&crate::facts::host_path(host));
    let there = There { client: &client, name: record.name.clone() };
    let user = record.user.map_or_else(String::new, |(user, group)| format!("{user}:{group}"));
    let lost = |message: String| -> Error {
        let address = record.endpoint.last().cloned().unwrap_or_default();
        RemoteContainerError::Lost { address, message, look: "sandpen ps".into() }.into()
    };
    let client = there.exec(&user, "/", &remote::exec_command()).map_err(lost)?;
    remote::exec(host, record, client, command, is_detached, lost)
}
