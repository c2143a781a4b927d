//! `sandpen undo`: takes the last `apply` in this directory back.

use std::path::Path;

use super::{WorkspaceCommandError, find};
use crate::error::Result;
use crate::event_log::Verdict;
use crate::facts;
use crate::facts::git::repository::Search;
use crate::gate::repository::host_git::HostGit;
use crate::gate::repository::{BranchMove, BranchMoveError};
use crate::gate::workspace::{RefChange, UndoStore, forget_taken};
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
    let moves = branch_moves(host, &record.refs)?;
    moves.iter().try_for_each(BranchMove::check).map_err(WorkspaceCommandError::MoveBack)?;
    let restored = store.undo(&record).map_err(WorkspaceCommandError::from)?;
    moves.iter().try_for_each(BranchMove::carry_out).map_err(WorkspaceCommandError::MoveBack)?;
    find::record(host, &record.copy, Verdict::Done, "undo", &counted(restored.len(), "file"));
    if let Some(copy) = find::store(host).find(&record.copy) {
        let directory = find::store(host).directory(&copy.id);
        forget_taken(&copy, &directory, &record).map_err(WorkspaceCommandError::Own)?;
    }
    Ok(restored.len())
}

/// Lists how branches are moved back. One that a killed `apply` did not move stays.
fn branch_moves(host: &Host, refs: &[RefChange]) -> Result<Vec<BranchMove>> {
    if refs.is_empty() {
        return Ok(Vec::new());
    }
    let path = facts::search_path(host);
    let git = path.find("git").ok_or(WorkspaceCommandError::MoveBack(BranchMoveError::NoRepository))?;
    let [git, home, scratch] =
        [git, host.home.clone(), host.state_dir().join("undo")].map(|path| path.as_path().to_owned());
    let git = HostGit::of_user(git, path.for_host(), home, scratch);
    let back = refs.iter().map(|change| BranchMove {
        git: git.clone(),
        git_dir: change.git_dir.clone(),
        name: change.name.clone(),
        from: change.after.clone(),
        to: change.before.clone(),
    });
    Ok(back.filter(|back| !back.is_done()).collect())
}
