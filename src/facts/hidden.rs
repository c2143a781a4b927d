//! Finds the files of the workspace that `--hide` names, their other names, and whether Git tracks
//! them. Follows no link to a directory and does not enter `.git`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;

use serde::Serialize;

use super::git::tracked::TrackedFiles;
use crate::config::value::HideGlob;
use crate::path::HostPath;

/// A larger workspace has to be searched by patterns that start at its root.
const MOST_ENTRIES: usize = 1_000_000;
/// Each hidden file is a mount.
const MOST_HIDDEN: usize = 1000;

/// The search that a plan asks for.
pub struct HideQuestion {
    pub globs: Vec<HideGlob>,
    /// The directories of the workspace.
    pub trees: Vec<HostPath>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HiddenFile {
    pub path: HostPath,
    pub is_directory: bool,
    /// The index of the pattern; `None` for another name of a hidden file.
    pub glob: Option<usize>,
    /// A tracked file at this path or below it.
    pub tracked: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum HideProblem {
    TooManyEntries,
    TooManyHidden,
    Index(PathBuf),
}

/// The files that patterns match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HiddenFacts {
    pub files: Vec<HiddenFile>,
    /// Hidden files with further names outside of the workspace.
    pub linked_elsewhere: Vec<HostPath>,
    pub problem: Option<HideProblem>,
}

impl HiddenFacts {
    pub fn look(question: &HideQuestion) -> Self {
        if question.globs.is_empty() {
            return HiddenFacts::default();
        }
        let mut search = HiddenSearch { question, found: BTreeMap::new(), entries: 0 };
        match search.all() {
            Ok(facts) => facts,
            Err(problem) => HiddenFacts { problem: Some(problem), ..HiddenFacts::default() },
        }
    }
}

struct HiddenSearch<'a> {
    question: &'a HideQuestion,
    /// By real path: whether it is a directory, and which pattern matches.
    found: BTreeMap<HostPath, (bool, Option<usize>)>,
    entries: usize,
}

/// Identifies a file by device and inode.
type FileId = (u64, u64);

impl HiddenSearch<'_> {
    fn all(&mut self) -> Result<HiddenFacts, HideProblem> {
        for tree in &self.question.trees {
            self.walk(tree, &mut Vec::new())?;
        }
        let linked_elsewhere = self.other_names()?;
        if self.found.len() > MOST_HIDDEN {
            return Err(HideProblem::TooManyHidden);
        }
        let mut tracked = TrackedFiles::default();
        let mut files = Vec::new();
        for (path, (is_directory, glob)) in std::mem::take(&mut self.found) {
            let tracked = tracked.at(&path).map_err(HideProblem::Index)?;
            files.push(HiddenFile { path, is_directory, glob, tracked });
        }
        Ok(HiddenFacts { files, linked_elsewhere, problem: None })
    }

    fn read(&mut self, directory: &HostPath) -> Result<Vec<fs::DirEntry>, HideProblem> {
        let entries: Vec<fs::DirEntry> =
            fs::read_dir(directory.as_path()).into_iter().flatten().flatten().take(MOST_ENTRIES).collect();
        self.entries += entries.len();
        if self.entries >= MOST_ENTRIES { Err(HideProblem::TooManyEntries) } else { Ok(entries) }
    }

    /// Looks through a directory; `above` are the names from the root of the workspace to it.
    fn walk(&mut self, directory: &HostPath, above: &mut Vec<OsString>) -> Result<(), HideProblem> {
        for entry in self.read(directory)? {
            let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else { continue };
            if name == ".git" {
                continue;
            }
            let path = directory.join(&name);
            above.push(name);
            let names: Vec<&[u8]> = above.iter().map(|name| name.as_bytes()).collect();
            let globs = &self.question.globs;
            match globs.iter().position(|glob| glob.matches(&names, kind.is_dir())) {
                Some(glob) => self.hide(&path, Some(glob)),
                None if kind.is_dir() && globs.iter().any(|glob| glob.may_match_below(&names)) => {
                    self.walk(&path, above)?;
                }
                None => {}
            }
            above.pop();
        }
        Ok(())
    }

    /// Hides a file, or the target of a link if it is in the workspace: a link cannot be covered.
    fn hide(&mut self, path: &HostPath, glob: Option<usize>) {
        let real = path.as_path().canonicalize().ok().and_then(|real| HostPath::new(real).ok());
        let Some(real) = real.filter(|real| self.question.trees.iter().any(|tree| real.is_within(tree))) else {
            return;
        };
        let is_root = self.question.trees.contains(&real);
        let is_in_git = real.as_path().iter().any(|name| name == ".git");
        if !is_root && !is_in_git {
            let is_directory = real.as_path().is_dir();
            self.found.entry(real).or_insert((is_directory, glob));
        }
    }

    /// Finds the other names of hidden files that have several, and returns those with names outside
    /// of the workspace.
    fn other_names(&mut self) -> Result<Vec<HostPath>, HideProblem> {
        let mut wanted: BTreeMap<FileId, (HostPath, u64)> = BTreeMap::new();
        let mut pending: Vec<HostPath> = self.found.keys().cloned().collect();
        while let Some(path) = pending.pop() {
            let Ok(meta) = path.as_path().symlink_metadata() else { continue };
            if meta.is_dir() {
                pending.extend(self.read(&path)?.iter().map(|entry| path.join(entry.file_name())));
            } else if meta.is_file() && meta.nlink() > 1 {
                let (_, count) = wanted.entry((meta.dev(), meta.ino())).or_insert((path, meta.nlink()));
                *count -= 1;
            }
        }
        if wanted.values().all(|(_, others)| *others == 0) {
            return Ok(Vec::new());
        }
        let inodes: BTreeSet<u64> = wanted.keys().map(|(_, inode)| *inode).collect();
        let mut directories: Vec<HostPath> = self.question.trees.clone();
        while let Some(directory) = directories.pop() {
            for entry in self.read(&directory)? {
                let path = directory.join(entry.file_name());
                let is_hidden = self.found.contains_key(&path);
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && !is_hidden && entry.file_name() != ".git" => directories.push(path),
                    Ok(kind) if kind.is_file() && !is_hidden && inodes.contains(&entry.ino()) => {
                        let id = entry.metadata().map(|meta| (meta.dev(), meta.ino()));
                        if let Some((_, count)) = id.ok().and_then(|id| wanted.get_mut(&id)) {
                            *count = count.saturating_sub(1);
                            self.hide(&path, None);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(wanted.into_values().filter(|(_, others)| *others > 0).map(|(path, _)| path).collect())
    }
}
