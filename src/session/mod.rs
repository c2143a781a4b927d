//! The one place with effects at run time: it makes the session's files, starts the sandbox, waits, forwards signals, and cleans
//! up through guards, exactly once, on this thread.

pub(crate) mod cleanup;
mod container;
mod directory;
mod failure;
#[cfg(target_os = "linux")]
mod native;
pub(crate) mod outcome_file;
mod proxy;
mod proxy_process;
pub(crate) mod registry;
mod seatbelt;
mod tunnel;

pub use container::{attach, host_service_is_there, run_engine};
pub use directory::name_taken;
#[cfg(target_os = "linux")]
pub use native::enter as enter_native;
pub use seatbelt::enter as enter_seatbelt;

use crate::error::{Error, Result};
use crate::guard::{Baseline, background_review};
use crate::host::Host;
use crate::launch::Launch;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::process::signals::SignalQueue;
use crate::ui::Ui;

/// Runs the sandbox to its end.
pub fn run(host: &Host, plan: &Plan, launch: &Launch, ui: Ui) -> Result<Outcome> {
    run_with_inspection(host, plan, launch, ui, || ()).map(|(outcome, ())| outcome)
}

/// The same, with a look at the session's directory before it goes.
pub fn run_with_inspection<T>(
    host: &Host,
    plan: &Plan,
    launch: &Launch,
    ui: Ui,
    look: impl FnOnce() -> T,
) -> Result<(Outcome, T)> {
    // SignalQueue first: from here on no signal skips the guards below.
    let caught = SignalQueue::start().map_err(|error| Error::launch("signals cannot be caught").cause(error))?;
    let directory = directory::SessionDirectory::create(plan)?;
    let mut record = registry::Record::of(host, plan, launch);
    let mut guard = None;
    // What must be on record before the guest runs; an engine that can does it while the sandbox is being made.
    let mut note = || -> Result<()> {
        // Without a record `ps` does not list it; the sandbox runs all the same.
        let _ = registry::write(&plan.session_dir, &record);
        let recorded = plan.guard.as_ref().map(|guard| Baseline::record(guard, &plan.session_dir)).transpose();
        guard = recorded.map_err(|error| Error::launch("the session's own files cannot be read").cause(error))?;
        if let Some(Err(error)) = guard.as_ref().map(|guard| guard.save(&plan.session_dir)) {
            ui.warn(&format!("if sandpen is killed, nobody will review what was left in Git's files: {error}"));
        }
        Ok(())
    };
    let mut sweep = registry::BackgroundSweep::of(&plan.session_dir);
    let outcome = match launch {
        Launch::Container(launch) => {
            note()?;
            container::run(host, plan, launch, &directory, &mut sweep, caught, ui)
        }
        Launch::Seatbelt(launch) => {
            note()?;
            seatbelt::run(host, plan, launch, &directory, &mut sweep, caught, ui)
        }
        #[cfg(target_os = "linux")]
        Launch::Native(launch) => native::run(host, plan, launch, &mut sweep, caught, note, ui),
    };
    // Nothing runs inside any more.
    let seen = look();
    let own = guard.as_mut().map(|baseline| baseline.conclude(&plan.session_dir));
    for review in sweep.finish().reviews.iter().chain(&own) {
        review.tell(ui);
    }
    if let (Some(false), Some(baseline)) = (own.map(|review| review.is_complete), &guard)
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
    Ok((outcome, seen))
}
