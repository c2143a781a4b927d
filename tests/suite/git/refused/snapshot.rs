//! Records every file of a Git directory, to find what a sandbox has changed in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The host's own Git writes these directories and files when commits come out.
const WRITTEN_BY_GIT: &[&str] = &["objects", "refs", "logs", "HEAD", "index", "packed-refs"];

/// Describes the type, mode and content of each path.
pub struct Snapshot {
    git_dir: PathBuf,
    files: BTreeMap<PathBuf, String>,
}

impl Snapshot {
    pub fn of(git_dir: &Path) -> Self {
        let mut files = BTreeMap::new();
        record(git_dir, git_dir, &mut files);
        Snapshot { git_dir: git_dir.to_owned(), files }
    }

    /// Fails if a file that Git does not write for commits has changed, or if an odd file is new.
    #[track_caller]
    pub fn assert_only_commits_came_out(&self, what: &str) {
        let now = Snapshot::of(&self.git_dir).files;
        let changed: Vec<String> = self
            .files
            .keys()
            .chain(now.keys())
            .filter(|path| self.files.get(*path) != now.get(*path))
            .filter(|path| !is_expected(path, now.get(*path)))
            .map(|path| format!("{}: {:?} -> {:?}", path.display(), self.files.get(path), now.get(path)))
            .collect();
        assert!(changed.is_empty(), "{what} changed the host's Git directory:\n{}", changed.join("\n"));
    }
}

/// Returns whether Git may have made this change when it received commits.
fn is_expected(path: &Path, now: Option<&String>) -> bool {
    let own = in_own_git_dir(path);
    let Some(first) = own.iter().next().and_then(|name| name.to_str()) else { return false };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_plain = now.is_none_or(|now| now.starts_with("a file") || now.starts_with("a directory"));
    let is_leftover = name.ends_with(".lock") || name.starts_with("tmp_");
    WRITTEN_BY_GIT.contains(&first) && is_plain && !is_leftover && !own.ends_with("objects/info/alternates")
}

/// Strips `worktrees/NAME`, where a linked worktree has a HEAD and an index.
fn in_own_git_dir(path: &Path) -> &Path {
    let mut names = path.iter();
    if names.next().is_some_and(|name| name == "worktrees") && names.next().is_some() { names.as_path() } else { path }
}

fn record(root: &Path, directory: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).expect("directory") {
        let path = entry.expect("entry").path();
        let meta = fs::symlink_metadata(&path).expect("metadata");
        let (kind, mode) = (meta.file_type(), meta.mode());
        let text = if kind.is_dir() {
            record(root, &path, files);
            format!("a directory {mode:o}")
        } else if kind.is_symlink() {
            format!("a link to {:?}", fs::read_link(&path).expect("link"))
        } else if kind.is_file() {
            let content = fs::read(&path).expect("read");
            format!("a file {mode:o} with {} links: {:?}", meta.nlink(), String::from_utf8_lossy(&content))
        } else {
            format!("a special file, a FIFO: {}", kind.is_fifo())
        };
        files.insert(path.strip_prefix(root).expect("below").to_owned(), text);
    }
}

/// Returns the names of all files that an interrupted Git would leave.
pub fn leftovers(git_dir: &Path) -> Vec<PathBuf> {
    let files = Snapshot::of(git_dir).files;
    let is_leftover = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.ends_with(".lock") || name.starts_with("tmp_")
    };
    files.into_keys().filter(is_leftover).collect()
}
