//! Looks up the parts of a repository's Git directories that decide which code Git on the host
//! runs: hooks, configuration, submodules, other worktrees. Runs no Git.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::facts::files::{FileKind, examine};
use crate::facts::git::repository::{Repository, is_git_dir};
use crate::host::Host;
use crate::path::HostPath;
use crate::process::untrusted;

/// Limits the submodules and worktrees that are looked at. The review at the end covers the rest.
const MAX_DIRECTORIES: usize = 256;
const MAX_DEPTH: usize = 12;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GitDirs {
    /// Every Git directory with a configuration file: the shared one, the worktree's, those of
    /// submodules.
    pub all: Vec<HostPath>,
    /// Git directories of worktrees whose files are not mounted.
    pub siblings: Vec<HostPath>,
    pub hooks: Vec<Hooks>,
    /// Existing files by which Git can be made to run code.
    pub decisive: Vec<HostPath>,
}

/// A directory from which Git runs hooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hooks {
    pub path: HostPath,
    /// The path with all links resolved, also if it does not exist yet; `None` if it is no
    /// directory.
    pub real: Option<HostPath>,
}

/// Configuration files in a Git directory.
pub const CONFIG_FILES: &[&str] = &["config", "config.worktree"];
/// Files by which a Git directory names another one.
pub const POINTERS: &[&str] = &["commondir", "gitdir"];

impl GitDirs {
    /// Looks at a repository; `shown` are the mounted directories, `hooks_path` is the
    /// `core.hooksPath` in effect.
    pub fn look(host: &Host, repository: &Repository, shown: &[HostPath], hooks_path: Option<&str>) -> Self {
        let mut dirs = GitDirs { all: vec![repository.common_dir.clone()], ..GitDirs::default() };
        let worktrees = repository.common_dir.join("worktrees");
        for name in names(worktrees.as_path()) {
            let admin = worktrees.join(&name);
            let is_here =
                admin == repository.git_dir || worktree_files(&admin).is_some_and(|files| within(&files, shown));
            if is_here { dirs.all.push(admin) } else { dirs.siblings.push(admin) }
        }
        let hosts: Vec<HostPath> = dirs.all.clone();
        for host in hosts {
            modules(&host.join("modules"), MAX_DEPTH, &mut dirs.all);
        }
        let named = hooks_path.and_then(|value| named_hooks(host, &repository.root, value));
        let places = dirs.all.iter().map(|dir| dir.join("hooks")).chain(named);
        dirs.hooks = places.map(|path| Hooks { real: real_directory(&path), path }).collect();
        let files = CONFIG_FILES.iter().chain(POINTERS).chain(&["info/attributes"]);
        let files = dirs.all.iter().flat_map(|dir| files.clone().map(|name| dir.join(name)));
        let is_file = |file: &HostPath| file.as_path().symlink_metadata().is_ok_and(|meta| meta.is_file());
        dirs.decisive = files.filter(is_file).collect();
        dirs
    }
}

/// Resolves `core.hooksPath`, which is relative to the root of the working tree.
fn named_hooks(host: &Host, root: &HostPath, value: &str) -> Option<HostPath> {
    let path = Path::new(value);
    let path = if path.starts_with("~") { host.expand(path) } else { host.expand(&root.as_path().join(path)) };
    HostPath::new(path).ok().filter(|_| !value.is_empty())
}

/// Resolves all links of a directory whose last components may not exist yet.
fn real_directory(path: &HostPath) -> Option<HostPath> {
    if path.as_path().symlink_metadata().is_ok() {
        return examine(path).filter(|fact| fact.kind == FileKind::Directory).map(|fact| fact.real);
    }
    let above = HostPath::new(path.as_path().parent()?).ok()?;
    Some(real_directory(&above)?.join(path.as_path().file_name()?))
}

/// Reads the directory of a worktree's files from `gitdir`.
fn worktree_files(admin: &HostPath) -> Option<PathBuf> {
    let link = untrusted::read(admin.join("gitdir").as_path(), 8 << 10).ok()?;
    let path = admin.as_path().join(link.trim_end_matches(['\n', '\r']));
    fs::canonicalize(path.parent()?).ok()
}

fn within(path: &Path, shown: &[HostPath]) -> bool {
    shown.iter().any(|root| path.starts_with(root.as_path()))
}

/// Collects submodules at any depth. Their names may contain slashes.
fn modules(directory: &HostPath, depth: usize, found: &mut Vec<HostPath>) {
    for name in names(directory.as_path()) {
        let path = directory.join(&name);
        if depth == 0 || found.len() >= MAX_DIRECTORIES {
            return;
        }
        if is_git_dir(path.as_path()) {
            found.push(path.clone());
            modules(&path.join("modules"), depth - 1, found);
        } else {
            modules(&path, depth - 1, found);
        }
    }
}

/// Lists the subdirectories of a directory, without links to directories.
fn names(directory: &Path) -> Vec<PathBuf> {
    let is_real = directory.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let entries = is_real.then(|| fs::read_dir(directory).ok()).flatten();
    let directories =
        entries.into_iter().flatten().flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<PathBuf> =
        directories.take(MAX_DIRECTORIES).map(|entry| PathBuf::from(entry.file_name())).collect();
    names.sort();
    names
}
