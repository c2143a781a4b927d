//! What a path is, without following it, and when it last changed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::untrusted;

/// Larger than any configuration file; what is larger is not taken for one.
const LARGEST: u64 = 1 << 20;

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nothing.
    Missing,
    /// A regular file and what it holds.
    File(Vec<u8>),
    /// A symbolic link and what it names.
    Link(PathBuf),
    /// A directory.
    Directory,
    /// A pipe, a device, a file that is too large or cannot be read.
    Other,
}

impl State {
    /// Of a path.
    pub fn of(path: &Path) -> Self {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::Missing,
            Err(_) => State::Other,
            Ok(meta) if meta.is_dir() => State::Directory,
            Ok(meta) if meta.is_symlink() => fs::read_link(path).map_or(State::Other, State::Link),
            Ok(_) => untrusted::read_bytes(path, LARGEST).map_or(State::Other, State::File),
        }
    }
}

/// A point in time by the clock that stamps changes. The change time of a file cannot be set by anyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(i64, i64);

impl Moment {
    /// When a path last changed.
    pub fn of_change(path: &Path) -> io::Result<Self> {
        path.symlink_metadata().map(|meta| Moment(meta.ctime(), meta.ctime_nsec()))
    }
}

/// The time in which a sandbox could change things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Its beginning.
    pub since: Moment,
    /// Its end, where that is known: what the user did afterwards is no business of the guard's.
    pub until: Option<Moment>,
}

impl Period {
    /// Whether a path last changed in it.
    pub fn covers(self, path: &Path) -> bool {
        let change = Moment::of_change(path);
        change.is_ok_and(|change| change >= self.since && self.until.is_none_or(|until| change <= until))
    }
}
