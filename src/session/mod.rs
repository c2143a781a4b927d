//! Starts sandboxes, waits for them and cleans up after them. A session is one sandbox from the
//! creation of its directory to its removal; guards undo each step once, in reverse order, on this
//! thread.
//!
//! ```text
//! run ─► SessionDirectory ─► record, Git baseline ─► container, native or seatbelt ─► review
//!           directory          registry, guard          with proxy and tunnel
//! ```
//!
//! `cleanup` and `registry` find the sandboxes of other sandpen processes and remove what killed
//! ones left.

pub(crate) mod cleanup;
mod container;
mod directory;
mod error;
mod failure;
#[cfg(target_os = "linux")]
mod native;
pub(crate) mod outcome_file;
mod proxy;
mod proxy_process;
pub(crate) mod registry;
mod seatbelt;
mod tunnel;

pub use container::{attach, has_host_service, run_engine};
#[cfg(target_os = "linux")]
pub use native::enter as enter_native;
pub use seatbelt::enter as enter_seatbelt;

use crate::error::Result;
use crate::guard::{Baseline, background_review};
use crate::host::Host;
use crate::launch::Launch;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::process::signals::SignalQueue;
use crate::ui::Ui;
use error::SessionError;

/// Runs a sandbox and waits for its end.
pub fn run(host: &Host, plan: &Plan, launch: &Launch, ui: Ui) -> Result<Outcome> {
    run_with_inspection(host, plan, launch, ui, || ()).map(|(outcome, ())| outcome)
}

/// Runs a sandbox, and calls `inspect` after its end, before the session's directory is removed.
pub fn run_with_inspection<T>(
    host: &Host,
    plan: &Plan,
    launch: &Launch,
    ui: Ui,
    inspect: impl FnOnce() -> T,
) -> Result<(Outcome, T)> {
    // Signals are caught first, so that none ends sandpen before the guards below have run.
    let signals = SignalQueue::start().map_err(SessionError::Signals)?;
    let directory = directory::SessionDirectory::create(plan)?;
    let mut record = registry::Record::new(host, plan, launch);
    let mut baseline = None;
    // Must be done before the guest runs; the native engine does it while the sandbox is being set
    // up.
    let mut record_start = || -> Result<()> {
        // Without a record `ps` does not list the sandbox, which runs all the same.
        let _ = registry::write(&plan.session_dir, &record);
        let recorded = plan.guard.as_ref().map(|guard| Baseline::record(guard, &plan.session_dir)).transpose();
        baseline = recorded.map_err(SessionError::Baseline)?;
        if let Some(Err(error)) = baseline.as_ref().map(|baseline| baseline.save(&plan.session_dir)) {
            ui.warn(&format!("if sandpen is killed, changes to Git's files will not be reviewed: {error}"));
        }
        Ok(())
    };
    let mut sweep = registry::BackgroundSweep::new(&plan.session_dir);
    let outcome = match launch {
        Launch::Container(launch) => {
            record_start()?;
            container::run(host, plan, launch, &directory, &mut sweep, signals, ui)
        }
        Launch::Seatbelt(launch) => {
            record_start()?;
            seatbelt::run(host, plan, launch, &directory, &mut sweep, signals, ui)
        }
        #[cfg(target_os = "linux")]
        Launch::Native(launch) => native::run(host, plan, launch, &mut sweep, signals, record_start, ui),
    };
    let inspected = inspect();
    let own = baseline.as_mut().map(|baseline| baseline.conclude(&plan.session_dir));
    for review in sweep.finish().reviews.iter().chain(&own) {
        review.print(ui);
    }
    if let (Some(false), Some(baseline)) = (own.map(|review| review.is_complete), &baseline)
        && let Err(error) = background_review::leave(baseline, &plan.session_dir, host.executable.as_ref())
    {
        ui.warn(&format!("this workspace was not searched for new repositories: {error}"));
    }
    let outcome = outcome?;
    if let (true, Some(launch)) = (record.keep, launch.container()) {
        record.ended = Some(outcome.exit_code());
        let _ = registry::write(&plan.session_dir, &record);
        directory.keep(launch.files.iter().map(|(path, _)| path));
    }
    Ok((outcome, inspected))
}
