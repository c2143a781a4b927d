//! Records the repositories that are in the workspace before the sandbox starts, and tells whether
//! the guest did more than ordinary work in them: everything in their Git directories apart from
//! objects, refs, reflogs and the index must be as it was.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::search::{Found, SeenDirectories, repositories};
use crate::facts::git::{index, syntax};
use crate::plan::RepositoryGate;
use crate::process::untrusted_dir::{UntrustedDir, permissions};

/// Files that Git writes in ordinary work, and of which it executes nothing.
const DATA_FILES: &[&str] =
    &["HEAD", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "index", "packed-refs", "gc.log", "shallow"];
/// The settings that `git init` writes.
const INITIAL_SETTINGS: &[&str] = &[
    "core.bare",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.symlinks",
    "extensions.objectformat",
];
/// The contents of more files are not kept.
const MAX_TOTAL: u64 = 16 << 20;
/// Larger files are compared by their size only, and are not restored.
const MAX_FILE: u64 = 1 << 20;
const MAX_ENTRIES: usize = 100_000;
const MAX_INDEX: u64 = 256 << 20;

/// The repositories in the workspace before the launch.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NestedBaseline {
    pub git_dirs: Vec<(PathBuf, GitDirContent)>,
    pub pointers: Vec<(PathBuf, Vec<u8>)>,
    /// A `.git` that is neither a file nor a directory, with what tells it from another.
    pub odd: Vec<(PathBuf, Content)>,
}

/// Everything in a Git directory that is not data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitDirContent(pub Vec<(PathBuf, Content)>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    File {
        bytes: Vec<u8>,
        mode: u32,
    },
    Link(PathBuf),
    /// A file that is too large, a pipe, or data that is not a regular file of its own.
    Odd(u64),
}

impl NestedBaseline {
    /// Searches the workspace.
    pub fn record(gate: &RepositoryGate, known: &[PathBuf], searched: &mut Searched) -> Self {
        let mut baseline = NestedBaseline::default();
        for found in gate.roots.iter().flat_map(|root| searched.search(gate, root, known)) {
            match found {
                Found::GitDir(path) | Found::Bare(path) => {
                    let content = UntrustedDir::open(&path).and_then(|dir| GitDirContent::of(&dir)).unwrap_or_default();
                    baseline.git_dirs.push((path, content));
                }
                Found::Pointer(path) => {
                    let content = crate::process::untrusted::read_bytes(&path, MAX_FILE).unwrap_or_default();
                    baseline.pointers.push((path, content));
                }
                Found::Odd(path) => baseline.odd.extend(odd_content(&path).map(|content| (path, content))),
                Found::Unreadable(_) => {}
            }
        }
        baseline
    }

    pub fn is_empty(&self) -> bool {
        self.git_dirs.is_empty() && self.pointers.is_empty() && self.odd.is_empty()
    }

    pub fn git_dir(&self, path: &Path) -> Option<&GitDirContent> {
        self.git_dirs.iter().find(|(known, _)| known == path).map(|(_, content)| content)
    }

    pub fn has_pointer(&self, path: &Path, content: &[u8]) -> bool {
        self.pointers.iter().any(|(known, before)| known == path && before == content)
    }
}

/// Describes a `.git` that is neither a file nor a directory.
pub fn odd_content(path: &Path) -> Option<Content> {
    let parent = UntrustedDir::open(path.parent()?).ok()?;
    let name = Path::new(path.file_name()?);
    let stat = parent.stat(name).ok()?;
    Some(Content::of(&parent, name, FileType::from_raw_mode(stat.st_mode), &stat))
}

/// The directories that were seen in the workspace, by root.
#[derive(Default)]
pub struct Searched(BTreeMap<PathBuf, SeenDirectories>);

impl Searched {
    /// Reads the lists of earlier searches.
    pub fn load(gate: &RepositoryGate) -> Self {
        let lists = gate.roots.iter().map(|root| (root.clone(), SeenDirectories::load(&Self::file(gate, root))));
        Searched(lists.collect())
    }

    /// Tells whether the search takes so long that another thread should do it.
    pub fn is_large(&self) -> bool {
        self.0.values().any(SeenDirectories::is_large)
    }

    fn file(gate: &RepositoryGate, root: &Path) -> PathBuf {
        gate.aside.with_file_name("searched").join(crate::plan::flat_name(root))
    }

    /// Searches a directory, with the list of the last search.
    pub fn search(&mut self, gate: &RepositoryGate, root: &Path, known: &[PathBuf]) -> Vec<Found> {
        let before = self.0.remove(root).unwrap_or_default();
        let (found, now) = repositories(root, known, &before);
        if now != before && now.is_useful() {
            // Without the list the next search takes longer.
            let _ = now.save(&Self::file(gate, root));
        }
        self.0.insert(root.to_owned(), now);
        found
    }
}

/// How the entries of a directory are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// A Git directory.
    GitDir,
    /// Contains Git directories of worktrees.
    Worktrees,
    /// Contains Git directories of submodules, at any depth.
    Modules,
    /// Contains data only.
    Data,
    /// Contains files that count, whatever their names.
    Other,
}

impl GitDirContent {
    pub fn of(git_dir: &UntrustedDir) -> io::Result<Self> {
        let mut content = GitDirContent::default();
        content.collect(git_dir, Path::new(""), Level::GitDir, &mut { MAX_TOTAL })?;
        content.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(content)
    }

    fn collect(&mut self, directory: &UntrustedDir, path: &Path, level: Level, left: &mut u64) -> io::Result<()> {
        let entries = directory.entries(MAX_ENTRIES)?;
        let has_head = entries.iter().any(|(name, _)| name == "HEAD");
        let level = if level == Level::Modules && has_head { Level::GitDir } else { level };
        for (name, kind) in entries {
            let below = path.join(&name);
            let text = name.to_str().unwrap_or_default();
            if kind == FileType::Directory {
                let level = match (level, text) {
                    (Level::GitDir, "refs" | "logs") => Level::Data,
                    // Objects are many, and Git verifies them.
                    (Level::GitDir, "objects") => {
                        if let Ok(info) = directory.directory(Path::new("objects/info")) {
                            self.collect(&info, &below.join("info"), Level::Other, left)?;
                        }
                        continue;
                    }
                    (Level::GitDir, "worktrees") => Level::Worktrees,
                    (Level::GitDir, "modules") => Level::Modules,
                    (Level::Worktrees, _) => Level::GitDir,
                    (Level::Modules, _) => Level::Modules,
                    (Level::Data, _) => Level::Data,
                    _ => Level::Other,
                };
                let inner = directory.directory(Path::new(&name)).or_else(|_| {
                    directory.grant_access(Path::new(&name))?;
                    directory.directory(Path::new(&name))
                })?;
                self.collect(&inner, &below, level, left)?;
                continue;
            }
            let stat = directory.stat(&name)?;
            let is_plain = kind == FileType::RegularFile && stat.st_nlink == 1;
            let is_data = level == Level::Data
                || level == Level::GitDir && (DATA_FILES.contains(&text) || text.ends_with(".lock"));
            if is_data && is_plain && (text != "index" || has_valid_index(directory)) {
                continue;
            }
            let size = stat.st_size.unsigned_abs();
            let content = if size > *left {
                Content::Odd(stat.st_ino ^ size)
            } else {
                Content::of(directory, Path::new(&name), kind, &stat)
            };
            *left = left.saturating_sub(size);
            self.0.push((below, content));
        }
        Ok(())
    }

    /// Tells whether it is what `git init` makes, so that Git runs nothing because of it.
    pub fn is_harmless(&self) -> bool {
        self.0.iter().all(|(path, content)| match (path.to_str(), content) {
            (Some("description" | "info/exclude"), Content::File { .. }) => true,
            (Some("config"), Content::File { bytes, .. }) => {
                let settings = syntax::settings(&String::from_utf8_lossy(bytes));
                settings
                    .is_some_and(|settings| settings.iter().all(|(key, _)| INITIAL_SETTINGS.contains(&key.as_str())))
            }
            (Some(path), Content::File { .. }) => path.starts_with("hooks/") && path.ends_with(".sample"),
            _ => false,
        })
    }
}

impl Content {
    fn of(directory: &UntrustedDir, name: &Path, kind: FileType, stat: &rustix::fs::Stat) -> Self {
        let odd = || Content::Odd(stat.st_ino ^ stat.st_size.unsigned_abs());
        match kind {
            FileType::Symlink => rustix::fs::readlinkat(directory, name, Vec::new()).map_or_else(
                |_| odd(),
                |target| {
                    Content::Link(PathBuf::from(std::ffi::OsString::from(
                        String::from_utf8_lossy(target.as_bytes()).into_owned(),
                    )))
                },
            ),
            FileType::RegularFile => match directory.read(name, MAX_FILE) {
                Ok(Some(bytes)) => Content::File { bytes, mode: permissions(stat) },
                _ => odd(),
            },
            _ => odd(),
        }
    }
}

/// Tells whether Git can check the paths of an index out: it does not verify them itself.
fn has_valid_index(git_dir: &UntrustedDir) -> bool {
    let Ok(Some(content)) = git_dir.read("index", MAX_INDEX) else { return false };
    let parsed = index::parse(&content, 20).or_else(|_| index::parse(&content, 32));
    parsed.is_ok_and(|index| index.entries.iter().all(|((path, _), entry)| index::is_valid_path(path, entry.mode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::git::test_repository::TestRepository;

    #[test]
    fn ordinary_work_changes_nothing_that_counts() {
        let repository = TestRepository::new(&[]);
        repository.commit("first");
        let content = || GitDirContent::of(&repository.git_dir()).unwrap();
        let before = content();
        repository.commit("second");
        repository.git(&["branch", "other"]);
        repository.git(&["status"]);
        assert_eq!(content(), before);
        for (path, text) in
            [(".git/commondir", "x"), (".git/hooks/pre-commit", "x"), (".git/objects/info/alternates", "x")]
        {
            repository.write(path, text);
            assert_ne!(content(), before, "{path}");
            std::fs::remove_file(repository.at(path)).unwrap();
        }
        let log = repository.at(".git/logs/HEAD");
        std::fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &log).unwrap();
        assert_ne!(content(), before, "a link in the place of a reflog");
        std::fs::remove_file(&log).unwrap();
        repository.git(&["config", "core.fsmonitor", "x"]);
        assert_ne!(content(), before, "a setting");
    }
}
