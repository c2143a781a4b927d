//! Starts sandboxes, waits for them and cleans up after them. A session is one sandbox from the
//! creation of its directory to its removal; guards undo each step once, in reverse order, on this
//! thread.
//!
//! ```text
//! run ─► SessionDirectory ─► record, private Git ─► container, native or seatbelt ─► exchange
//!           directory          registry, gate          with proxy and tunnel
//! ```
//!
//! `cleanup` and `registry` find the sandboxes of other sandpen processes and remove what killed
//! ones left.

pub(crate) mod cache;
pub(crate) mod cleanup;
mod client_terminal;
mod client_wait;
mod container;
mod container_entry;
mod detached;
mod directory;
mod end_calls;
#[cfg(target_os = "linux")]
mod environment;
mod error;
mod failure;
mod gates;
#[cfg(target_os = "linux")]
mod mount_sources;
#[cfg(target_os = "linux")]
mod native;
#[cfg(target_os = "linux")]
mod native_entry;
pub(crate) mod outcome_file;
mod ports;
mod proxy;
mod proxy_process;
pub(crate) mod registry;
mod seatbelt;
mod spare;
mod tunnel;

pub use container::{has_host_service, run_engine};
pub use container_entry::ContainerCommand;
pub use detached::{detach, socket_of};
#[cfg(target_os = "linux")]
pub use native_entry::{enter as enter_native, leave as leave_in_native};
pub use ports::PortAccess;
pub use seatbelt::enter as enter_seatbelt;

use crate::error::Result;
use crate::gate::agent_state::{LiveState, StateExchange};
use crate::gate::push::PushListener;
use crate::gate::repository::{LiveExchange, Report, RepositoryExchange};
use crate::host::Host;
use crate::launch::Launch;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::process::bounded_work::BoundedWork;
use crate::process::signals::SignalQueue;
use crate::ui::Ui;
use detached::Detached;
use end_calls::EndCalls;
use error::SessionError;
use gates::Gates;

/// Runs a sandbox and waits for its end.
pub fn run(host: &Host, plan: &Plan, launch: &Launch, ui: Ui) -> Result<Outcome> {
    run_with_inspection(host, plan, launch, ui, || ()).map(|(outcome, ())| outcome)
}

/// Where the guest's terminal leads.
#[derive(Debug)]
enum Streams {
    /// To the terminal of the caller, if there is one. Other streams are the caller's.
    Caller,
    /// To clients of `sandpen attach`.
    Detached(Detached),
}

/// Runs a sandbox, and calls `inspect` after its end, before the session's directory is removed.
pub fn run_with_inspection<T>(
    host: &Host,
    plan: &Plan,
    launch: &Launch,
    ui: Ui,
    inspect: impl FnOnce() -> T,
) -> Result<(Outcome, T)> {
    run_with(host, plan, launch, ui, Streams::Caller, inspect)
}

fn run_with<T>(
    host: &Host,
    plan: &Plan,
    launch: &Launch,
    ui: Ui,
    mut streams: Streams,
    inspect: impl FnOnce() -> T,
) -> Result<(Outcome, T)> {
    // Signals are caught first, so that none ends sandpen before the guards below have run.
    let signals = SignalQueue::start().map_err(SessionError::Signals)?;
    let directory = directory::SessionDirectory::create(plan)?;
    let mut record = registry::Record::new(host, plan, launch);
    record.detached = matches!(streams, Streams::Detached(_));
    let push = PushListener::open(plan).map_err(SessionError::Push)?;
    let mut repositories = Repositories::default();
    let mut gates = Gates::open(plan)?;
    let log = gates.log.clone();
    // Must be done before the guest runs; the native engine does it while the sandbox is being set
    // up.
    let record_start = |repositories: &mut Repositories| -> Result<()> {
        // Without a record `ps` does not list the sandbox, which runs all the same.
        let _ = registry::write(&plan.session_dir, &record);
        let work = BoundedWork::begin();
        let started = RepositoryExchange::start(&plan.repository_gate, &plan.session_dir);
        let stopped = work.signal();
        drop(work);
        if let (Err(_), Some(signal)) = (&started, stopped) {
            return Err(SessionError::Stopped(signal).into());
        }
        let state = StateExchange::start(&plan.agent_state).map_err(SessionError::AgentState)?;
        let mut started = started.map_err(SessionError::Repositories)?;
        started.record_in(log);
        *repositories = Repositories::Ready(Box::new(started), state);
        Ok(())
    };
    let mut sweep = registry::BackgroundSweep::new(&plan.session_dir);
    let mut calls = None;
    let outcome = match launch {
        Launch::Container(launch) => {
            record_start(&mut repositories)?;
            repositories.exchange_in_background();
            let _push = push.map(|push| push.serve(host, plan, gates.log.clone(), ui));
            let calls = calls.insert(EndCalls::new(&launch.client));
            container::run(host, plan, launch, &directory, &mut sweep, signals, &mut streams, calls, &mut gates, ui)
        }
        Launch::Seatbelt(launch) => {
            record_start(&mut repositories)?;
            seatbelt::run(host, plan, launch, &directory, &mut sweep, signals, &mut gates, ui)
        }
        #[cfg(target_os = "linux")]
        Launch::Native(launch) => native::run(
            host,
            plan,
            launch,
            push,
            &mut sweep,
            signals,
            &mut streams,
            &mut repositories,
            &mut gates,
            record_start,
            ui,
        ),
    };
    // What the guest has left may take long to look at.
    let work = BoundedWork::begin();
    let inspected = inspect();
    sweep.finish().print(ui);
    let is_complete = match repositories.finish(ui) {
        Ok(report) => {
            report.print(ui);
            report.record(&gates.log);
            true
        }
        Err(report) => {
            report.print(ui);
            report.record(&gates.log);
            ui.hint("the next sandpen command tries again; `sandpen prune` gives up what cannot come out");
            false
        }
    };
    drop(work);
    gates.end(outcome.as_ref(), ui);
    record.unfinished = calls.and_then(|calls| calls.unfinished());
    if record.unfinished.is_some() {
        ui.warn(&format!(
            "{} does not answer: the container `{}` may still exist; the next sandpen command removes it",
            record.engine, record.name
        ));
        record.ended = outcome.as_ref().ok().map(|outcome| outcome.exit_code());
        let _ = registry::write(&plan.session_dir, &record);
        directory.keep(launch.container().into_iter().flat_map(|launch| launch.files.iter().map(|(path, _)| path)));
        return Ok((outcome?, inspected));
    }
    if !is_complete {
        directory.leave();
        return Ok((outcome?, inspected));
    }
    let outcome = outcome?;
    if let Streams::Detached(detached) = &streams
        && detached.has_started()
    {
        record.ended = Some(outcome.exit_code());
        let _ = registry::write(&plan.session_dir, &record);
        directory.end();
    } else if let (true, Some(launch)) = (record.keep, launch.container()) {
        record.ended = Some(outcome.exit_code());
        let _ = registry::write(&plan.session_dir, &record);
        directory.keep(launch.files.iter().map(|(path, _)| path));
    }
    Ok((outcome, inspected))
}

/// The exchange with the host's repositories and of the agent's files: before the launch, in this
/// thread, or in another one.
#[derive(Default)]
pub enum Repositories {
    #[default]
    None,
    Ready(Box<RepositoryExchange>, StateExchange),
    Live(LiveExchange, LiveState),
}

impl Repositories {
    /// Gives the guest, which has started, what it does not need at once.
    pub fn begin_delayed_copies(&self) {
        if let Repositories::Ready(exchange, _) = self {
            exchange.begin_delayed_copies();
        }
    }

    /// Lets other threads exchange what changes while the sandbox runs.
    pub fn exchange_in_background(&mut self) {
        if let Repositories::Ready(exchange, state) = std::mem::take(self) {
            *self = Repositories::Live(LiveExchange::start(*exchange), LiveState::start(state));
        }
    }

    /// Exchanges everything after the guest has ended.
    fn finish(self, ui: Ui) -> std::result::Result<Report, Report> {
        match self {
            Repositories::None => Ok(Report::default()),
            Repositories::Ready(mut exchange, mut state) => {
                state.finish(ui);
                exchange.finish()
            }
            Repositories::Live(live, state) => {
                if let Some(mut state) = state.stop() {
                    state.finish(ui);
                }
                live.stop().map_or_else(|| Err(Report::default()), |mut exchange| exchange.finish())
            }
        }
    }
}
