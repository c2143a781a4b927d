//! Carries out a list of changes to files of the user, all or none, and keeps what is needed to take
//! them back.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::Timestamps;
use serde::{Deserialize, Serialize};

use super::copy_files::{copy_content, times};
use super::host_tree::HostTree;
use super::node::{Node, Stamp};
use super::text::{self, Merge};
use crate::path::HostPath;
use crate::plan::flat_name;
use crate::process::lock;
use crate::process::untrusted;

const RECORD: &str = "undo.json";
const LOCK: &str = "lock";
/// The record of the last changes, and of those that are being carried out.
const LAST: &str = "last";
const CURRENT: &str = "current";
const MAX_RECORD: u64 = 1 << 30;
/// What was written is kept up to this size, so that it can be taken back after further edits.
const MAX_WRITTEN: u64 = 1 << 20;

/// One change of one entry.
pub struct Step {
    pub tree: usize,
    pub root: PathBuf,
    pub path: PathBuf,
    /// The version that is replaced.
    pub before: Option<(Node, Stamp)>,
    pub action: Action,
}

pub enum Action {
    Write { content: StepContent, mode: u32, times: Option<Timestamps> },
    Link { target: Vec<u8> },
    Remove,
    RemoveDirectory,
    MakeDirectory { mode: u32 },
    DirectoryMode { mode: u32 },
}

pub enum StepContent {
    File(File),
    Bytes(Vec<u8>),
}

/// A change that was carried out.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    pub tree: usize,
    #[serde(with = "crate::saved_path")]
    pub root: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub path: PathBuf,
    pub before: Option<Node>,
    before_stamp: Option<Stamp>,
    /// The name of the file with the content from before.
    kept: Option<String>,
    after: Option<Stamp>,
    /// The name of a file with what was written.
    written: Option<String>,
    is_done: bool,
}

/// The last changes of a workspace.
#[derive(Debug, Serialize, Deserialize)]
pub struct UndoRecord {
    /// The copy that the changes came from.
    pub copy: String,
    /// What else was changed, for example refs.
    pub refs: Vec<RefChange>,
    pub done: Vec<Done>,
}

/// A ref of the user that was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefChange {
    #[serde(with = "crate::saved_path")]
    pub git_dir: PathBuf,
    pub name: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// Paths, and why they cannot be changed.
    #[error("conflicts")]
    Conflicts(Vec<(PathBuf, String)>),
    #[error("`{}`: {source}", path.display())]
    Step { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Record(#[from] io::Error),
}

/// The changes of one workspace that can be taken back. Holds a lock, so that two commands do not change
/// files at once.
pub struct UndoStore {
    directory: PathBuf,
    _lock: File,
}

impl UndoStore {
    /// Opens the store of a workspace, and takes back what a killed command left half done.
    pub fn open(state: &HostPath, root: &Path) -> io::Result<Self> {
        let directory = state.join("undo").join(flat_name(&root.join("undo")));
        let directory = directory.as_path().to_owned();
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let path = directory.join(LOCK);
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        lock::wait(&file)?;
        let store = UndoStore { directory, _lock: file };
        if store.directory.join(CURRENT).exists() {
            if let Some(mut record) = store.read(CURRENT) {
                store.take_back(&mut record);
            }
            fs::remove_dir_all(store.directory.join(CURRENT))?;
        }
        Ok(store)
    }

    fn read(&self, name: &str) -> Option<UndoRecord> {
        let text = untrusted::read_bytes(&self.directory.join(name).join(RECORD), MAX_RECORD).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the last changes.
    pub fn last(&self) -> Option<UndoRecord> {
        self.read(LAST)
    }

    fn write(&self, record: &UndoRecord) -> io::Result<()> {
        let path = self.directory.join(CURRENT).join(RECORD);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(new, path)
    }

    /// Carries out all steps, or none. Keeps what is needed to take them back.
    pub fn carry_out(
        &self,
        copy: &str,
        refs: Vec<RefChange>,
        steps: Vec<Step>,
    ) -> Result<UndoRecord, TransactionError> {
        let mut conflicts = Vec::new();
        let is_later = have_earlier(steps.iter().map(|step| (step.root.as_path(), step.path.as_path())));
        for step in steps.iter().zip(&is_later).filter(|(_, is_later)| !**is_later).map(|(step, _)| step) {
            let now = HostTree::open(&step.root).and_then(|tree| tree.look(&step.path));
            match now {
                Ok(now) if is_expected(&now, &step.before) => {}
                Ok(_) => conflicts.push((step.path.clone(), "changed here just now".to_owned())),
                Err(error) => conflicts.push((step.path.clone(), error.to_string())),
            }
        }
        if !conflicts.is_empty() {
            return Err(TransactionError::Conflicts(conflicts));
        }
        let current = self.directory.join(CURRENT);
        DirBuilder::new().mode(0o700).create(&current)?;
        let kept = steps.iter().enumerate().map(|(number, step)| self.keep(number, step, is_later[number]));
        let done = kept.collect::<io::Result<Vec<Done>>>();
        let done = done.inspect_err(|_| drop(fs::remove_dir_all(&current)))?;
        let mut record = UndoRecord { copy: copy.to_owned(), refs, done };
        self.write(&record)?;
        for (number, step) in steps.into_iter().enumerate() {
            let path = step.path.clone();
            let expected = record.done[number].before_stamp;
            if let Err(source) = self.carry_out_one(number, step, expected, &mut record.done[number]) {
                self.take_back(&mut record);
                fs::remove_dir_all(&current)?;
                return Err(match source.kind() {
                    io::ErrorKind::ResourceBusy => TransactionError::Conflicts(vec![(path, source.to_string())]),
                    _ => TransactionError::Step { path, source },
                });
            }
        }
        self.write(&record)?;
        let last = self.directory.join(LAST);
        let _ = fs::remove_dir_all(&last);
        fs::rename(current, last)?;
        Ok(record)
    }

    /// Keeps the version that a step replaces.
    fn keep(&self, number: usize, step: &Step, is_later: bool) -> io::Result<Done> {
        let tree = HostTree::open(&step.root)?;
        let kept = match &step.before {
            Some((Node::File { .. }, _)) => {
                let name = format!("before-{number}");
                let to = self.directory.join(CURRENT).join(&name);
                if tree.link_out(&step.path, &to).is_err()
                    && let Some(mut file) = tree.file(&step.path)?
                {
                    let mut kept = File::create(&to)?;
                    copy_content(&mut file, &mut kept)?;
                    rustix::fs::futimens(&kept, &times(&rustix::fs::fstat(&file)?))?;
                }
                Some(name)
            }
            _ => None,
        };
        // The new name has changed the time of the file.
        let before_stamp = if is_later { None } else { tree.look(&step.path)?.map(|(_, stamp)| stamp) };
        Ok(Done {
            tree: step.tree,
            root: step.root.clone(),
            path: step.path.clone(),
            before: step.before.as_ref().map(|(node, _)| node.clone()),
            before_stamp,
            kept,
            after: None,
            written: None,
            is_done: false,
        })
    }

    fn carry_out_one(&self, number: usize, step: Step, expected: Option<Stamp>, done: &mut Done) -> io::Result<()> {
        let tree = HostTree::open(&step.root)?;
        let path = &step.path;
        match step.action {
            Action::Write { content, mode, times } => {
                match content {
                    StepContent::Bytes(bytes) => {
                        tree.write(path, &mut bytes.as_slice(), mode, times.as_ref(), expected)?
                    }
                    StepContent::File(mut file) => tree.write(path, &mut file, mode, times.as_ref(), expected)?,
                }
                done.is_done = true;
                if let Some(mut file) =
                    tree.file(path)?.filter(|file| file.metadata().is_ok_and(|meta| meta.len() <= MAX_WRITTEN))
                {
                    let name = format!("after-{number}");
                    copy_content(&mut file, &mut File::create(self.directory.join(CURRENT).join(&name))?)?;
                    done.written = Some(name);
                }
            }
            Action::Link { target } => tree.write_link(path, &target, expected)?,
            Action::Remove => tree.remove(path, expected)?,
            Action::RemoveDirectory => drop(tree.remove_directory(path)?),
            Action::MakeDirectory { mode } => tree.make_directory(path, mode)?,
            Action::DirectoryMode { mode } => tree.set_directory_mode(path, mode)?,
        }
        done.is_done = true;
        done.after = tree.look(path)?.map(|(_, stamp)| stamp);
        Ok(())
    }

    /// Restores the version of every entry from before, whatever is there now. For changes that were not
    /// completed.
    fn take_back(&self, record: &mut UndoRecord) {
        for done in record.done.iter().rev() {
            let Ok(tree) = HostTree::open(&done.root) else { continue };
            let Ok(now) = tree.look(&done.path) else { continue };
            let stamp = now.as_ref().map(|(_, stamp)| *stamp);
            if stamp != done.before_stamp {
                let _ = self.restore(CURRENT, &tree, done, now);
            }
        }
    }

    /// Restores the version of one entry from before.
    fn restore(&self, from: &str, tree: &HostTree, done: &Done, now: Option<(Node, Stamp)>) -> io::Result<()> {
        let (path, stamp) = (&done.path, now.as_ref().map(|(_, stamp)| *stamp));
        if let Some((Node::Directory { .. }, _)) = &now
            && !matches!(done.before, Some(Node::Directory { .. }))
            && !tree.remove_directory(path)?
        {
            return Err(io::Error::other("the directory has other files"));
        }
        let stamp = stamp.filter(|_| !matches!(now, Some((Node::Directory { .. }, _))));
        match &done.before {
            None if stamp.is_some() => tree.remove(path, stamp),
            None => Ok(()),
            Some(Node::File { mode, .. }) => {
                let kept = self.directory.join(from).join(done.kept.as_deref().unwrap_or_default());
                match tree.move_in(&kept, path, stamp) {
                    Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                        let mut kept = File::open(&kept)?;
                        let times = times(&rustix::fs::fstat(&kept)?);
                        tree.write(path, &mut kept, *mode, Some(&times), stamp)
                    }
                    moved => moved,
                }
            }
            Some(Node::Link { target }) => tree.write_link(path, target, stamp),
            Some(Node::Directory { mode }) => match now {
                Some((Node::Directory { .. }, _)) => tree.set_directory_mode(path, *mode),
                Some(_) => {
                    tree.remove(path, stamp)?;
                    tree.make_directory(path, *mode)
                }
                None => tree.make_directory(path, *mode),
            },
            Some(_) => Ok(()),
        }
    }

    /// Takes the last changes back, all or none; what was edited since is merged.
    pub fn undo(&self, record: &UndoRecord) -> Result<Vec<PathBuf>, TransactionError> {
        let mut conflicts = Vec::new();
        let mut merged: Vec<Option<Vec<u8>>> = Vec::new();
        let paths = record.done.iter().rev().map(|done| (done.root.as_path(), done.path.as_path()));
        let mut is_followed = have_earlier(paths);
        is_followed.reverse();
        for (done, is_followed) in record.done.iter().zip(is_followed) {
            if is_followed {
                merged.push(None);
                continue;
            }
            let tree = HostTree::open(&done.root)?;
            let now = tree.look(&done.path);
            let stamp = now.as_ref().ok().and_then(Option::as_ref).map(|(_, stamp)| *stamp);
            // Entries of a directory change its time.
            let is_directory = matches!(now, Ok(Some((Node::Directory { .. }, _))));
            merged.push(None);
            if now.is_ok() && (stamp == done.after || is_directory) {
                continue;
            }
            match self.merge_back(&tree, done) {
                Some(text) => *merged.last_mut().unwrap_or(&mut None) = Some(text),
                None => conflicts.push((done.path.clone(), "changed since, and it cannot be merged".to_owned())),
            }
        }
        if !conflicts.is_empty() {
            return Err(TransactionError::Conflicts(conflicts));
        }
        let mut restored = Vec::new();
        for (done, merged) in record.done.iter().zip(&merged).rev() {
            let tree = HostTree::open(&done.root)?;
            let now = tree.look(&done.path)?;
            let stamp = now.as_ref().map(|(_, stamp)| *stamp);
            let result = match (merged, &now) {
                (Some(text), Some((Node::File { mode, .. }, _))) => {
                    tree.write(&done.path, &mut text.as_slice(), *mode, None, stamp)
                }
                _ => self.restore(LAST, &tree, done, now),
            };
            match result {
                Ok(()) => restored.push(done.path.clone()),
                Err(source) => return Err(TransactionError::Step { path: done.path.clone(), source }),
            }
        }
        fs::remove_dir_all(self.directory.join(LAST))?;
        Ok(restored)
    }

    /// Takes a change out of a file that was edited since.
    fn merge_back(&self, tree: &HostTree, done: &Done) -> Option<Vec<u8>> {
        let read = |name: &Option<String>| {
            untrusted::read_bytes(&self.directory.join(LAST).join(name.as_deref()?), MAX_WRITTEN).ok()
        };
        let (written, before) = (read(&done.written)?, read(&done.kept)?);
        let mut now = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(tree.file(&done.path).ok()??, MAX_WRITTEN), &mut now).ok()?;
        match text::merge(&written, &now, &before) {
            Merge::Clean(text) => Some(text),
            Merge::Conflict(_) | Merge::Impossible => None,
        }
    }
}

/// Tells of each entry whether an earlier one of the list has the same path: a step that removes a file
/// where another one makes a directory.
fn have_earlier<'a>(paths: impl Iterator<Item = (&'a Path, &'a Path)>) -> Vec<bool> {
    let mut seen = HashSet::new();
    paths.map(|path| !seen.insert(path)).collect()
}

fn is_expected(now: &Option<(Node, Stamp)>, before: &Option<(Node, Stamp)>) -> bool {
    match (now, before) {
        (Some((now, _)), Some((before, _))) if now.is_directory() && before.is_directory() => true,
        (now, before) => now.as_ref().map(|(_, stamp)| stamp) == before.as_ref().map(|(_, stamp)| stamp),
    }
}
