//! Finds the copy that a command is about: by its id, or the newest of this directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::WorkspaceCommandError;
use crate::error::Result;
use crate::event_log::{self, Gate, Verdict};
use crate::facts;
use crate::host::Host;
use crate::kept_copy::{CopyStore, KeptCopy};
use crate::path::{HostPath, resolve_dots};
use crate::ui::suggest::nearest;

/// A copy and where it is.
pub struct Found {
    pub store: CopyStore,
    pub copy: KeptCopy,
    pub directory: HostPath,
}

/// The number of a directory of the copy, and a path below it; empty for all of it.
pub type TreePath = (usize, PathBuf);

pub fn store(host: &Host) -> CopyStore {
    CopyStore::beside(&facts::session_base(host))
}

/// Records for `sandpen log` what became of a copy.
pub fn record(host: &Host, id: &str, verdict: Verdict, what: &str, reason: &str) {
    event_log::append(&facts::session_base(host), id, Gate::Workspace, verdict, what, reason);
}

/// Lists the copies that wait, the newest first.
pub fn waiting(host: &Host) -> Vec<KeptCopy> {
    store(host).all()
}

/// Finds a copy by its id.
pub fn by_id(host: &Host, id: &str) -> Result<Found> {
    let store = store(host);
    let Some(copy) = store.find(id) else {
        let others: Vec<String> = store.all().into_iter().map(|copy| copy.id).collect();
        let nearest = nearest(id, others.iter().map(String::as_str)).map(ToString::to_string);
        return Err(WorkspaceCommandError::Unknown { id: id.to_owned(), nearest, others }.into());
    };
    Ok(Found { directory: store.directory(&copy.id), copy, store })
}

/// Divides the arguments `[ID] [PATH…]`. Without an id, it is the newest copy of this directory.
pub fn by_arguments(host: &Host, arguments: &[OsString]) -> Result<(Found, Vec<TreePath>)> {
    let copies = store(host);
    let first = arguments.first().and_then(|first| first.to_str());
    let named = first.and_then(|id| copies.find(id));
    let (copy, paths) = match named {
        Some(copy) => (copy, &arguments[1..]),
        None => {
            let mut all = copies.all();
            let here =
                all.iter().position(|copy| copy.trees.iter().any(|tree| host.cwd.as_path().starts_with(&tree.host)));
            // A word that is neither a file nor below the directory is a wrong id.
            let looks_like_id = first.filter(|word| !word.contains('/') && !host.cwd.as_path().join(word).exists());
            match (here, looks_like_id) {
                (Some(here), None) => (all.swap_remove(here), arguments),
                (Some(here), Some(_)) if is_changed_path(&all[here], host.cwd.as_path(), &arguments[0]) => {
                    (all.swap_remove(here), arguments)
                }
                (_, Some(id)) => {
                    return Err(by_id(host, id)
                        .err()
                        .unwrap_or_else(|| WorkspaceCommandError::Outside(id.into()).into()));
                }
                (None, None) => {
                    let others = all.into_iter().map(|copy| copy.id).collect();
                    let directory = host.cwd.as_path().to_owned();
                    return Err(WorkspaceCommandError::NoCopy { directory, others }.into());
                }
            }
        }
    };
    let paths: Result<Vec<TreePath>> =
        paths.iter().map(|path| tree_path(&copy, host.cwd.as_path(), Path::new(path))).collect();
    let found = Found { directory: copies.directory(&copy.id), copy, store: copies };
    Ok((found, paths?))
}

/// Tells whether a path that does not exist here exists in the copy, or was removed there.
fn is_changed_path(copy: &KeptCopy, cwd: &Path, path: &OsString) -> bool {
    let Ok((tree, path)) = tree_path(copy, cwd, Path::new(path)) else { return false };
    let tree = &copy.trees[tree];
    [tree.upper(), tree.files()].iter().any(|place| place.join(&path).symlink_metadata().is_ok())
}

fn tree_path(copy: &KeptCopy, cwd: &Path, path: &Path) -> Result<TreePath> {
    let whole = resolve_dots(&cwd.join(path));
    let found = copy
        .trees
        .iter()
        .enumerate()
        .find_map(|(number, tree)| whole.strip_prefix(&tree.host).ok().map(|below| (number, below.to_owned())));
    found.ok_or_else(|| WorkspaceCommandError::Outside(path.to_owned()).into())
}

/// Returns the path as it is shown: below the first directory, or the whole path.
pub fn shown(copy: &KeptCopy, tree: usize, path: &Path) -> PathBuf {
    if tree == 0 {
        path.to_owned()
    } else {
        copy.trees.get(tree).map_or_else(|| path.to_owned(), |tree| tree.host.join(path))
    }
}
