//! `sandpen run`: plans a sandbox, launches it and waits for it to exit.

use crate::cli::Run;
use crate::error::Result;
use crate::process::Outcome;
use crate::resolve::Resolved;
use crate::session;
use crate::ui::Ui;

pub fn run(arguments: Run, ui: Ui) -> Result<Outcome> {
    super::mark_inherited_files_close_on_exec();
    let resolved = Resolved::read(&arguments.options, arguments.guest)?.for_launch(ui)?;
    let (plan, launch) = resolved.ready(resolved.id(), ui)?;
    session::run(&resolved.host, &plan, &launch, ui)
}
