//! Keeps what is the same in every root of a sandbox from one launch to the next, in a directory in
//! memory: directories, links, generated files, copies of small settings, and the places of mounts.
//! A sandbox mounts it read-only as its root. It is never changed: other content has another name.

mod build;
mod parts;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use rustix::fs::{AtFlags, FileType};

use super::blueprint::Operation;
use build::Store;
pub(crate) use parts::Part;
use parts::{Entry, divide};

/// The directory of all skeletons of a user, in a file system in memory, which is empty after a restart.
const STORE: &str = "/dev/shm/sandpen-roots-";
/// Sandboxes share a byte of it for each skeleton that they use.
const LOCK: &str = "lock";
/// More are kept only while sandboxes use them.
const MAX_KEPT: usize = 16;

/// A directory that a sandbox can mount as its root. Nobody removes it while it is held.
#[derive(Debug)]
pub(crate) struct Skeleton {
    /// In a directory that only this user may change. It must be opened in the namespace that mounts
    /// it.
    path: CString,
    _lock: File,
}

impl Skeleton {
    pub fn path(&self) -> &CStr {
        &self.path
    }
}

/// Finds or makes the skeleton of a root, and tells for each operation what is left to do. Without one,
/// for example because the directory in memory belongs to another user, all is left.
pub(crate) fn take(operations: &[Operation<'_>], has_terminal: bool) -> (Option<Skeleton>, Vec<Part>) {
    let (entries, parts) = divide(operations, has_terminal);
    match find_or_make(&entries) {
        Ok(skeleton) => (Some(skeleton), parts),
        Err(_) => (None, vec![Part::Whole; operations.len()]),
    }
}

/// Removes the skeletons that no sandbox uses. Returns their number.
pub fn remove_unused() -> usize {
    Store::open(Path::new(&store_path())).map_or(0, |store| store.remove_unused(0))
}

fn store_path() -> String {
    format!("{STORE}{}", rustix::process::geteuid().as_raw())
}

fn find_or_make(entries: &[Entry<'_>]) -> std::io::Result<Skeleton> {
    let path = store_path();
    let store = Store::open_or_create(Path::new(&path))?;
    let key = key(entries);
    let lock = store.share(key)?;
    let name = format!("{key:032x}");
    if !store.contains(&name) {
        store.remove_unused(MAX_KEPT);
        store.make(&name, entries)?;
    }
    Ok(Skeleton { path: CString::new(format!("{path}/{name}"))?, _lock: lock })
}

/// Identifies the content. Two hashes of 64 bits, because other content must not have the same name.
fn key(entries: &[Entry<'_>]) -> u128 {
    let half = |number: u8| {
        let mut hasher = DefaultHasher::new();
        number.hash(&mut hasher);
        entries.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// What changes whenever a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub fn size(&self) -> u64 {
        self.size.unsigned_abs()
    }
}

/// Examines a file that may be copied: a regular one that everybody may read, and not a large one.
fn stamp_of_copied(path: &CStr) -> Option<FileStamp> {
    const MAX_SIZE: i64 = 128 << 10;
    let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_copied = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o004 != 0
        && stat.st_size <= MAX_SIZE;
    is_copied.then_some(FileStamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size,
        modified: (stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
        changed: (stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
    })
}
