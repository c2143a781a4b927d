//! Lists the files of a working tree that Git tracks or would add, for a copy of the workspace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::host_git::{GitResult, HostGit};
use crate::plan::RepositoryGate;

/// Returns paths below the root of a working tree: tracked files, and others that are not ignored.
/// `None` if the directory is not the root of a repository, or if the host has no Git.
pub fn listed_files(gate: &RepositoryGate, root: &Path, scratch: &Path) -> GitResult<Option<Vec<PathBuf>>> {
    let full = gate.repositories.iter().flat_map(|repository| &repository.full);
    let full = full.map(|dir| (&dir.host, &dir.work_tree));
    let worktrees = gate.repositories.iter().flat_map(|repository| &repository.worktrees);
    let worktrees = worktrees.map(|dir| (&dir.host, &dir.work_tree));
    let git_dir = full.chain(worktrees).find(|(_, work_tree)| work_tree.as_deref() == Some(root)).map(|(host, _)| host);
    let (Some(git_dir), Some(git)) = (git_dir, HostGit::new(gate, scratch.to_owned())) else { return Ok(None) };
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = git.call(git_dir, &arguments).work_tree(root).run()?;
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut files: Vec<PathBuf> = names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect();
    files.sort();
    files.dedup();
    Ok(Some(files))
}
