//! Runs a native sandbox: this process is the launcher, a fork of it is pid 1 of the sandbox.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal};

use super::cache::{CacheLayers, NOT_KEPT};
use super::detached::{Detached, ServedTerminal};
use super::environment;
use super::error::SessionError;
use super::failure;
use super::proxy::Filter;
use super::repositories::Repositories;
use super::{Session, Streams};
use crate::error::Result;
use crate::gate::streams::RelayedStreams;
use crate::gate::terminal::{GuestTerminal, Pty, Relay};
use crate::helper::{BoundIndex, PreparedCommand, complete_paths};
use crate::image::hold_layer;
use crate::launch::native::step::Step;
use crate::launch::native::{self, NativeLaunch};
use crate::launch::refuse_downgrades;
use crate::native::{Child, Command, Event, Init, SessionStreams, spawn};
use crate::plan::{HelperConfig, Plan};
use crate::process::lease;
use crate::process::ready::Startup;
use crate::process::signals::{ReadyAction, SignalQueue, SignalTarget, poll_until};
use crate::process::status_file::CommandStatus;
use crate::process::{Outcome, release_pages};

/// The terminal of a guest that has not started yet.
pub enum Prepared<'a> {
    None,
    Caller(GuestTerminal),
    Detached(&'a mut Detached, Pty),
}

impl<'a> Prepared<'a> {
    pub fn open(streams: &'a mut Streams) -> Result<Self> {
        Ok(match streams {
            Streams::Caller => {
                GuestTerminal::open().map_err(SessionError::Terminal)?.map_or(Prepared::None, Prepared::Caller)
            }
            Streams::Detached(detached) => {
                let pty = detached.open()?;
                Prepared::Detached(detached, pty)
            }
        })
    }

    pub fn streams(&self) -> SessionStreams<'_> {
        match self {
            Prepared::None => SessionStreams::Caller,
            Prepared::Caller(terminal) => SessionStreams::Terminal(terminal.slave()),
            Prepared::Detached(_, pty) => SessionStreams::OnlyTerminal(pty.slave.as_fd()),
        }
    }

    /// Starts the command of a guest with this terminal.
    pub fn start(&self, init: &Init, mut command: Command, then: impl FnOnce()) -> i32 {
        command.foreground = match self {
            Prepared::None => false,
            Prepared::Caller(terminal) => terminal.starts_in_foreground(),
            Prepared::Detached(..) => true,
        };
        command.reports_start = matches!(self, Prepared::Detached(..));
        init.run_guest(&command, then)
    }

    fn relay(self) -> Result<Relayed<'a>> {
        Ok(match self {
            Prepared::None => Relayed::None,
            Prepared::Caller(terminal) => Relayed::Caller(terminal.relay().map_err(SessionError::Terminal)?),
            Prepared::Detached(detached, pty) => {
                let terminal = detached.serve(pty)?;
                Relayed::Detached(detached, terminal)
            }
        })
    }
}

/// The terminal of a running guest.
enum Relayed<'a> {
    None,
    Caller(Relay),
    Detached(&'a mut Detached, ServedTerminal),
}

impl Relayed<'_> {
    fn resize(&self) {
        if let Relayed::Caller(relay) = self {
            relay.resize();
        }
    }

    fn report_start(&mut self) {
        if let Relayed::Detached(detached, _) = self {
            detached.report_start();
        }
    }

    fn take_input(&self) {
        if let Relayed::Caller(relay) = self {
            relay.take_input();
        }
    }

    /// Stops sandpen, so that the shell notices, until the user resumes it. Nobody could resume a
    /// detached sandbox, so it goes on at once.
    fn stop(&self) {
        match self {
            Relayed::Caller(relay) => relay.suspend(),
            Relayed::None => {
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            }
            Relayed::Detached(..) => {}
        }
    }

    fn finish(self, exit_code: u8) {
        if let Relayed::Detached(detached, terminal) = self {
            detached.finish(terminal, exit_code);
        }
    }
}

/// Takes the project's layers of package caches, if the launch uses any. Returns a launch with layers
/// of the session if another sandbox has them: two overlays must not share one.
fn take_layers(plan: &Plan, launch: &NativeLaunch, taken: &mut Option<CacheLayers>) -> Result<Option<NativeLaunch>> {
    let project = launch.setup.steps.iter().find_map(|step| match step {
        Step::Cache(cache) if !cache.is_needed => cache.layer.parent(),
        _ => None,
    });
    let Some(project) = project else { return Ok(None) };
    let layers = taken.insert(CacheLayers::take(project).map_err(SessionError::Cache)?);
    if !layers.is_shared() {
        return Ok(None);
    }
    let mut changed = launch.clone();
    for step in &mut changed.setup.steps {
        if let Step::Cache(cache) = step
            && !cache.is_needed
        {
            let place = layers.place(&cache.layer, &plan.session_dir).map_err(SessionError::Cache)?.into_owned();
            cache.layer = place;
        }
    }
    Ok(Some(changed))
}

/// Keeps the image's layers from being removed while the sandbox runs.
fn hold_layers(launch: &NativeLaunch) -> Result<Vec<File>> {
    let layers = launch.setup.root.iter().flat_map(|root| &root.lowers);
    let held = layers.map(|layer| hold_layer(layer)).collect::<std::io::Result<_>>();
    Ok(held.map_err(SessionError::ImageLayers)?)
}

/// Waits for the sandbox's end and restores the terminal. Returns a status if the command did not
/// start or memory ran out.
pub fn supervise(
    mut child: Child,
    terminal: Prepared<'_>,
    signals: SignalQueue,
    repositories: &mut Repositories,
    mut agent: Option<ReadyAction>,
) -> Result<(Outcome, Option<CommandStatus>)> {
    let mut relay = terminal.relay()?;
    signals.catch_stop().map_err(SessionError::Signals)?;
    let pid = child.pid();
    let kill = move || {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    };
    let target = SignalTarget::Sandbox {
        init: pid,
        command: Box::new(move || guest_of(pid)),
        has_terminal: !matches!(relay, Relayed::None),
    };
    // In this thread: starting another takes longer than many commands.
    let mut forwarder = signals.forwarder(target, None, kill);
    let mut release_at = Some(Instant::now() + release_pages::MIN_GUEST_TIME);
    let (mut status, mut is_stopped) = (None, false);
    let code = loop {
        let (is_event, is_agent_used) = {
            let mut descriptors = vec![child.poll(), forwarder.poll()];
            descriptors.extend(agent.iter().map(|agent| PollFd::new(&agent.descriptor, PollFlags::IN)));
            poll_until(&mut descriptors, forwarder.deadline().into_iter().chain(release_at).min());
            let is_ready = |number: usize| descriptors.get(number).is_some_and(|fd| !fd.revents().is_empty());
            (is_ready(0), is_ready(2))
        };
        if let Some(agent) = agent.take_if(|_| is_agent_used) {
            agent.run();
        }
        let arrived = forwarder.forward();
        if arrived.contains(&libc::SIGWINCH) {
            relay.resize();
        }
        if arrived.contains(&lease::SIGNAL) {
            repositories.begin_delayed_copies();
        }
        if arrived.contains(&libc::SIGTSTP) {
            if let Some(group) = guest_of(pid) {
                let _ = rustix::process::kill_process_group(group, Signal::STOP);
            }
            is_stopped = true;
            relay.stop();
            let _ = child.signal(Signal::CONT);
        }
        if release_at.is_some_and(|time| time <= Instant::now()) {
            repositories.exchange_in_background();
            release_pages::release_code_pages();
            release_at = None;
        }
        if !is_event {
            continue;
        }
        match child.event() {
            Ok(Event::Exited(code)) => break Ok(code),
            Ok(Event::Started) => relay.report_start(),
            Ok(Event::NotStarted(errno)) => status = Some(CommandStatus::from_exec_error(errno)),
            Ok(Event::Stopped(libc::SIGTTIN | libc::SIGTTOU)) => {
                relay.take_input();
                let _ = child.signal(Signal::CONT);
            }
            Err(rustix::io::Errno::INTR) => {}
            // It was stopped together with sandpen, and is resumed.
            Ok(Event::Stopped(libc::SIGSTOP)) if std::mem::take(&mut is_stopped) => {}
            Ok(Event::Stopped(_)) => {
                relay.stop();
                let _ = child.signal(Signal::CONT);
            }
            Err(error) => break Err(SessionError::WaitForSandbox(error)),
        }
    };
    relay.finish(code.as_ref().map_or(u8::MAX, |code| *code as u8));
    if child.ran_out_of_memory() {
        status = Some(CommandStatus::OutOfMemory);
    }
    child.detach();
    Ok((Outcome::Exited(code? as u8), status))
}

/// Runs a sandbox and waits for its end.
pub fn run(
    session: &mut Session,
    launch: &NativeLaunch,
    mut signals: SignalQueue,
    streams: &mut Streams,
) -> Result<Outcome> {
    let Session { host, plan, ui, .. } = *session;
    let filter = match Filter::for_native(host, plan, &session.gates, ui, || signals.termination_signal())? {
        Startup::Ready(filter) => filter,
        Startup::Interrupted(signal) => return Ok(Outcome::Signaled(signal)),
    };
    // Dropped last, after everything that prints.
    let mut relayed = match streams {
        Streams::Caller => RelayedStreams::open().map_err(SessionError::Streams)?,
        Streams::Detached(_) => RelayedStreams::default(),
    };
    let mut layers = None;
    let with_private_layers;
    let launch = match take_layers(plan, launch, &mut layers)? {
        None => launch,
        Some(changed) => {
            ui.verbose(NOT_KEPT);
            with_private_layers = changed;
            &with_private_layers
        }
    };
    // The layers stay as long as this process and its fork live.
    let _layers = hold_layers(launch)?;
    let terminal = Prepared::open(streams)?;
    // This process has one thread until then, which the fork needs.
    let pending = spawn(&launch.setup, terminal.streams(), |init| match command(launch) {
        Some(command) => {
            // Connections wait until the guest runs, which is the first child of pid 1.
            let index = launch.helper_config.package_index.as_ref().and_then(BoundIndex::bind);
            terminal.start(init, command, || index.map_or((), BoundIndex::serve))
        }
        None => CommandStatus::NotExecutable.exit_code().into(),
    })?;
    let downgrades = pending
        .unenforced
        .as_ref()
        .map_or_else(Vec::new, |unenforced| native::unenforced(plan, unenforced.limits, &unenforced.error));
    if plan.strict {
        refuse_downgrades(&downgrades)?;
    }
    // Pid 1 mounts the file systems meanwhile, and starts the guest only after `finish`. `exec` may come
    // as soon as the guest runs.
    let variables = environment(launch);
    let variables = variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    let _environment = environment::keep(variables).map_err(SessionError::KeepEnvironment)?;
    session.record_start()?;
    session.sweep.sweep_if_needed();
    // Threads may start only after the fork.
    let _push = session.serve_pushes();
    if session.repositories.has_delayed_copies() {
        signals.catch_lease().map_err(SessionError::Signals)?;
    }
    let mut child = pending.finish()?;
    relayed.start();
    session.gates.start(plan);
    let mut filter = filter;
    if let Some(filter) = &mut filter {
        let pid = child.pid();
        let kill = move || {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        };
        filter.supervise(child.listener.take(), Box::new(kill));
    }
    for downgrade in &downgrades {
        ui.warn(&format!("{}: {} ({})", downgrade.asked, downgrade.got, downgrade.reason));
    }
    let (outcome, status) =
        supervise(child, terminal, signals, &mut session.repositories, session.gates.take_agent_action())?;
    match status {
        Some(CommandStatus::OutOfMemory) => failure::explain_memory(plan, outcome, ui),
        Some(status) => failure::explain_command(plan, status, ui),
        None => {}
    }
    filter.map_or(Ok(()), |filter| filter.close(ui))?;
    if let Some(layers) = layers {
        layers.finish();
    }
    Ok(outcome)
}

/// Returns the guest's process, which leads its process group: the oldest child of pid 1. `None`
/// before it starts and after it ends.
fn guest_of(init: Pid) -> Option<Pid> {
    let guest = first_child(init.as_raw_nonzero().get().unsigned_abs())?;
    Pid::from_raw(i32::try_from(guest).ok()?)
}

pub fn first_child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Makes the command with its environment. Looks for shells, so it must be called inside the
/// sandbox.
fn command(launch: &NativeLaunch) -> Option<Command> {
    let environment = environment(launch);
    let variable = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    // PATH and PYTHONPATH are complete.
    let config = HelperConfig { startup: launch.helper_config.startup.clone(), ..HelperConfig::default() };
    let prepared = PreparedCommand::new(&config, launch.argv.clone(), variable("PATH"), None);
    Command::new(&prepared.argv, environment.iter().map(|(name, value)| (name, value)), &prepared.path)
}

/// Returns the variables of every command in the sandbox, with the workspace's directories in PATH.
fn environment(launch: &NativeLaunch) -> Vec<(OsString, OsString)> {
    let variable =
        |name: &str| launch.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.reveal().to_owned());
    let (path, python_path) = complete_paths(&launch.helper_config, variable("PATH"), variable("PYTHONPATH"));
    let replaced = [("PATH", Some(path)), ("PYTHONPATH", python_path)];
    let kept = launch.env.iter().filter(|(name, _)| !replaced.iter().any(|(other, _)| name == other));
    let kept = kept.map(|(name, value)| (OsString::from(name), value.reveal().to_owned()));
    let added = replaced.iter().filter_map(|(name, value)| Some((OsString::from(name), value.clone()?)));
    kept.chain(added).collect()
}
