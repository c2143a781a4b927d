//! `sandpen run`: plans a sandbox, launches it, and waits for it to exit unless it is detached.

use crate::cli::Run;
use crate::error::Result;
use crate::host::Host;
use crate::plan::questions::Purpose;
use crate::process::{Outcome, restart};
use crate::resolve::Resolved;
use crate::session;
use crate::ui::Ui;

pub fn run(arguments: Run, ui: Ui) -> Result<Outcome> {
    super::mark_inherited_files_close_on_exec();
    let mut host = Host::read()?;
    if arguments.detach {
        // The guest gets a terminal to which `sandpen attach` connects.
        (host.terminal.stdin, host.terminal.stdout) = (true, true);
    }
    let resolved = Resolved::on(host, &arguments.options, arguments.guest, Purpose::Run)?.for_launch(ui)?;
    let (plan, launch) = resolved.ready(resolved.id(), ui)?;
    if arguments.detach {
        return session::detach(&resolved.host, &plan, &launch, ui);
    }
    let outcome = session::run(&resolved.host, &plan, &launch, ui)?;
    if plan.restart_on.is_some_and(|code| outcome == Outcome::Exited(code)) {
        ui.verbose(&format!("the command asks to be started again (exit code {})", outcome.exit_code()));
        let copy = plan.workspace.copy.as_ref().map(|copy| copy.id.clone());
        // Without changes it was removed.
        let copy = copy.filter(|id| super::workspace::waiting(&resolved.host).iter().any(|copy| copy.id == *id));
        match restart::restart(&resolved.host, copy.as_deref()) {
            Some(error) => ui.warn(&format!("cannot start the command again: {error}")),
            None => ui.warn("the command asked too often to be started again"),
        }
    }
    Ok(outcome)
}
