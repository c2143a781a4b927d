//! `sandpen undo`: takes the last `apply` in this directory back.

use std::path::Path;

use super::{WorkspaceCommandError, find};
use crate::error::Result;
use crate::facts::git::repository::Search;
use crate::gate::workspace::{UndoStore, forget_taken};
use crate::host::Host;
use crate::process::Outcome;
use crate::ui::{Ui, counted};

pub fn run(ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    let root = match Search::around(&host.cwd).refuse_foreign(&host) {
        Search::Found(repository) => repository.root,
        _ => host.cwd.clone(),
    };
    let restored = take_back(&host, root.as_path())?;
    ui.notice(&format!("{} restored", counted(restored, "file")));
    Ok(Outcome::Exited(0))
}

/// Takes the last `apply` in a directory back, and returns the number of files.
pub fn take_back(host: &Host, root: &Path) -> Result<usize> {
    let store = UndoStore::open(&host.state_dir(), root).map_err(WorkspaceCommandError::Own)?;
    let record = store.last().ok_or_else(|| WorkspaceCommandError::NothingToUndo(root.to_owned()))?;
    let restored = store.undo(&record).map_err(WorkspaceCommandError::from)?;
    if let Some(copy) = find::store(host).find(&record.copy) {
        let directory = find::store(host).directory(&copy.id);
        forget_taken(&copy, &directory, &record).map_err(WorkspaceCommandError::Own)?;
    }
    Ok(restored.len())
}
