//! Keeps what the guest's version of a file is based on: a file that the user changes meanwhile can be
//! merged only if the common version is known.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::changes::Change;
use super::node::{Node, Stamp};
use super::text::MAX_TEXT;
use crate::facts::git::index::SeenFile;
use crate::gate::repository::KeptRepositories;
use crate::kept_copy::KeptCopy;
use crate::path::HostPath;
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

/// The file with what is known, in the directory of the copy, and the directory with contents.
const FILE: &str = "bases.json";
const CONTENTS: &str = "bases";
const MAX_RECORD: u64 = 256 << 20;
/// A file that is larger is not kept for a merge.
const MAX_CONTENT: u64 = 256 << 10;
/// All that is kept for merges. A copy takes little more space than what changed.
const MAX_CONTENTS: u64 = 900 << 10;

/// A version of a file of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    tree: usize,
    #[serde(with = "crate::saved_path")]
    path: PathBuf,
    /// `None` if there was no such file.
    node: Option<Node>,
    stamp: Option<Stamp>,
    /// The name of the file with the content, if it was kept.
    content: Option<String>,
    /// The guest's version of which everything has been taken over; `stamp` is `None` if it removed the
    /// file.
    #[serde(default)]
    taken: Option<TakenVersion>,
    /// Whether the common version is not known, because the user changed the file before it was noted.
    #[serde(default)]
    is_unknown: bool,
    /// What was known before the last `apply`, for `undo`.
    #[serde(default)]
    before: Option<Box<BeforeApply>>,
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

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    known: Vec<Known>,
    /// Whether `known` has all tracked files that differed from the index when the guest started.
    is_scanned: bool,
    /// The bytes of all contents.
    size: u64,
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
    record: Record,
    by_path: BTreeMap<(usize, PathBuf), usize>,
    repositories: Option<KeptRepositories>,
    tracked: Option<BTreeMap<PathBuf, (PathBuf, SeenFile)>>,
}

impl Bases {
    /// Reads what is known about the copy in a directory.
    pub fn load(directory: &HostPath) -> Self {
        let text = untrusted::read_bytes(directory.join(FILE).as_path(), MAX_RECORD).ok();
        let record: Record = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let places = record.known.iter().enumerate().map(|(at, known)| ((known.tree, known.path.clone()), at));
        Bases {
            directory: directory.as_path().to_owned(),
            by_path: places.collect(),
            record,
            repositories: KeptRepositories::open(directory),
            tracked: None,
        }
    }

    pub fn save(&self) -> io::Result<()> {
        let new = self.directory.join(format!("{FILE}.new"));
        fs::write(&new, serde_json::to_vec(&self.record)?)?;
        fs::rename(new, self.directory.join(FILE))
    }

    /// Notes the user's versions of changed files that are still as they were when the copy was made.
    pub fn note(&mut self, copy: &KeptCopy, changes: &[Change]) -> io::Result<()> {
        for change in changes {
            let is_old = change.host.as_ref().is_none_or(|(_, stamp)| stamp.changed <= copy.made);
            if is_old && !self.by_path.contains_key(&(change.tree, change.path.clone())) {
                self.set(copy, change.tree, &change.path, change.host.clone(), None)?;
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
        let content = match &host {
            Some((Node::File { size, .. }, _)) if *size <= MAX_CONTENT && self.record.size + size <= MAX_CONTENTS => {
                self.keep_content(copy, tree, path)?
            }
            _ => None,
        };
        let (node, stamp) = host.unzip();
        let known = Known { tree, path: path.to_owned(), node, stamp, content, taken, is_unknown: false, before: None };
        match self.by_path.get(&(tree, path.to_owned())) {
            Some(at) => self.record.known[*at] = known,
            None => {
                self.by_path.insert((tree, path.to_owned()), self.record.known.len());
                self.record.known.push(known);
            }
        }
        Ok(())
    }

    fn keep_content(&mut self, copy: &KeptCopy, tree: usize, path: &Path) -> io::Result<Option<String>> {
        let Some(tree) = copy.trees.get(tree) else { return Ok(None) };
        let Ok(Some(content)) = UntrustedDir::open(&tree.host)?.read(path, MAX_CONTENT) else { return Ok(None) };
        let contents = self.directory.join(CONTENTS);
        DirBuilder::new().recursive(true).mode(0o700).create(&contents)?;
        let name = crate::session_id::random_name();
        fs::write(contents.join(&name), &content)?;
        self.record.size += content.len() as u64;
        Ok(Some(name))
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
        let mut known = self.by_path.get(&key).and_then(|at| self.record.known.get(*at)).cloned();
        known.iter_mut().for_each(|known| known.before = None);
        self.set(copy, tree, path, self.look(copy, tree, path)?, taken)?;
        if let Some(now) = self.by_path.get(&key).and_then(|at| self.record.known.get_mut(*at)) {
            now.before = Some(Box::new(BeforeApply { known, was_host }));
        }
        Ok(())
    }

    /// Restores what was known before `apply`, which `undo` has taken back.
    pub fn note_undone(&mut self, copy: &KeptCopy, tree: usize, path: &Path) -> io::Result<()> {
        let Some(at) = self.by_path.get(&(tree, path.to_owned())).copied() else { return Ok(()) };
        let Some(before) = self.record.known.get_mut(at).and_then(|known| known.before.take()) else { return Ok(()) };
        match before.known {
            _ if before.was_host => self.set(copy, tree, path, self.look(copy, tree, path)?, None),
            Some(known) => {
                self.record.known[at] = known;
                Ok(())
            }
            None => {
                self.record.known[at].taken = None;
                self.record.known[at].is_unknown = true;
                Ok(())
            }
        }
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
                let at = self.by_path.get(&(number, below));
                if let (true, Some(known)) = (is_young, at.and_then(|at| self.record.known.get_mut(*at))) {
                    known.is_unknown = true;
                }
            }
        }
        self.record.is_scanned = true;
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
        let known = self.by_path.get(&(change.tree, change.path.clone())).and_then(|at| self.record.known.get(*at));
        known.and_then(|known| known.taken).is_some_and(|taken| taken.stamp == change.new_stamp)
    }

    /// Finds the common version of a changed file.
    pub fn find(&mut self, copy: &KeptCopy, change: &Change) -> Base {
        if let Some(known) =
            self.by_path.get(&(change.tree, change.path.clone())).and_then(|at| self.record.known.get(*at))
        {
            if known.is_unknown {
                return Base::Unknown;
            }
            if known.stamp == change.host.as_ref().map(|(_, stamp)| *stamp) {
                return if change.host.is_some() { Base::Host } else { Base::Missing };
            }
            return match &known.node {
                None => Base::Missing,
                Some(node @ Node::File { .. }) => {
                    let content = known.content.as_ref().and_then(|name| {
                        untrusted::read_bytes(&self.directory.join(CONTENTS).join(name), MAX_CONTENT).ok()
                    });
                    let node = node.clone();
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
            _ if self.record.is_scanned => match self.tracked_version(copy, change) {
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
        if !self.record.is_scanned {
            return None;
        }
        let path = copy.trees.get(change.tree)?.host.join(&change.path);
        let (git_dir, seen) = self.tracked().get(&path)?.clone();
        let content = self.repositories.as_ref()?.blob(&git_dir, &seen.id).ok()?;
        // With other line ends than in the working tree it would not be the version of the guest.
        if content.len() as u64 > MAX_TEXT || content.len() as u32 != seen.size {
            return None;
        }
        let mode = match &change.host {
            Some((Node::File { mode, .. }, _)) => *mode,
            _ => 0o644,
        };
        Some(Base::Kept { node: Node::File { size: content.len() as u64, mode }, content: Some(content) })
    }
}

fn is_as_seen(meta: &fs::Metadata, seen: &SeenFile) -> bool {
    use std::os::unix::fs::MetadataExt;
    let modified = (meta.mtime() as u32, meta.mtime_nsec() as u32);
    let is_same_time = modified.0 == seen.modified.0 && (seen.modified.1 == 0 || modified.1 == seen.modified.1);
    is_same_time && meta.len() as u32 == seen.size
}

/// Compares the contents of two files without keeping them.
pub fn is_same_content(one: &mut impl Read, other: &mut impl Read) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let (a, b) = (fill(one, &mut left)?, fill(other, &mut right)?);
        if left[..a] != right[..b] {
            return Ok(false);
        }
        if a == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match from.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Returns a path as text for people.
pub fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}
