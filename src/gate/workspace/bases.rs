//! Keeps what the guest's version of a file is based on: a file that the user changes meanwhile can be
//! merged only if the common version is known.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::changes::Change;
use super::kept_contents::{KeptContents, Place};
use super::node::{Node, Stamp};
use super::text::MAX_TEXT;
use crate::facts::git::index::SeenFile;
use crate::gate::repository::KeptRepositories;
use crate::kept_copy::KeptCopy;
use crate::path::HostPath;
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

/// The file with what is known, in the directory of the copy.
const FILE: &str = "bases.json";
const MAX_RECORD: u64 = 256 << 20;

/// A version of a file of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    #[serde(default, skip_serializing_if = "is_default")]
    tree: usize,
    #[serde(with = "crate::saved_path")]
    path: PathBuf,
    /// `None` if there was no such file.
    #[serde(default, skip_serializing_if = "is_default")]
    node: Option<Node>,
    #[serde(default, skip_serializing_if = "is_default")]
    stamp: Option<Stamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    content: Option<KnownContent>,
    /// The guest's version of which everything has been taken over; `stamp` is `None` if it removed the
    /// file.
    #[serde(default, skip_serializing_if = "is_default")]
    taken: Option<TakenVersion>,
    /// Whether the common version is not known, because the user changed the file before it was noted.
    #[serde(default, skip_serializing_if = "is_default")]
    is_unknown: bool,
    /// What was known before the last `apply`, for `undo`.
    #[serde(default, skip_serializing_if = "is_default")]
    before: Option<Box<BeforeApply>>,
}

/// There may be a record for each changed file, and most values are the default.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where the content of the user's version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KnownContent {
    /// In the user's repository, as the object that the index had for the file.
    Git,
    Kept(Place),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BeforeApply {
    known: Option<Known>,
    /// Whether the user's version was the common one.
    was_host: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenVersion {
    pub stamp: Option<Stamp>,
}

/// What is written to the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record<K> {
    known: Vec<K>,
    /// Whether `known` has all tracked files that differed from the index when the guest started.
    is_scanned: bool,
}

/// The common version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// The user's version as it is now.
    Host,
    /// There was none.
    Missing,
    Kept {
        node: Node,
        content: Option<Vec<u8>>,
    },
    Unknown,
}

/// The common versions of a copy.
pub struct Bases {
    directory: PathBuf,
    contents: KeptContents,
    /// By directory and path.
    known: BTreeMap<(usize, PathBuf), Known>,
    is_scanned: bool,
    repositories: Option<KeptRepositories>,
    tracked: Option<BTreeMap<PathBuf, (PathBuf, SeenFile)>>,
}

impl Bases {
    /// Reads what is known about the copy in a directory.
    pub fn load(directory: &HostPath) -> Self {
        let text = untrusted::read_bytes(directory.join(FILE).as_path(), MAX_RECORD).ok();
        let record = text.and_then(|text| serde_json::from_slice(&text).ok());
        let Record { known, is_scanned } = record.unwrap_or(Record::<Known> { known: Vec::new(), is_scanned: false });
        Bases {
            directory: directory.as_path().to_owned(),
            contents: KeptContents::in_directory(directory.as_path()),
            known: known.into_iter().map(|known| ((known.tree, known.path.clone()), known)).collect(),
            is_scanned,
            repositories: KeptRepositories::open(directory),
            tracked: None,
        }
    }

    pub fn save(&self) -> io::Result<()> {
        let new = self.directory.join(format!("{FILE}.new"));
        let record = Record { known: self.known.values().collect(), is_scanned: self.is_scanned };
        fs::write(&new, serde_json::to_vec(&record)?)?;
        fs::rename(new, self.directory.join(FILE))
    }

    /// Notes the user's versions of changed files that are still as they were when the copy was made.
    pub fn note(&mut self, copy: &KeptCopy, changes: &[Change]) -> io::Result<()> {
        for change in changes {
            let is_old = change.host.as_ref().is_none_or(|(_, stamp)| stamp.changed <= copy.made);
            if !is_old || self.known.contains_key(&(change.tree, change.path.clone())) {
                continue;
            }
            let known = self.known(copy, change.tree, &change.path, change.host.clone(), None)?;
            // After a scan, the index says what a file without a record was.
            if !(self.is_scanned && known.content == Some(KnownContent::Git)) {
                self.insert(known);
            }
        }
        self.save()
    }

    /// Takes the user's present version for the common one, after it was changed by `apply`.
    pub fn set(
        &mut self,
        copy: &KeptCopy,
        tree: usize,
        path: &Path,
        host: Option<(Node, Stamp)>,
        taken: Option<TakenVersion>,
    ) -> io::Result<()> {
        let known = self.known(copy, tree, path, host, taken)?;
        self.insert(known);
        Ok(())
    }

    fn known(
        &mut self,
        copy: &KeptCopy,
        tree: usize,
        path: &Path,
        host: Option<(Node, Stamp)>,
        taken: Option<TakenVersion>,
    ) -> io::Result<Known> {
        let content = match &host {
            Some((Node::File { size, .. }, _)) => self.keep_content(copy, tree, path, *size)?,
            _ => None,
        };
        let (node, stamp) = host.unzip();
        Ok(Known { tree, path: path.to_owned(), node, stamp, content, taken, is_unknown: false, before: None })
    }

    fn insert(&mut self, known: Known) {
        self.known.insert((known.tree, known.path.clone()), known);
    }

    /// Keeps the content of a file, unless the user's repository has it.
    fn keep_content(
        &mut self,
        copy: &KeptCopy,
        tree: usize,
        path: &Path,
        size: u64,
    ) -> io::Result<Option<KnownContent>> {
        let Some(tree) = copy.trees.get(tree).filter(|_| size <= MAX_TEXT) else { return Ok(None) };
        let seen = self.tracked().get(&tree.host.join(path)).map(|(_, seen)| seen.clone());
        if !self.contents.has_room(size) && seen.as_ref().is_none_or(|seen| u64::from(seen.size) != size) {
            return Ok(None);
        }
        let Ok(Some(content)) = UntrustedDir::open(&tree.host)?.read(path, MAX_TEXT) else { return Ok(None) };
        if seen.is_some_and(|seen| seen.id.is_of_blob(&content)) {
            return Ok(Some(KnownContent::Git));
        }
        // It may have grown meanwhile.
        match self.contents.has_room(content.len() as u64) {
            true => self.contents.keep(&content).map(|place| Some(KnownContent::Kept(place))),
            false => Ok(None),
        }
    }

    /// Notes the user's version after `apply`. `was_host` tells whether the version before was the common
    /// one.
    pub fn note_applied(
        &mut self,
        copy: &KeptCopy,
        tree: usize,
        path: &Path,
        taken: Option<TakenVersion>,
        was_host: bool,
    ) -> io::Result<()> {
        let key = (tree, path.to_owned());
        let mut known = self.known.get(&key).cloned();
        known.iter_mut().for_each(|known| known.before = None);
        self.set(copy, tree, path, self.look(copy, tree, path)?, taken)?;
        if let Some(now) = self.known.get_mut(&key) {
            now.before = Some(Box::new(BeforeApply { known, was_host }));
        }
        Ok(())
    }

    /// Restores what was known before `apply`, which `undo` has taken back.
    pub fn note_undone(&mut self, copy: &KeptCopy, tree: usize, path: &Path) -> io::Result<()> {
        let key = (tree, path.to_owned());
        let Some(before) = self.known.get_mut(&key).and_then(|known| known.before.take()) else { return Ok(()) };
        match before.known {
            _ if before.was_host => self.set(copy, tree, path, self.look(copy, tree, path)?, None)?,
            Some(known) => self.insert(known),
            None => drop(self.known.remove(&key)),
        }
        Ok(())
    }

    fn look(&self, copy: &KeptCopy, tree: usize, path: &Path) -> io::Result<Option<(Node, Stamp)>> {
        let Some(tree) = copy.trees.get(tree) else { return Ok(None) };
        let host = Node::at(&UntrustedDir::open(&tree.host)?, path)?;
        Ok(host.map(|(node, stat)| (node, Stamp::of(&stat))))
    }

    /// Notes the tracked files that differ from the index, so that all others can be read from the
    /// user's objects later. Called once, soon after the guest has started.
    pub fn scan(&mut self, copy: &KeptCopy) -> io::Result<()> {
        for (path, (_, seen)) in self.tracked().clone() {
            let found = copy.trees.iter().enumerate().find_map(|(number, tree)| {
                path.strip_prefix(&tree.host).ok().map(|below| (number, tree, below.to_owned()))
            });
            let Some((number, tree, below)) = found else { continue };
            let Ok(meta) = path.symlink_metadata() else { continue };
            if !is_as_seen(&meta, &seen) {
                let host = Node::at(&UntrustedDir::open(&tree.host)?, &below)?;
                let host = host.map(|(node, stat)| (node, Stamp::of(&stat)));
                let is_young = host.as_ref().is_none_or(|(_, stamp)| stamp.changed > copy.made);
                self.set(copy, number, &below, host, None)?;
                if let (true, Some(known)) = (is_young, self.known.get_mut(&(number, below))) {
                    known.is_unknown = true;
                }
            }
        }
        self.is_scanned = true;
        self.save()
    }

    fn tracked(&mut self) -> &BTreeMap<PathBuf, (PathBuf, SeenFile)> {
        let repositories = &self.repositories;
        self.tracked.get_or_insert_with(|| {
            let of_all = repositories.iter().flat_map(KeptRepositories::tracked);
            let files = of_all.flat_map(|tracked| {
                let (work_tree, git_dir) = (tracked.work_tree, tracked.git_dir);
                tracked.files.into_iter().map(move |(path, seen)| {
                    (work_tree.join(std::ffi::OsString::from_vec(path)), (git_dir.clone(), seen))
                })
            });
            files.collect()
        })
    }

    /// Tells whether Git tracks a file.
    pub fn is_tracked(&mut self, path: &Path) -> bool {
        self.tracked().contains_key(path)
    }

    pub fn repositories(&self) -> Option<&KeptRepositories> {
        self.repositories.as_ref()
    }

    /// Tells whether everything of the guest's version has been taken over.
    pub fn is_taken(&self, change: &Change) -> bool {
        let known = self.known.get(&(change.tree, change.path.clone()));
        known.and_then(|known| known.taken).is_some_and(|taken| taken.stamp == change.new_stamp)
    }

    /// Finds the common version of a changed file.
    pub fn find(&mut self, copy: &KeptCopy, change: &Change) -> Base {
        if let Some(known) = self.known.get(&(change.tree, change.path.clone())) {
            if known.is_unknown {
                return Base::Unknown;
            }
            if known.stamp == change.host.as_ref().map(|(_, stamp)| *stamp) {
                return if change.host.is_some() { Base::Host } else { Base::Missing };
            }
            return match &known.node {
                None => Base::Missing,
                Some(node @ Node::File { .. }) => {
                    let node = node.clone();
                    let content = match known.content {
                        Some(KnownContent::Kept(place)) => self.contents.read(place).ok(),
                        Some(KnownContent::Git) => self.tracked_content(copy, change),
                        None => None,
                    };
                    match content {
                        Some(content) => Base::Kept { node, content: Some(content) },
                        None => self.tracked_version(copy, change).unwrap_or(Base::Unknown),
                    }
                }
                Some(node) => Base::Kept { node: node.clone(), content: None },
            };
        }
        match &change.host {
            Some((_, stamp)) if stamp.changed <= copy.made => Base::Host,
            Some((Node::Directory { .. }, _)) => Base::Host,
            _ if self.is_scanned => match self.tracked_version(copy, change) {
                Some(base) => base,
                None if change.host.is_none() => Base::Missing,
                None => Base::Unknown,
            },
            None => Base::Missing,
            Some(_) => Base::Unknown,
        }
    }

    /// Reads the version of a tracked file that was the same in the working tree and in the index.
    fn tracked_version(&mut self, copy: &KeptCopy, change: &Change) -> Option<Base> {
        if !self.is_scanned {
            return None;
        }
        let path = copy.trees.get(change.tree)?.host.join(&change.path);
        let size = self.tracked().get(&path)?.1.size;
        // With other line ends than in the working tree it would not be the version of the guest.
        let content = self.tracked_content(copy, change).filter(|content| content.len() as u32 == size)?;
        let mode = match &change.host {
            Some((Node::File { mode, .. }, _)) => *mode,
            _ => 0o644,
        };
        Some(Base::Kept { node: Node::File { size: content.len() as u64, mode }, content: Some(content) })
    }

    fn tracked_content(&mut self, copy: &KeptCopy, change: &Change) -> Option<Vec<u8>> {
        let path = copy.trees.get(change.tree)?.host.join(&change.path);
        let (git_dir, seen) = self.tracked().get(&path)?.clone();
        let content = self.repositories.as_ref()?.blob(&git_dir, &seen.id).ok()?;
        (content.len() as u64 <= MAX_TEXT).then_some(content)
    }
}

fn is_as_seen(meta: &fs::Metadata, seen: &SeenFile) -> bool {
    use std::os::unix::fs::MetadataExt;
    let modified = (meta.mtime() as u32, meta.mtime_nsec() as u32);
    let is_same_time = modified.0 == seen.modified.0 && (seen.modified.1 == 0 || modified.1 == seen.modified.1);
    is_same_time && meta.len() as u32 == seen.size
}

/// Returns a path as text for people.
pub fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}
