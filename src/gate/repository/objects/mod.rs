//! Copies the object files that a guest made to a bare repository on the host. Their content is not
//! examined; Git does that when it packs or indexes the copies.

mod loose;
mod packs;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use crate::process::bounded_work;
use crate::process::untrusted_dir::{UntrustedDir, is_host_failure};

/// Each copy counts as whole blocks, so that the budget also bounds the number of empty files.
const BLOCK_SIZE: u64 = 4096;
/// Between parts of this size it is looked whether copying must stop.
const PART: u64 = 64 << 20;
/// `git repack` may replace all packs while they are copied.
const PACK_LIST_ATTEMPTS: usize = 3;

/// The bytes that may still be copied in a session.
#[derive(Debug)]
pub struct Budget {
    pub bytes: u64,
}

/// Copies loose objects and packs. Only one process may do this for an import directory at a time.
#[derive(Debug)]
pub struct ObjectCopy {
    import_objects: PathBuf,
    id_len: usize,
    /// The `stat_hash` of each directory of loose objects whose files have all been copied.
    finished_directories: HashMap<u8, u64>,
    /// `None` until the list has been read.
    seen_packs: Option<HashSet<String>>,
    /// The `stat_hash` of packs that Git refused. They are tried again once they change.
    refused_packs: HashMap<String, u64>,
}

impl ObjectCopy {
    /// Copies to `import_objects`, the directory `objects` of a bare repository that the guest does
    /// not see. Object ids have `id_len` bytes, 20 or 32.
    pub fn new(import_objects: PathBuf, id_len: usize) -> Self {
        let finished_directories = HashMap::new();
        ObjectCopy { import_objects, id_len, finished_directories, seen_packs: None, refused_packs: HashMap::new() }
    }

    /// Copies the objects that are new since the last call. A pack is copied to a temporary file, for
    /// which `index_pack` runs Git and returns whether Git accepted it. Alternates are not followed.
    ///
    /// Loose objects are copied before packs: Git deletes a loose object after it has packed it, so
    /// that the opposite order could miss it in both places.
    pub fn update(
        &mut self,
        objects: &UntrustedDir,
        budget: &mut Budget,
        index_pack: &mut dyn FnMut(&Path) -> io::Result<bool>,
    ) -> io::Result<()> {
        for number in 0..=u8::MAX {
            bounded_work::check()?;
            self.copy_loose_directory(objects, number, budget)?;
        }
        for _ in 0..PACK_LIST_ATTEMPTS {
            if self.copy_packs(objects, budget, index_pack)? {
                break;
            }
        }
        Ok(())
    }
}

/// Tells whether most of a file has no place on the disk: Git writes no such packs, and a copy would
/// fill the disk.
pub fn is_sparse(stat: &Stat) -> bool {
    const MIN_SIZE: u64 = 1 << 20;
    const BLOCK: u64 = 512;
    let size = stat.st_size.unsigned_abs();
    size > MIN_SIZE && (stat.st_blocks.unsigned_abs()).saturating_mul(BLOCK) < size / 2
}

/// Copies a file of the guest to a new file of the host, and subtracts its size from the budget. The
/// guest may write to the file meanwhile, or make it longer.
fn copy(source: &File, target: &Path, budget: &mut Budget) -> io::Result<()> {
    let size = source.metadata()?.len();
    if size > budget.bytes {
        return Err(exceeded(budget));
    }
    let mut target = File::create(target)?;
    let (mut source, mut copied) = (source.take(budget.bytes.saturating_add(1)), 0);
    loop {
        bounded_work::check()?;
        let part = io::copy(&mut source.by_ref().take(PART), &mut target)?;
        copied += part;
        if part < PART {
            break;
        }
    }
    let cost = copied.max(1).checked_next_multiple_of(BLOCK_SIZE).filter(|cost| *cost <= budget.bytes);
    budget.bytes -= cost.ok_or_else(|| exceeded(budget))?;
    Ok(())
}

fn exceeded(budget: &Budget) -> io::Error {
    let message = format!("new Git objects exceed the size limit ({} bytes left)", budget.bytes);
    io::Error::new(ErrorKind::QuotaExceeded, message)
}

/// Examines an entry; `None` if it is missing or of another kind.
fn stat_of_kind(directory: &UntrustedDir, name: &str, kind: FileType) -> io::Result<Option<Stat>> {
    let stat = unless_guest_failure(directory.stat(name))?;
    Ok(stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == kind))
}

/// Returns `None` for an error that the guest can cause.
pub fn unless_guest_failure<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_host_failure(&error) => Err(error),
        result => Ok(result.ok()),
    }
}
