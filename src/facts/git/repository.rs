//! Finds the Git repository around a directory: its working tree, its Git directory, and the one
//! that its worktrees share. Runs no Git.
//!
//! A `.git` *file* names another directory, and the guest can write that file. It is followed only
//! if the other directory names the working tree in return, which only the owner of that directory
//! can arrange (attack 06).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use crate::host::Host;
use crate::path::HostPath;
use crate::process::untrusted;

/// A `.git` file, a `gitdir` file and a `commondir` file have one line each.
const MAX_LINK_FILE: u64 = 8 << 10;
const MAX_CONFIG_FILE: u64 = 1 << 20;

/// The directories of a repository, with all links resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repository {
    /// The root of the working tree. For a submodule it is the outermost superproject's; for a bare
    /// repository, the repository itself.
    pub root: HostPath,
    /// The Git directory of this working tree.
    pub git_dir: HostPath,
    /// The Git directory that all worktrees share: configuration, hooks, objects, branches.
    pub common_dir: HostPath,
}

/// The result of looking for a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Search {
    Nothing,
    Found(Repository),
    /// The `.git` in `at` names another directory, which does not name it in return.
    Unconfirmed {
        at: HostPath,
        reason: String,
        /// Engines follow a link that is to be mounted, so only a file can be made read-only.
        is_file: bool,
    },
}

impl Search {
    /// Looks for the nearest repository at or above a directory.
    pub fn around(directory: &HostPath) -> Self {
        for above in directory.as_path().ancestors() {
            let Ok(above) = HostPath::new(above) else { return Search::Nothing };
            match Self::at(&above) {
                Search::Nothing => {}
                found => return found,
            }
        }
        Search::Nothing
    }

    /// Refuses a repository of another user, unless Git accepts it: its settings can name programs.
    pub fn refuse_foreign(self, host: &Host) -> Self {
        let Search::Found(repository) = &self else { return self };
        let Repository { root, git_dir, common_dir } = repository;
        let is_own = |path: &HostPath| path.as_path().metadata().is_ok_and(|meta| meta.uid() == host.uid);
        if [root, git_dir, common_dir].into_iter().all(is_own) || super::accepts(host, root) {
            return self;
        }
        let reason = format!(
            "it belongs to another user; `git config --global --add safe.directory {}` makes Git accept it",
            root.as_path().display()
        );
        let is_file = root.join(".git").as_path().symlink_metadata().is_ok_and(|meta| meta.is_file());
        Search::Unconfirmed { at: root.clone(), reason, is_file }
    }

    /// Looks for a repository whose root is this directory.
    pub fn at(directory: &HostPath) -> Self {
        let dot_git = directory.join(".git");
        match dot_git.as_path().symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                let git_dir = dot_git;
                Search::Found(Repository { root: directory.clone(), common_dir: git_dir.clone(), git_dir })
            }
            Ok(meta) if meta.is_file() => match linked(directory) {
                Ok(repository) => Search::Found(repository),
                Err(reason) => Search::Unconfirmed { at: directory.clone(), reason, is_file: true },
            },
            Ok(_) => {
                let reason = "`.git` is a symbolic link".into();
                Search::Unconfirmed { at: directory.clone(), reason, is_file: false }
            }
            Err(_) if is_git_dir(directory.as_path()) => {
                let root = directory.clone();
                Search::Found(Repository { git_dir: root.clone(), common_dir: root.clone(), root })
            }
            Err(_) => Search::Nothing,
        }
    }
}

/// Applies Git's test for a Git directory.
pub fn is_git_dir(directory: &Path) -> bool {
    directory.join("HEAD").symlink_metadata().is_ok()
        && directory.join("objects").is_dir()
        && directory.join("refs").is_dir()
}

/// Follows a `.git` file to the Git directory of a linked worktree or a submodule.
fn linked(directory: &HostPath) -> Result<Repository, String> {
    let text = read(&directory.join(".git"), MAX_LINK_FILE)?;
    let named = text.strip_prefix("gitdir: ").ok_or("its `.git` file cannot be read")?.trim_end_matches(['\n', '\r']);
    let git_dir = real(directory, named).ok_or_else(|| format!("`{named}` does not exist"))?;
    if git_dir.join("commondir").as_path().symlink_metadata().is_ok() {
        return worktree(directory, git_dir);
    }
    submodule(directory, git_dir)
}

fn worktree(directory: &HostPath, git_dir: HostPath) -> Result<Repository, String> {
    let back = read(&git_dir.join("gitdir"), MAX_LINK_FILE)?;
    let back = resolve(&git_dir, back.trim_end_matches(['\n', '\r']));
    if back != directory.join(".git").as_path() {
        return Err(format!("`{git_dir}` belongs to another worktree, `{}`", back.display()));
    }
    let shared = read(&git_dir.join("commondir"), MAX_LINK_FILE)?;
    let common_dir = real(&git_dir, shared.trim_end_matches(['\n', '\r'])).ok_or("its shared directory is missing")?;
    // `commondir` must name the repository in which Git keeps this worktree, and no other.
    let home = git_dir.as_path().parent();
    if home != Some(common_dir.join("worktrees").as_path()) || !is_git_dir(common_dir.as_path()) {
        return Err(format!("`{git_dir}` is not inside the repository it names, `{common_dir}`"));
    }
    Ok(Repository { root: directory.clone(), git_dir, common_dir })
}

/// Returns the superproject of a submodule, if the submodule's Git directory lies in the
/// superproject's.
fn submodule(directory: &HostPath, git_dir: HostPath) -> Result<Repository, String> {
    let config = read(&git_dir.join("config"), MAX_CONFIG_FILE)?;
    let named = work_tree(&config).ok_or_else(|| format!("`{git_dir}` names no working tree in return"))?;
    if real(&git_dir, named).as_ref() != Some(directory) {
        return Err(format!("`{git_dir}` belongs to another working tree, `{named}`"));
    }
    let above = directory.as_path().parent().and_then(|above| HostPath::new(above).ok());
    match above.map(|above| Search::around(&above)) {
        Some(Search::Found(outer)) if holds(&outer, &git_dir) => Ok(outer),
        _ => Err(format!("`{git_dir}` is not part of a repository around it")),
    }
}

/// Tells whether a Git directory belongs to a submodule of a repository, at any depth.
fn holds(outer: &Repository, git_dir: &HostPath) -> bool {
    [&outer.git_dir, &outer.common_dir].iter().any(|dir| git_dir.is_within(&dir.join("modules")))
}

/// Reads `core.worktree` in the form in which Git writes it for submodules. Any other form is
/// refused.
fn work_tree(config: &str) -> Option<&str> {
    let mut in_core = false;
    let mut found = None;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            in_core = line.eq_ignore_ascii_case("[core]");
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_core)
            && key.trim().eq_ignore_ascii_case("worktree")
        {
            found = Some(value.trim());
        }
    }
    found.filter(|value| !value.contains(['"', '\\', '#', ';']))
}

fn read(file: &HostPath, largest: u64) -> Result<String, String> {
    untrusted::read(file.as_path(), largest).map_err(|error| format!("`{file}` cannot be read: {error}"))
}

/// Resolves a path that is relative to `base`, with all links.
fn real(base: &HostPath, named: &str) -> Option<HostPath> {
    fs::canonicalize(base.as_path().join(named)).ok().and_then(|path| HostPath::new(path).ok())
}

/// Resolves a path that is relative to `base`, except for a link in its last component.
fn resolve(base: &HostPath, named: &str) -> PathBuf {
    let path = base.as_path().join(named);
    let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    match (parent, path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => parent.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_tree_is_read_only_in_the_form_that_git_writes() {
        assert_eq!(work_tree("[core]\n\tbare = false\n\tworktree = ../../../sub\n"), Some("../../../sub"));
        assert_eq!(work_tree("[remote \"core\"]\n\tworktree = x\n"), None);
        assert_eq!(work_tree("[core]\n\tworktree = \"x\"\n"), None);
        assert_eq!(work_tree("[core]\nworktree = a\n[core]\nworktree = b\n"), Some("b"));
    }
}
