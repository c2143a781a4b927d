//! Reads the type, content and change time of a path without following links, and tells whether it has changed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::untrusted;

/// A larger file is not taken for a configuration file.
const MAX_FILE_SIZE: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    Missing,
    File(Vec<u8>),
    Link(PathBuf),
    Directory,
    /// A pipe, a device, a file that is too large or cannot be read.
    Other,
}

impl State {
    pub fn of(path: &Path) -> Self {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::Missing,
            Err(_) => State::Other,
            Ok(meta) if meta.is_dir() => State::Directory,
            Ok(meta) if meta.is_symlink() => fs::read_link(path).map_or(State::Other, State::Link),
            Ok(_) => untrusted::read_bytes(path, MAX_FILE_SIZE).map_or(State::Other, State::File),
        }
    }
}

/// The metadata that every change of a file changes. It is compared with an earlier stamp of the
/// same file, never with a time: a file written just before the launch can have the launch's time,
/// because a file system's clock advances by some milliseconds at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = path.symlink_metadata().ok()?;
        Some(Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// The stamps of files before the launch, sorted by path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stamps(Vec<(OsString, Stamp)>);

impl Stamps {
    /// Records the paths that exist.
    pub fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let stamp = |path: PathBuf| Stamp::of(&path).map(|stamp| (path.into_os_string(), stamp));
        let mut stamps: Vec<_> = paths.into_iter().filter_map(stamp).collect();
        stamps.sort_by(|(one, _), (other, _)| one.cmp(other));
        Stamps(stamps)
    }

    /// Tells whether a path exists and is not as it was.
    pub fn differ_at(&self, path: &Path) -> bool {
        let before = self.0.binary_search_by(|(known, _)| known.as_os_str().cmp(path.as_os_str()));
        let before = before.ok().and_then(|at| self.0.get(at)).map(|(_, stamp)| stamp);
        Stamp::of(path).is_some_and(|now| before != Some(&now))
    }
}

/// A change time (ctime). Unlike the modification time, programs cannot set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(i64, i64);

impl Moment {
    pub fn of_change(path: &Path) -> io::Result<Self> {
        path.symlink_metadata().map(|meta| Moment(meta.ctime(), meta.ctime_nsec()))
    }
}

/// The time during which a sandbox could change files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    pub since: Moment,
    /// Excludes later changes of the user; `None` if the launcher was killed.
    pub until: Option<Moment>,
}

impl Period {
    /// Tells whether a path last changed in the period.
    pub fn covers(self, path: &Path) -> bool {
        let change = Moment::of_change(path);
        change.is_ok_and(|change| change >= self.since && self.until.is_none_or(|until| change <= until))
    }
}
