//! Tells by the times of files whether HEAD, a ref, the stash or the index changed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Stat};

use super::super::delayed_copy::DelayedCopy;
use super::{DEEPEST_DIRECTORY, MOST_REFS};
use crate::process::untrusted_dir::UntrustedDir;

/// Returns a value that changes whenever HEAD, a ref, the stash or the index changes. It reads no
/// file, so that it can be called every second.
pub fn fingerprint(git_dir: &UntrustedDir, delayed_index: Option<&DelayedCopy>) -> u64 {
    let mut hasher = DefaultHasher::new();
    refs_fingerprint(git_dir).hash(&mut hasher);
    match (git_dir.stat("index"), delayed_index) {
        (Ok(stat), Some(copy)) if copy.is_unchanged(&stat) => {}
        (stat, _) => hash_stat(stat, &mut hasher),
    }
    // Dropping an older stash may change nothing but the reflog.
    hash_stat(git_dir.stat("logs/refs/stash"), &mut hasher);
    hasher.finish()
}

pub fn refs_fingerprint(git_dir: &UntrustedDir) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in ["HEAD", "packed-refs"] {
        hash_stat(git_dir.stat(name), &mut hasher);
    }
    let hashed = git_dir.directory(Path::new("refs")).and_then(|directory| {
        let mut left = MOST_REFS;
        hash_directory(&directory, 0, &mut left, &mut hasher)
    });
    hashed.is_ok().hash(&mut hasher);
    hasher.finish()
}

fn hash_directory(
    directory: &UntrustedDir,
    depth: usize,
    left: &mut usize,
    hasher: &mut DefaultHasher,
) -> io::Result<()> {
    let mut entries = directory.entries(*left)?;
    *left = left.saturating_sub(entries.len());
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, kind) in entries {
        name.hash(hasher);
        if kind != FileType::Directory {
            let stat = rustix::fs::statat(directory.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW);
            hash_stat(stat.map_err(io::Error::from), hasher);
        } else if depth < DEEPEST_DIRECTORY {
            let below = directory.directory(Path::new(&name));
            let hashed = below.and_then(|below| hash_directory(&below, depth + 1, left, hasher));
            hashed.is_ok().hash(hasher);
        }
    }
    // Separates the entries of this directory from those that follow it above.
    hasher.write_u8(0);
    Ok(())
}

fn hash_stat(stat: io::Result<Stat>, hasher: &mut DefaultHasher) {
    match stat {
        Ok(stat) => stat_hash(&stat).hash(hasher),
        Err(error) => error.raw_os_error().hash(hasher),
    }
}

/// Returns a value that changes when a file is written, replaced, or, for a directory, when a name
/// in it is added or removed.
pub fn stat_hash(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    hasher.finish()
}
