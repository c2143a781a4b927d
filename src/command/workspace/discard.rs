//! `sandpen discard`: removes copied workspaces with everything in them.

use super::WorkspaceCommandError;
use super::find::{self, Found};
use crate::error::Result;
use crate::event_log::Verdict;
use crate::facts;
use crate::host::Host;
use crate::process::{Client, Outcome};
use crate::session::cleanup;
use crate::session::remove_copy;
use crate::ui::Ui;

pub fn run(ids: &[String], ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    cleanup::bring_from_elsewhere(&host, ui);
    // All are found before the first is removed.
    let found: Result<Vec<_>> = ids.iter().map(|id| find::by_id(&host, id)).collect();
    for found in found? {
        remove(&host, &found, ui)?;
    }
    Ok(Outcome::Exited(0))
}

/// Removes one copy.
pub fn remove(host: &Host, found: &Found, ui: Ui) -> Result<()> {
    let path = facts::search_path(host);
    let podman = path.find("podman").map(|program| Client {
        program: Some(program),
        path: path.for_host(),
        machine: None,
        endpoint: Vec::new(),
    });
    let id = &found.copy.id;
    // Held until it is gone, so that no sandbox takes it meanwhile.
    let _lock = found.store.lock(id).map_err(|_| WorkspaceCommandError::Used(id.clone()))?;
    remove_copy(&found.store, id, podman.as_ref()).map_err(WorkspaceCommandError::Own)?;
    find::record(host, id, Verdict::Done, "discard", "the copy is removed");
    ui.notice(&format!("the copy `{id}` is removed"));
    Ok(())
}
