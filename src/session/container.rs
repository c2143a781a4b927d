//! Runs a container through its engine's client.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::{ChannelThread, Existence};
use super::client_terminal::{self, ClientTerminal, HangUp};
use super::client_wait::ClientProcess;
use super::container_cache::ContainerLayers;
use super::end_calls::{CALL_TIMEOUT, EndCalls};
use super::error::SessionError;
use super::failure;
use super::proxy::Filter;
use super::registry;
use super::tunnel::Tunnel;
use super::{Session, Streams};
use crate::error::Result;
use crate::facts::engines::checkup::CHECKUP_TIMEOUT;
use crate::facts::engines::machine::HOST_SERVICE;
use crate::facts::image::{self, Inspection};
use crate::launch::ContainerLaunch;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::process::ready::Startup;
use crate::process::signals::SignalQueue;
use crate::process::status_file::{CommandStatus, MAX_STATUS_BYTES, STATUS};
use crate::process::terminal::Terminal;
use crate::process::{CallResult, Client, Outcome, untrusted};
use crate::ui::Ui;
use crate::ui::progress::Progress;
use crate::ui::shell::shell_words;
use crate::vars;

/// How often the launcher of a detached sandbox looks whether the command has started.
const START_INTERVAL: Duration = Duration::from_millis(10);
/// How long a client may take to exit after its container was removed, in any case.
const CLIENT_EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the container that looks for the SSH agent's socket may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a container and waits for its end.
pub fn run(
    session: &mut Session,
    launch: &ContainerLaunch,
    mut signals: SignalQueue,
    streams: &mut Streams,
) -> Result<Outcome> {
    session.record_start()?;
    session.repositories.exchange_in_background();
    let _push = session.serve_pushes();
    let Session { host, plan, ui, .. } = *session;
    let calls = &session.calls.insert(EndCalls::new(&launch.client)).clone();
    let (layers, with_spare_layers) = ContainerLayers::take(plan, launch, ui)?;
    let launch = with_spare_layers.as_ref().unwrap_or(launch);
    for (path, content) in &launch.files {
        session.directory.write_private(path, content)?;
    }
    // Values are dropped in reverse order: the tunnel is closed after the container has ended.
    let tunnel = launch.tunnel.as_ref();
    let tunnel = tunnel.map(|tunnel| Tunnel::open(tunnel, &plan.session_dir, ui, || signals.termination_signal()));
    let mut tunnel = match tunnel.transpose()? {
        Some(Startup::Ready(tunnel)) => Some(tunnel),
        Some(Startup::Interrupted(signal)) => return Ok(Outcome::Signaled(signal)),
        None => None,
    };
    let mut filter =
        match Filter::for_container(plan, launch, calls, &session.gates, ui, || signals.termination_signal())? {
            Startup::Ready(filter) => filter,
            Startup::Interrupted(signal) => return Ok(Outcome::Signaled(signal)),
        };
    let _terminal = Terminal::save();
    let mut container = ContainerGuard { launch, calls, name: plan.id.name(), armed: true };
    let mut command = launch.client.command(launch.argv.iter().skip(1))?;
    for (name, value) in &launch.inherited {
        command.env(name, value.reveal());
    }
    let (served, relayed) = match streams {
        Streams::Caller => (None, ClientTerminal::open(plan.terminal)?),
        Streams::Detached(detached) => {
            let pty = detached.open()?;
            client_terminal::use_detached(&mut command, &pty)?;
            (Some(detached.serve(pty)?), None)
        }
    };
    if let Some(terminal) = &relayed {
        terminal.give_to(&mut command, HangUp::Ignored)?;
    }
    #[cfg(target_os = "linux")]
    if plan.helper.is_some() {
        super::mount_sources::note(plan)?;
    }
    ui.verbose(&format!("starting: {}", shell_words(&launch.argv)));
    let engine = plan.engine.kind.name();
    let mut child = command.spawn().map_err(|source| SessionError::StartClient { engine, source })?;
    let process = ClientProcess::of(&child);
    session.sweep.start();
    session.gates.start(plan);
    let status_file = plan.helper.as_ref().map(|_| plan.session_dir.join(STATUS));
    let waiting = status_file.clone().map(|status_file| show_wait(plan, launch, status_file, ui));
    if let Some(filter) = &mut filter {
        filter.supervise(None, Box::new(end_container(launch, calls, process)));
    }
    let channel = ChannelThread::start(plan, &launch.client, &launch.channel, Existence::WithIdFile, None, ui);
    let target = client_terminal::signal_target(&child, relayed.is_some());
    if let Some(terminal) = relayed {
        terminal.relay(&mut signals)?;
    }
    let end = end_container(launch, calls, process);
    let forwarder = signals.forward_in_thread(target, status_file.clone(), end, session.gates.take_agent_action());
    if let Streams::Detached(detached) = streams
        && await_command(&mut child, status_file.as_ref())
    {
        detached.report_start();
    }
    let read_status = || {
        let text = untrusted::read(status_file.as_ref()?.as_path(), MAX_STATUS_BYTES).ok()?;
        CommandStatus::parse(&text)
    };
    let has_guest_ended = || read_status().is_some_and(|status| !status.is_running());
    process.wait(has_guest_ended, calls, &container.name);
    // With the forwarder ends the relay, which writes what is left and restores the terminal.
    drop((forwarder, waiting, channel));
    let outcome = Outcome::from(child.wait().map_err(SessionError::WaitForClient)?);
    if let (Streams::Detached(detached), Some(served)) = (&streams, served) {
        detached.finish(served, outcome.exit_code());
    }
    let status = read_status();
    // A client that exited has removed its container (`--rm`), unless it was killed, it lost the
    // running guest, or a signal made it exit between creating the container and starting it.
    let is_left = match status {
        Some(status) => status.is_running(),
        None => plan.helper.is_some() && outcome != Outcome::Exited(0),
    };
    // Another container may have the name that the user chose; this one was not created then.
    let is_name_taken = plan.id.is_chosen() && outcome == failure::CLIENT_FAILED && !failure::has_container(plan);
    container.armed = (matches!(outcome, Outcome::Signaled(_)) || is_left) && !is_name_taken;
    drop(container);
    if let (Some(tunnel), true) = (&mut tunnel, calls.is_engine_silent()) {
        // It ends in the machine, which would not answer either.
        tunnel.kill();
    }
    let result = failure::check(host, plan, launch, outcome, status, calls, ui);
    if result.is_err() && plan.keep.is_some() && !is_name_taken {
        // A container that never ran is not worth keeping, and without `--rm` the client leaves it.
        calls.run(&launch.remove);
    }
    filter.map_or(Ok(()), |filter| filter.close(ui))?;
    layers.finish();
    result
}

/// Waits until the command has started; returns `false` if the client has ended before. Without a
/// helper nothing tells of the start.
fn await_command(child: &mut Child, status_file: Option<&HostPath>) -> bool {
    let Some(status_file) = status_file else { return true };
    let status = || untrusted::read(status_file.as_path(), MAX_STATUS_BYTES).ok().filter(|text| !text.is_empty());
    loop {
        match status().as_deref().and_then(CommandStatus::parse) {
            Some(CommandStatus::Started | CommandStatus::Ended(_) | CommandStatus::OutOfMemory) => return true,
            Some(CommandStatus::Starting) | None if matches!(child.try_wait(), Ok(None)) => {
                std::thread::sleep(START_INTERVAL);
            }
            _ => return false,
        }
    }
}

/// Tells the user that sandpen waits for the engine, until the command has started. Says nothing if
/// the image is missing, because the engine then shows how it pulls it.
fn show_wait(plan: &Plan, launch: &ContainerLaunch, status_file: HostPath, ui: Ui) -> Progress {
    let (client, image) = (launch.client.clone(), plan.image.as_ref().map(|image| image.reference.clone()));
    Progress::beside(ui, format!("{} to start the sandbox", plan.engine.kind.name()), move || {
        let is_starting = || std::fs::metadata(status_file.as_path()).is_ok_and(|meta| meta.len() == 0);
        let is_missing = |image| matches!(image::inspect_within(&client, image, CHECKUP_TIMEOUT), Inspection::Missing);
        is_starting() && !image.as_ref().is_some_and(is_missing) && is_starting()
    })
}

/// Runs a command of the engine's client whose output the user sees, for `build` and `pull`. All of
/// it goes to stderr: stdout belongs to the guest.
pub fn run_engine(client: &Client, argv: &[OsString]) -> Result<Outcome> {
    let stderr = std::io::stderr().as_fd().try_clone_to_owned();
    let stdout = stderr.map_or_else(|_| Stdio::null(), Stdio::from);
    let status = client.command(argv.iter().skip(1))?.stdin(Stdio::null()).stdout(stdout).status();
    Ok(Outcome::from(status.map_err(SessionError::RunClient)?))
}

/// Returns whether the machine has an SSH agent's socket that the guest can use (R6.1, second
/// check). Starts a container of the sandbox's image, as the guest's user.
pub fn has_host_service(launch: &ContainerLaunch, plan: &Plan) -> bool {
    let Some(image) = &plan.image else { return false };
    let mut arguments: Vec<OsString> = ["run", "--rm", "--network", "none"].map(OsString::from).into();
    // Without capabilities, as the guest: root inside may not write where permissions forbid it.
    arguments.extend(["--cap-drop", "ALL", "--security-opt", "no-new-privileges"].map(OsString::from));
    // A missing source is an error with `--mount`; `--volume` would create a directory in the
    // machine.
    arguments.extend(["--mount".into(), format!("type=bind,source={HOST_SERVICE},target=/probe").into()]);
    arguments.extend(["--env".into(), format!("{}=1", vars::GIT_DISCOVERY).into()]);
    if let (Some(uid), Some(gid), true) = (plan.user.uid, plan.user.gid, plan.user.is_host_user()) {
        arguments.extend(["--user".into(), format!("{uid}:{gid}").into()]);
    }
    arguments.extend(
        ["--group-add", "0", "--entrypoint", "test", image.reference.as_str(), "-S", "/probe", "-a", "-w", "/probe"]
            .map(OsString::from),
    );
    launch.client.run_quietly(arguments, PROBE_TIMEOUT) == CallResult::Succeeded
}

/// Returns a function that ends the container, removes it unless it is kept, and kills a client that
/// does not exit then.
fn end_container(
    launch: &ContainerLaunch,
    calls: &Arc<EndCalls>,
    process: ClientProcess,
) -> impl FnOnce() + Send + 'static {
    let (calls, argv) = (calls.clone(), launch.end.clone());
    move || {
        let limit = Instant::now() + CALL_TIMEOUT;
        let timeout = match calls.run(&argv) {
            CallResult::TimedOut => Duration::ZERO,
            CallResult::Succeeded | CallResult::Failed => {
                limit.saturating_duration_since(Instant::now()).max(CLIENT_EXIT_TIMEOUT)
            }
        };
        process.kill_after(timeout);
    }
}

/// Ends the container when its client did not.
pub struct ContainerGuard<'a> {
    pub launch: &'a ContainerLaunch,
    pub calls: &'a EndCalls,
    pub name: String,
    pub armed: bool,
}

impl Drop for ContainerGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            registry::repeat_while_in_use(&self.name, || self.calls.run(&self.launch.end));
        }
    }
}
