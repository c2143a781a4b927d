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
mod channel;
pub(crate) mod cleanup;
mod client_terminal;
mod client_wait;
mod container;
mod container_cache;
mod container_entry;
mod copied_workspace;
mod detached;
mod directory;
mod end_calls;
#[cfg(target_os = "linux")]
mod environment;
mod error;
mod failure;
mod gates;
mod kubernetes;
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
mod remote;
mod remote_container;
mod repositories;
mod reuse;
mod seatbelt;
mod spare;
mod tunnel;

pub use container::{has_host_service, run_engine};
pub use container_entry::ContainerCommand;
pub use copied_workspace::remove_copy;
pub use detached::{detach, socket_of};
pub use kubernetes::{ClusterCheckup, exec as exec_in_pod};
#[cfg(target_os = "linux")]
pub use native_entry::{enter as enter_native, leave as leave_in_native};
pub use ports::PortAccess;
pub use remote_container::exec as exec_elsewhere;
pub use seatbelt::enter as enter_seatbelt;

use std::sync::Arc;

use crate::error::Result;
use crate::gate::push::{PushGate, PushListener};
use crate::host::Host;
use crate::launch::Launch;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::process::bounded_work::BoundedWork;
use crate::process::signals::SignalQueue;
use crate::ui::Ui;
use copied_workspace::CopiedWorkspace;
use detached::{Detached, ServedTerminal};
use end_calls::EndCalls;
use error::SessionError;
use gates::Gates;
use repositories::Repositories;

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

impl Streams {
    /// Makes the terminal of a detached sandbox this process's own, for a command on another machine.
    fn take_terminal(&mut self) -> Result<Option<ServedTerminal>> {
        match self {
            Streams::Caller => Ok(None),
            Streams::Detached(detached) => detached.take_terminal().map(Some),
        }
    }

    /// Lets the caller of a detached sandbox return.
    fn report_start(&mut self) {
        if let Streams::Detached(detached) = self {
            detached.report_start();
        }
    }

    /// Ends the terminal of a detached sandbox.
    fn finish(&self, terminal: Option<ServedTerminal>, outcome: &Result<Outcome>) {
        if let (Streams::Detached(detached), Some(terminal)) = (self, terminal) {
            let code = outcome.as_ref().map_or_else(|error| error.kind().exit_code(), |outcome| outcome.exit_code());
            detached.finish(terminal, code);
        }
    }
}

/// The parts of a session, which its engine uses while the sandbox runs.
struct Session<'a> {
    host: &'a Host,
    plan: &'a Plan,
    ui: Ui,
    directory: directory::SessionDirectory,
    record: registry::Record,
    sweep: registry::BackgroundSweep,
    /// The copy that the guest changes in place of the workspace.
    copied: Option<CopiedWorkspace>,
    repositories: Repositories,
    gates: Gates,
    /// Taken when the guest starts.
    push: Option<PushListener>,
    /// The calls of a container engine's client at the end.
    calls: Option<Arc<EndCalls>>,
    /// Whether changes wait on another machine, from where the next command brings them.
    is_waiting: bool,
}

impl Session<'_> {
    /// Lists the sandbox in `ps`, and makes what the guest needs of the host's repositories. Must be
    /// done before the guest runs.
    fn record_start(&mut self) -> Result<()> {
        // Without a record `ps` does not list the sandbox, which runs all the same.
        let _ = registry::write(&self.plan.session_dir, &self.record);
        self.repositories.start(self.plan, self.gates.log.clone(), self.copied.as_mut())
    }

    /// Serves pushes until the returned value is dropped.
    fn serve_pushes(&mut self) -> Option<PushGate> {
        self.push.take().map(|push| push.serve(self.host, self.plan, self.gates.log.clone(), self.ui))
    }
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
    let copied = CopiedWorkspace::begin(plan, ui)?;
    let directory = directory::SessionDirectory::create(plan)?;
    let mut record = registry::Record::new(host, plan, launch);
    record.detached = matches!(streams, Streams::Detached(_));
    let push = PushListener::open(plan).map_err(SessionError::Push)?;
    let mut session = Session {
        host,
        plan,
        ui,
        directory,
        record,
        sweep: registry::BackgroundSweep::new(&plan.session_dir),
        copied,
        repositories: Repositories::default(),
        gates: Gates::open(host, plan)?,
        push,
        calls: None,
        is_waiting: false,
    };
    let outcome = match launch {
        Launch::Container(launch) => match &launch.transfer {
            Some(transfer) => remote_container::run(&mut session, launch, transfer, signals, &mut streams),
            None => container::run(&mut session, launch, signals, &mut streams),
        },
        Launch::Seatbelt(launch) => seatbelt::run(&mut session, launch, signals),
        Launch::Kubernetes(launch) => kubernetes::run(&mut session, launch, signals, &mut streams),
        #[cfg(target_os = "linux")]
        Launch::Native(launch) => native::run(&mut session, launch, signals, &mut streams),
    };
    // What the guest has left may take long to look at, and to remove: the directory is dropped first.
    let _work = BoundedWork::begin();
    let Session { directory, mut record, sweep, copied, repositories, gates, calls, is_waiting, .. } = session;
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
    gates.end(outcome.as_ref(), ui);
    if let Some(copied) = copied.filter(|_| !is_waiting) {
        copied.finish(ui);
    }
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
    if !is_complete || is_waiting {
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
