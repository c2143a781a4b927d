//! Reads the type, content and change time of a path without following links.

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
