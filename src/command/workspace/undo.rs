//! `sandpen undo`: takes the last `apply` in this directory back.

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
    let store = UndoStore::open(&host.state_dir(), root.as_path()).map_err(WorkspaceCommandError::Own)?;
    let nothing = || WorkspaceCommandError::NothingToUndo(root.as_path().to_owned());
    let record = store.last().ok_or_else(nothing)?;
    let restored = store.undo(&record).map_err(WorkspaceCommandError::from)?;
    if let Some(copy) = find::store(&host).find(&record.copy) {
        let directory = find::store(&host).directory(&copy.id);
        forget_taken(&copy, &directory, &record).map_err(WorkspaceCommandError::Own)?;
    }
    ui.notice(&format!("{} restored", counted(restored.len(), "file")));
    Ok(Outcome::Exited(0))
}
