//! Records the repositories that are in the workspace before the sandbox starts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::git_dir_content::{Content, GitDirContent, MAX_TOTAL_OF_ALL};
use super::root::{open_directory, open_parent};
use super::search::{Found, FoundKind, repositories};
use super::seen_directories::SeenDirectories;
use crate::plan::RepositoryGate;
use crate::process::bounded_work::{self, Stopped};

/// Git reads no longer path from a `.git` file.
pub const MAX_POINTER: u64 = 8 << 10;

/// The repositories in the workspace before the launch.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NestedBaseline {
    #[serde(with = "crate::saved_path")]
    pub git_dirs: Vec<(PathBuf, GitDirContent)>,
    #[serde(with = "crate::saved_path")]
    pub pointers: Vec<(PathBuf, Vec<u8>)>,
    /// A `.git` that is neither a file nor a directory, with what tells it from another.
    #[serde(with = "crate::saved_path")]
    pub odd: Vec<(PathBuf, Content)>,
    /// The times in seconds since which they are there, as far as they are known.
    #[serde(skip)]
    pub since: BTreeMap<PathBuf, i64>,
}

impl NestedBaseline {
    /// Searches the workspace. Fails if it is stopped.
    pub fn record(gate: &RepositoryGate, known: &[PathBuf], searched: &mut Searched) -> Result<Self, Stopped> {
        let mut baseline = NestedBaseline::default();
        let mut left = MAX_TOTAL_OF_ALL;
        for root in &gate.roots {
            for found in searched.search(gate, root, known)? {
                baseline.add(root, found, &mut left);
                // What was not read would count as the guest's.
                bounded_work::check()?;
            }
        }
        Ok(baseline)
    }

    fn add(&mut self, root: &Path, found: Found, left: &mut u64) {
        let Found { kind, path, since } = found;
        self.since.extend(since.map(|since| (path.clone(), since)));
        match kind {
            FoundKind::GitDir | FoundKind::Bare => {
                let content = open_directory(root, &path).and_then(|dir| GitDirContent::record(&dir, left));
                self.git_dirs.push((path, content.unwrap_or_default()));
            }
            FoundKind::Pointer => {
                let text = read_pointer(root, &path).unwrap_or_default();
                self.pointers.extend(text.map(|text| (path, text)));
            }
            FoundKind::Odd => self.odd.extend(odd_content(root, &path).map(|content| (path, content))),
            FoundKind::Unreadable => {}
        }
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

/// Reads a `.git` file; `None` if there is none.
pub fn read_pointer(root: &Path, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let (parent, name) = open_parent(root, path)?;
    parent.read(name, MAX_POINTER)
}

/// Describes a `.git` that is neither a file nor a directory.
pub fn odd_content(root: &Path, path: &Path) -> Option<Content> {
    let (parent, name) = open_parent(root, path).ok()?;
    let stat = parent.stat(&name).ok()?;
    Some(Content::of(&parent, &name, FileType::from_raw_mode(stat.st_mode), &stat))
}

/// The directories that were seen in the workspace, by root.
#[derive(Default)]
pub struct Searched(BTreeMap<PathBuf, SeenDirectories>);

impl Searched {
    /// Reads the lists of earlier searches without the directories in `known`.
    pub fn load(gate: &RepositoryGate, known: &[PathBuf]) -> Self {
        let load = |root: &PathBuf| (root.clone(), SeenDirectories::load(&Self::file(gate, root), known));
        Searched(gate.roots.iter().map(load).collect())
    }

    /// Tells whether the search takes so long that another thread should do it.
    pub fn is_large(&self) -> bool {
        self.0.values().any(SeenDirectories::is_large)
    }

    fn file(gate: &RepositoryGate, root: &Path) -> PathBuf {
        gate.aside.with_file_name("searched").join(crate::plan::flat_name(root))
    }

    /// Searches a directory, with the list of the last search.
    pub fn search(&mut self, gate: &RepositoryGate, root: &Path, known: &[PathBuf]) -> Result<Vec<Found>, Stopped> {
        let before = self.0.remove(root).unwrap_or_default();
        let (found, now) = repositories(root, known, &before)?;
        if now != before && now.is_useful() {
            // Without the list the next search takes longer.
            let _ = now.save(&Self::file(gate, root), known);
        }
        self.0.insert(root.to_owned(), now);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Another guest can put a link above a path between the search and the record.
    #[test]
    fn nothing_is_recorded_through_a_link() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let above = directory.path().canonicalize()?;
        let (root, outside) = (above.join("root"), above.join("outside"));
        for path in ["git", "link"] {
            fs::create_dir_all(outside.join(path))?;
        }
        fs::create_dir(&root)?;
        fs::write(outside.join("git/secret"), "secret")?;
        fs::write(outside.join(".git"), "secret")?;
        symlink("secret", outside.join("link/.git"))?;
        symlink(&outside, root.join("swapped"))?;
        let found = |kind, path: &str| Found { kind, path: root.join(path), since: None };
        let mut baseline = NestedBaseline::default();
        for (kind, path) in [
            (FoundKind::Bare, "swapped/git"),
            (FoundKind::Pointer, "swapped/.git"),
            (FoundKind::Odd, "swapped/link/.git"),
        ] {
            baseline.add(&root, found(kind, path), &mut { MAX_TOTAL_OF_ALL });
        }
        assert_eq!(baseline.git_dirs, [(root.join("swapped/git"), GitDirContent::default())]);
        assert!(baseline.pointers.is_empty() && baseline.odd.is_empty(), "{baseline:?}");
        // The root itself may have been replaced.
        symlink(&outside, above.join("other"))?;
        let mut baseline = NestedBaseline::default();
        let found = Found { kind: FoundKind::Bare, path: above.join("other/git"), since: None };
        baseline.add(&above.join("other"), found, &mut { MAX_TOTAL_OF_ALL });
        assert_eq!(baseline.git_dirs, [(above.join("other/git"), GitDirContent::default())]);
        Ok(())
    }
}
