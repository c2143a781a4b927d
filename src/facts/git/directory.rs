//! Looks up the parts of a repository's Git directories: objects and their alternates, submodules,
//! worktrees, hooks, and the files by which a working tree names its Git directory. Runs no Git.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::submodules::{EarlySubmodules, submodules};
use super::tracked::TrackedFiles;
use crate::facts::files::{FileKind, examine};
use crate::facts::git::repository::{Repository, is_git_dir};
use crate::facts::git::syntax;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::untrusted;

/// A repository with more submodules or worktrees is not used.
const MAX_DIRECTORIES: usize = 4096;
const MAX_DEPTH: usize = 12;
/// Git follows five levels of alternates.
const MAX_ALTERNATES: usize = 5;
const MAX_CONFIG_FILE: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GitDirs {
    /// The Git directories with objects: the shared one, then those of submodules, which are in the
    /// shared one or in the submodule's working tree.
    pub full: Vec<FullGitDir>,
    /// Git directories of linked worktrees.
    pub worktrees: Vec<WorktreeDir>,
    /// `.git` files in mounted directories.
    pub pointers: Vec<HostPath>,
    /// Directories of submodules that have no repository yet.
    pub empty_submodules: Vec<HostPath>,
    pub hooks: Vec<Hooks>,
    /// Existing files by which Git can be made to run code.
    pub decisive: Vec<HostPath>,
    /// The reason for which Git cannot use the repository.
    pub problem: Option<String>,
}

/// A Git directory with objects, refs and a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FullGitDir {
    pub path: HostPath,
    /// The working tree; `None` for a bare repository, or if it is not mounted.
    pub work_tree: Option<HostPath>,
    pub format: Format,
    /// Other directories of objects that it uses.
    pub alternates: Vec<HostPath>,
    /// Whether the objects have a file that lists alternates.
    pub has_alternates_file: bool,
    pub has_lfs: bool,
}

/// The Git directory of a linked worktree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorktreeDir {
    pub path: HostPath,
    /// `None` if the worktree is not mounted.
    pub work_tree: Option<HostPath>,
}

/// The extensions of a repository's format that matter to a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Format {
    pub is_sha256: bool,
    pub is_reftable: bool,
}

impl Format {
    pub fn id_len(self) -> usize {
        if self.is_sha256 { 32 } else { 20 }
    }

    pub(super) fn of(git_dir: &HostPath) -> Self {
        let text = untrusted::read(git_dir.join("config").as_path(), MAX_CONFIG_FILE).unwrap_or_default();
        let has = |key: &str, value: &str| match syntax::settings(&text) {
            Some(settings) => settings.iter().rfind(|(known, _)| known == key).is_some_and(|(_, set)| set == value),
            None => text.to_ascii_lowercase().contains(value),
        };
        Format {
            is_sha256: has("extensions.objectformat", "sha256"),
            is_reftable: has("extensions.refstorage", "reftable"),
        }
    }
}

/// A directory from which Git runs hooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hooks {
    pub path: HostPath,
    /// The path with all links resolved, also if it does not exist yet; `None` if it is no
    /// directory.
    pub real: Option<HostPath>,
    /// The files to which hooks in it are links.
    pub linked: Vec<HostPath>,
    /// Whether Git tracks files in it, so that it is no tool's own.
    pub is_tracked: bool,
}

/// Configuration files in a Git directory.
const CONFIG_FILES: &[&str] = &["config", "config.worktree"];
/// Files by which a Git directory names another one.
const POINTERS: &[&str] = &["commondir", "gitdir"];

impl GitDirs {
    /// Looks at a repository; `shown` are the mounted directories, `hooks_path` is the
    /// `core.hooksPath` in effect, `early` are submodules that are known already.
    pub fn look(
        host: &Host,
        repository: &Repository,
        shown: &[HostPath],
        hooks_path: Option<&str>,
        early: Option<&EarlySubmodules>,
    ) -> Self {
        let common = &repository.common_dir;
        let mut dirs = GitDirs { problem: problem(repository), ..GitDirs::default() };
        let main_tree = (*common == repository.root.join(".git")).then(|| repository.root.clone());
        let mut found = vec![(common.clone(), main_tree)];
        let worktrees = common.join("worktrees");
        for name in names(worktrees.as_path()) {
            let path = worktrees.join(&name);
            let files = worktree_files(&path).filter(|files| within(files.as_path(), shown));
            let work_tree = if path == repository.git_dir { Some(repository.root.clone()) } else { files };
            dirs.worktrees.push(WorktreeDir { path, work_tree });
        }
        for above in std::iter::once(common).chain(dirs.worktrees.iter().map(|worktree| &worktree.path)) {
            let mut below = Vec::new();
            modules(&above.join("modules"), MAX_DEPTH, &mut below);
            found.extend(below.into_iter().map(|path| {
                let work_tree = module_files(&path).filter(|files| within(files.as_path(), shown));
                (path, work_tree)
            }));
        }
        if found.len().max(dirs.worktrees.len()) >= MAX_DIRECTORIES {
            dirs.add_problem(format!("`{common}` has {MAX_DIRECTORIES} submodules or worktrees, or more"));
        }
        dirs.full = found.into_iter().map(|(path, work_tree)| FullGitDir::look(path, work_tree)).collect();
        dirs.look_at_working_trees(early);
        let named = hooks_path.and_then(|value| named_hooks(host, &repository.root, value));
        let own = dirs.full.iter().map(|dir| dir.path.join("hooks"));
        dirs.hooks = own.chain(named).map(Hooks::look).collect();
        let files = CONFIG_FILES.iter().chain(POINTERS).chain(&["info/attributes"]);
        let all = dirs.full.iter().map(|dir| &dir.path).chain(dirs.worktrees.iter().map(|dir| &dir.path));
        let files = all.flat_map(|dir| files.clone().map(|name| dir.join(name)));
        dirs.decisive = files.filter(is_file).collect();
        dirs
    }

    /// Looks for `.git` files and for submodules without a repository in the mounted working trees.
    fn look_at_working_trees(&mut self, early: Option<&EarlySubmodules>) {
        let format = self.full.first().map(|dir| dir.format).unwrap_or_default();
        let full = self.full.iter().map(|dir| (&dir.path, dir.format, dir.work_tree.as_ref()));
        let linked = self.worktrees.iter().map(|dir| (&dir.path, format, dir.work_tree.as_ref()));
        let (mut pointers, mut empty, mut embedded, mut problem) = (Vec::new(), Vec::new(), Vec::new(), None);
        for (git_dir, format, work_tree) in full.chain(linked) {
            let Some(work_tree) = work_tree else { continue };
            let pointer = work_tree.join(".git");
            if is_file(&pointer) {
                pointers.push(pointer);
            }
            let id_len = format.id_len();
            let links = early.and_then(|early| early.of(git_dir, id_len));
            let links = links.unwrap_or_else(|| submodules(git_dir, id_len)).unwrap_or_else(|error| {
                problem.get_or_insert(error);
                BTreeSet::new()
            });
            if links.len() > MAX_DIRECTORIES {
                problem
                    .get_or_insert(format!("`{}` has more than {MAX_DIRECTORIES} submodules", git_dir.join("index")));
            }
            for link in links.iter().take(MAX_DIRECTORIES) {
                let directory = work_tree.join(Path::new(std::ffi::OsStr::from_bytes(link)));
                let dot_git = directory.join(".git");
                match dot_git.as_path().symlink_metadata() {
                    Err(_) => empty.push(directory),
                    Ok(meta) if meta.is_dir() => embedded.push(FullGitDir::look(dot_git, Some(directory))),
                    Ok(meta) if meta.is_file() => pointers.push(dot_git),
                    Ok(_) => {}
                }
            }
        }
        pointers.sort();
        pointers.dedup();
        (self.pointers, self.empty_submodules) = (pointers, empty);
        self.full.extend(embedded);
        if let Some(problem) = problem {
            self.add_problem(problem);
        }
    }

    fn add_problem(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }
}

/// Returns the reason for which Git refuses to use a Git directory.
fn problem(repository: &Repository) -> Option<String> {
    let Repository { git_dir, common_dir, .. } = repository;
    let head = untrusted::read(git_dir.join("HEAD").as_path(), 4096);
    let is_head = |text: &str| {
        let id = text.trim_end();
        text.starts_with("ref: refs/") || matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if !head.is_ok_and(|text| is_head(&text)) {
        return Some(format!("`{}` is missing or broken", git_dir.join("HEAD")));
    }
    (!is_git_dir(common_dir.as_path())).then(|| format!("`{common_dir}` has no objects or no refs"))
}

impl FullGitDir {
    fn look(path: HostPath, work_tree: Option<HostPath>) -> Self {
        let objects = path.join("objects");
        let file = objects.join("info/alternates");
        let mut alternates = Vec::new();
        collect_alternates(&objects, MAX_ALTERNATES, &mut alternates);
        FullGitDir {
            format: Format::of(&path),
            has_alternates_file: file.as_path().symlink_metadata().is_ok(),
            has_lfs: path.join("lfs").as_path().symlink_metadata().is_ok_and(|meta| meta.is_dir()),
            alternates,
            work_tree,
            path,
        }
    }
}

/// Follows the alternates of a directory of objects. Only those that belong to a Git directory
/// are used: the file may come from an archive and name any directory.
fn collect_alternates(objects: &HostPath, depth: usize, found: &mut Vec<HostPath>) {
    let Ok(text) = untrusted::read(objects.join("info/alternates").as_path(), MAX_CONFIG_FILE) else { return };
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let real = fs::canonicalize(objects.as_path().join(line)).ok().and_then(|path| HostPath::new(path).ok());
        let Some(path) = real.filter(|path| !found.contains(path) && found.len() < MAX_DIRECTORIES) else { continue };
        let is_objects = path.as_path().file_name().is_some_and(|name| name == "objects")
            && path.as_path().parent().is_some_and(is_git_dir);
        if is_objects && depth > 0 {
            found.push(path.clone());
            collect_alternates(&path, depth - 1, found);
        }
    }
}

impl Hooks {
    fn look(path: HostPath) -> Self {
        let entries = fs::read_dir(path.as_path()).into_iter().flatten().flatten();
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let targets = links.take(MAX_DIRECTORIES).filter_map(|entry| fs::canonicalize(entry.path()).ok());
        let linked = targets.filter_map(|target| HostPath::new(target).ok()).filter(is_file).collect();
        let real = real_directory(&path);
        let is_tracked = real.as_ref().is_some_and(is_tracked);
        Hooks { real, path, linked, is_tracked }
    }
}

/// Tells whether Git tracks a file in a directory of the working tree. An index that cannot be read
/// may list one.
fn is_tracked(directory: &HostPath) -> bool {
    let is_in_git_dir = directory.as_path().iter().any(|name| name == ".git");
    !is_in_git_dir && TrackedFiles::default().at(directory).map_or(true, |found| found.is_some())
}

fn is_file(path: &HostPath) -> bool {
    path.as_path().symlink_metadata().is_ok_and(|meta| meta.is_file())
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
fn worktree_files(admin: &HostPath) -> Option<HostPath> {
    let link = untrusted::read(admin.join("gitdir").as_path(), 8 << 10).ok()?;
    let path = admin.as_path().join(link.trim_end_matches(['\n', '\r']));
    HostPath::new(fs::canonicalize(path.parent()?).ok()?).ok()
}

/// Reads the directory of a submodule's files from `core.worktree`.
fn module_files(git_dir: &HostPath) -> Option<HostPath> {
    let config = untrusted::read(git_dir.join("config").as_path(), MAX_CONFIG_FILE).ok()?;
    let settings = syntax::settings(&config)?;
    let (_, named) = settings.iter().rfind(|(key, _)| key == "core.worktree")?;
    HostPath::new(fs::canonicalize(git_dir.as_path().join(named)).ok()?).ok()
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
