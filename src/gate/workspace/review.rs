//! Puts together what is reviewed: each changed file with its old and new version, its differences, and
//! whether the user changed it meanwhile. The page and the commands show the same review.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bases::{Base, Bases};
use super::changes::{self, Change, changed_files};
use super::ignore_rules::IgnoreRules;
use super::node::{Node, Stamp};
use super::same_content::is_same_content;
use super::text::{self, Hunk, MAX_TEXT, Merge};
use super::transaction::UndoRecord;
use crate::kept_copy::KeptCopy;
use crate::path::HostPath;
use crate::process::untrusted_dir::UntrustedDir;

/// Pairs of removed and new files that are compared to find renamed ones.
const MAX_PAIRS: usize = 40_000;
const MAX_RENAMED: u64 = 1 << 20;

/// Everything that waits in a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    pub files: Vec<FileReview>,
    /// Git directories that the guest made, which stay in the copy.
    #[serde(with = "crate::saved_path")]
    pub git_dirs: Vec<PathBuf>,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReview {
    pub tree: usize,
    #[serde(with = "crate::saved_path")]
    pub path: PathBuf,
    /// The former path of a renamed file.
    #[serde(with = "crate::saved_path")]
    pub from: Option<PathBuf>,
    pub old: Option<Node>,
    pub new: Option<Node>,
    pub state: State,
    /// Whether Git ignores it.
    pub is_ignored: bool,
    pub content: Content,
    /// The user's version that was compared.
    pub host: Option<Stamp>,
    /// The guest's version that was compared.
    pub guest: Option<Stamp>,
}

/// Whether a change can be taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "reason")]
pub enum State {
    Clean,
    /// The user changed other lines meanwhile.
    Merges,
    Conflict(String),
    /// Pipes, sockets and devices stay in the copy.
    Stays,
}

/// The differences of the contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// The contents are the same, or there are none.
    Same,
    Text(Vec<Hunk>),
    Binary,
    /// The file is too large to be shown.
    Large,
}

impl FileReview {
    /// Counts the added and the removed lines.
    pub fn lines(&self) -> (usize, usize) {
        let Content::Text(hunks) = &self.content else { return (0, 0) };
        let count = |side| hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.side == side).count();
        (count(text::Side::New), count(text::Side::Old))
    }

    /// Returns the letter that Git uses for the kind of change.
    pub fn letter(&self) -> char {
        match (&self.from, &self.old, &self.new) {
            (Some(_), ..) => 'R',
            (None, None, _) => 'A',
            (None, Some(_), None) => 'D',
            (None, Some(old), Some(new)) if std::mem::discriminant(old) != std::mem::discriminant(new) => 'T',
            _ => 'M',
        }
    }
}

/// The versions of a changed file.
pub struct Versions {
    /// The content of the common version, if it is a file of moderate size.
    pub old: Option<Vec<u8>>,
    pub new: Option<Vec<u8>>,
    pub host: Option<Vec<u8>>,
}

/// Reviews a copy.
pub struct Reviewer<'a> {
    copy: &'a KeptCopy,
    pub bases: Bases,
    hosts: Vec<UntrustedDir>,
    changed: Vec<UntrustedDir>,
}

impl<'a> Reviewer<'a> {
    pub fn open(copy: &'a KeptCopy, directory: &HostPath) -> io::Result<Self> {
        let hosts: io::Result<Vec<_>> = copy.trees.iter().map(|tree| UntrustedDir::open(&tree.host)).collect();
        let changed: io::Result<Vec<_>> = (0..copy.trees.len()).map(|tree| changed_files(copy, tree)).collect();
        Ok(Reviewer { copy, bases: Bases::load(directory), hosts: hosts?, changed: changed? })
    }

    /// Compares everything. `is_wanted` selects paths.
    pub fn review(&mut self, is_wanted: &dyn Fn(usize, &Path) -> bool) -> io::Result<Review> {
        let changes = changes::list(self.copy)?;
        let mut files = Vec::new();
        for change in changes.list.iter().filter(|change| is_wanted(change.tree, &change.path)) {
            files.extend(
                self.file(change)
                    .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", change.path.display())))?,
            );
        }
        self.find_ignored(&mut files);
        self.find_renamed(&mut files)?;
        let git_dirs = changes.git_dirs.iter().map(|(tree, path)| self.copy.trees[*tree].host.join(path));
        Ok(Review { files, git_dirs: git_dirs.collect() })
    }

    /// Reviews one path; `None` if both versions are the same.
    fn file(&mut self, change: &Change) -> io::Result<Option<FileReview>> {
        let host_node = change.host.as_ref().map(|(node, _)| node.clone());
        if self.bases.is_taken(change) {
            return Ok(None);
        }
        let is_same_node = match (&host_node, &change.new) {
            (Some(Node::File { size, mode }), Some(Node::File { size: other, mode: other_mode })) => {
                size == other && mode == other_mode && self.is_same(change)?
            }
            (host, new) => host == new,
        };
        if is_same_node {
            return Ok(None);
        }
        let base = self.bases.find(self.copy, change);
        let review = |old: Option<Node>, state, content| {
            Some(FileReview {
                tree: change.tree,
                path: change.path.clone(),
                from: None,
                old,
                new: change.new.clone(),
                state,
                is_ignored: false,
                content,
                host: change.host.as_ref().map(|(_, stamp)| *stamp),
                guest: change.new_stamp,
            })
        };
        if change.new.as_ref().is_some_and(Node::is_special) {
            return Ok(review(host_node, State::Stays, Content::Same));
        }
        let old_node = match &base {
            Base::Host | Base::Unknown => host_node.clone(),
            Base::Missing => None,
            Base::Kept { node, .. } => Some(node.clone()),
        };
        let Versions { old, new, host, .. } = self.versions(change, &base)?;
        // The user changed it, and the guest did not.
        let is_guests = !(old_node == change.new && old == new && base != Base::Unknown);
        if !is_guests {
            return Ok(None);
        }
        let content = match (&old_node, &change.new) {
            (Some(Node::File { size, .. }), Some(Node::File { size: other, .. })) => match (&old, &new) {
                (Some(old), Some(new)) if old == new => Content::Same,
                (Some(old), Some(new)) if text::is_binary(old) || text::is_binary(new) => Content::Binary,
                (Some(old), Some(new)) => Content::Text(text::hunks(old, new)),
                _ if size == other && self.is_same(change)? => Content::Same,
                _ => Content::Large,
            },
            (None | Some(Node::Directory { .. }), Some(Node::File { .. })) => {
                one_sided(new.as_deref(), |new| text::hunks(b"", new))
            }
            (Some(Node::File { .. }), _) => one_sided(old.as_deref(), |old| text::hunks(old, b"")),
            _ => Content::Same,
        };
        let state = match &base {
            Base::Host => State::Clean,
            Base::Missing if host_node.is_none() => State::Clean,
            Base::Unknown => State::Conflict(
                "changed here meanwhile, and the version that the sandbox started from is not known".into(),
            ),
            Base::Missing => State::Conflict("made here meanwhile as well".into()),
            Base::Kept { node, content } => match (&host_node, &change.new) {
                (None, None) => return Ok(None),
                (None, Some(_)) => State::Conflict("removed here meanwhile".into()),
                // Only its times are others.
                (Some(now), None) if now == node && *content == host => State::Clean,
                (Some(_), None) => State::Conflict("removed in the sandbox and changed here meanwhile".into()),
                (Some(Node::File { .. }), Some(Node::File { .. })) => match (content, &host, &new) {
                    (Some(base), Some(host), Some(_)) if base == host => State::Clean,
                    (Some(base), Some(host), Some(new)) => match text::merge(base, host, new) {
                        Merge::Clean(_) => State::Merges,
                        Merge::Conflict(_) => State::Conflict("the same lines were changed here meanwhile".into()),
                        Merge::Impossible => State::Conflict("changed here meanwhile, and it cannot be merged".into()),
                    },
                    _ => State::Conflict("changed here meanwhile".into()),
                },
                (Some(host), Some(_)) if host == node => State::Clean,
                _ => State::Conflict("changed here meanwhile".into()),
            },
        };
        Ok(review(old_node, state, content))
    }

    /// Reads the contents of the common version, the guest's and the user's, as far as they are files of
    /// moderate size.
    pub fn versions(&self, change: &Change, base: &Base) -> io::Result<Versions> {
        let read = |directory: &UntrustedDir, node: Option<&Node>| match node {
            Some(Node::File { size, .. }) if *size <= MAX_TEXT => directory.read(&change.path, MAX_TEXT),
            _ => Ok(None),
        };
        let host = read(&self.hosts[change.tree], change.host.as_ref().map(|(node, _)| node))?;
        let new = read(&self.changed[change.tree], change.new.as_ref())?;
        let old = match base {
            Base::Host | Base::Unknown => host.clone(),
            Base::Missing => None,
            Base::Kept { content, .. } => content.clone(),
        };
        Ok(Versions { old, new, host })
    }

    fn is_same(&self, change: &Change) -> io::Result<bool> {
        let (Some(mut one), Some(mut other)) =
            (self.host_file(change.tree, &change.path)?, self.new_file(change.tree, &change.path)?)
        else {
            return Ok(false);
        };
        is_same_content(&mut one, &mut other)
    }

    pub fn host_file(&self, tree: usize, path: &Path) -> io::Result<Option<File>> {
        self.hosts.get(tree).map_or(Ok(None), |host| host.file(path))
    }

    /// Opens the guest's version of a file.
    pub fn new_file(&self, tree: usize, path: &Path) -> io::Result<Option<File>> {
        self.changed.get(tree).map_or(Ok(None), |changed| changed.file(path))
    }

    /// Returns the permissions of a directory in the copy.
    pub fn directory_mode(&self, tree: usize, path: &Path) -> Option<u32> {
        match Node::at(self.changed.get(tree)?, path).ok()?? {
            (Node::Directory { mode }, _) => Some(mode),
            _ => None,
        }
    }

    fn find_ignored(&mut self, files: &mut [FileReview]) {
        let Some(general) = self.bases.repositories().map(|repositories| repositories.excludes()) else { return };
        for tree in 0..self.copy.trees.len() {
            let mut rules = IgnoreRules::new(vec![&self.changed[tree], &self.hosts[tree]], &general);
            for file in files.iter_mut().filter(|file| file.tree == tree) {
                let is_directory = [&file.new, &file.old].into_iter().flatten().next().is_some_and(Node::is_directory);
                if rules.is_ignored(&file.path, is_directory) {
                    file.is_ignored = !self.bases.is_tracked(&self.copy.trees[tree].host.join(&file.path));
                }
            }
        }
    }

    /// Makes one renamed file of a removed and a new one that are alike, as Git does.
    fn find_renamed(&self, files: &mut Vec<FileReview>) -> io::Result<()> {
        let is_file =
            |node: &Option<Node>| matches!(node, Some(Node::File { size, .. }) if (1..=MAX_RENAMED).contains(size));
        let is_clean = |file: &FileReview| file.state == State::Clean && !file.is_ignored;
        let removed: Vec<usize> = (0..files.len())
            .filter(|at| files[*at].new.is_none() && is_file(&files[*at].old) && is_clean(&files[*at]))
            .collect();
        let made: Vec<usize> = (0..files.len())
            .filter(|at| files[*at].old.is_none() && is_file(&files[*at].new) && is_clean(&files[*at]))
            .collect();
        if removed.is_empty() || made.is_empty() || removed.len() * made.len() > MAX_PAIRS {
            return Ok(());
        }
        let read = |file: &FileReview, of_host: bool| -> io::Result<Vec<u8>> {
            let opened =
                if of_host { self.host_file(file.tree, &file.path)? } else { self.new_file(file.tree, &file.path)? };
            let mut content = Vec::new();
            if let Some(opened) = opened {
                opened.take(MAX_RENAMED).read_to_end(&mut content)?;
            }
            Ok(content)
        };
        let mut old: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for at in removed {
            old.insert(at, read(&files[at], true)?);
        }
        let mut gone = Vec::new();
        for at in made {
            let content = read(&files[at], false)?;
            let alike =
                old.iter().map(|(from, old)| (likeness(old, &content), *from)).filter(|(likeness, _)| *likeness >= 50);
            let Some((_, from)) = alike.max_by_key(|(likeness, from)| (*likeness, std::cmp::Reverse(*from))) else {
                continue;
            };
            let Some(before) = old.remove(&from) else { continue };
            let (path, node) = (files[from].path.clone(), files[from].old.clone());
            if files[from].tree != files[at].tree {
                continue;
            }
            let file = &mut files[at];
            file.from = Some(path);
            file.old = node;
            file.content = match before == content {
                true => Content::Same,
                false if text::is_binary(&before) || text::is_binary(&content) => Content::Binary,
                false => Content::Text(text::hunks(&before, &content)),
            };
            gone.push(from);
        }
        let mut at = 0;
        files.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
        Ok(())
    }
}

fn one_sided(content: Option<&[u8]>, hunks: impl FnOnce(&[u8]) -> Vec<Hunk>) -> Content {
    match content {
        None => Content::Large,
        Some([]) => Content::Same,
        Some(content) if text::is_binary(content) => Content::Binary,
        Some(content) => Content::Text(hunks(content)),
    }
}

/// Returns how much of two contents is the same, in percent: by lines, or all of it.
fn likeness(old: &[u8], new: &[u8]) -> usize {
    if old == new {
        return 100;
    }
    if text::is_binary(old) || text::is_binary(new) {
        return 0;
    }
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    text::lines(old).for_each(|line| *counts.entry(line).or_default() += 1);
    let mut common = 0;
    for line in text::lines(new) {
        if let Some(count) = counts.get_mut(line).filter(|count| **count > 0) {
            *count -= 1;
            common += line.len();
        }
    }
    common * 100 / old.len().max(new.len()).max(1)
}

/// Tells whether anything changed in a copy: files, refs or HEAD.
pub fn has_changes(copy: &KeptCopy, directory: &HostPath) -> bool {
    let has_files =
        changes::list(copy).map_or(true, |changes| !changes.list.is_empty() || !changes.git_dirs.is_empty());
    has_files || Bases::load(directory).repositories().is_some_and(|repositories| repositories.has_changed_refs())
}

/// Keeps, after the end of a sandbox, what merges need.
pub fn note_bases(copy: &KeptCopy, directory: &HostPath) -> io::Result<()> {
    let changes = changes::list(copy)?;
    Bases::load(directory).note(copy, &changes.list)
}

/// Lets everything that was taken back wait again.
pub fn forget_taken(copy: &KeptCopy, directory: &HostPath, record: &UndoRecord) -> io::Result<()> {
    let mut bases = Bases::load(directory);
    for done in &record.done {
        bases.note_undone(copy, done.tree, &done.path)?;
    }
    bases.save()
}

/// Keeps, after the start of a sandbox, the tracked files that are in no object of the user's.
pub fn scan_bases(copy: &KeptCopy, directory: &HostPath) -> io::Result<()> {
    Bases::load(directory).scan(copy)
}
