//! Copies loose objects, each of which is a file.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

use super::{Budget, ObjectCopy, copy, stat_of_kind, unless_guest_failure};
use crate::gate::repository::refs::stat_hash;
use crate::process::untrusted_dir::UntrustedDir;

/// Git packs loose objects when a directory has more than about 27.
const MOST_LOOSE_PER_DIRECTORY: usize = 100_000;
/// Within this many seconds after a directory changed, another change may leave its times as they
/// are: file systems store them in steps of up to two seconds.
pub const TIMES_SETTLE_AFTER: i64 = 2;
/// Git's name for objects that are being written; `git gc` removes those that were left behind.
pub const TEMPORARY_OBJECT: &str = "tmp_obj_incoming";

impl ObjectCopy {
    /// Copies the loose objects whose ids start with the byte `number`.
    pub fn copy_loose_directory(&mut self, objects: &UntrustedDir, number: u8, budget: &mut Budget) -> io::Result<()> {
        let name = format!("{number:02x}");
        let Some(stat) = stat_of_kind(objects, &name, FileType::Directory)? else { return Ok(()) };
        if self.finished_directories.get(&number) == Some(&stat_hash(&stat)) {
            return Ok(());
        }
        let Some(directory) = unless_guest_failure(objects.directory(Path::new(&name)))? else { return Ok(()) };
        // The guest may have put another directory there. The times must be older than the list.
        let stat = rustix::fs::fstat(directory.as_fd())?;
        let entries = directory.entries(MOST_LOOSE_PER_DIRECTORY)?;
        let target = self.import_objects.join(&name);
        let mut is_finished = is_settled(&stat);
        for (file_name, kind) in entries {
            let Some(file_name) = file_name.to_str().filter(|name| self.is_loose_name(name)) else { continue };
            is_finished &= kind == FileType::RegularFile && self.copy_loose(&directory, file_name, &target, budget)?;
        }
        if is_finished {
            self.finished_directories.insert(number, stat_hash(&stat));
        }
        Ok(())
    }

    fn is_loose_name(&self, name: &str) -> bool {
        name.len() == (self.id_len * 2).saturating_sub(2)
            && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// Copies a loose object unless a copy of the same size exists. A copy of another size was made
    /// of an unfinished file. Returns whether the object need not be examined again.
    fn copy_loose(&self, directory: &UntrustedDir, name: &str, target: &Path, budget: &mut Budget) -> io::Result<bool> {
        let Some(stat) = stat_of_kind(directory, name, FileType::RegularFile)? else { return Ok(false) };
        if stat.st_size == 0 {
            // A crash can leave an empty file; Git reports it as corrupt.
            return Ok(false);
        }
        let target_file = target.join(name);
        match fs::symlink_metadata(&target_file) {
            Ok(copy) if u64::try_from(stat.st_size) == Ok(copy.len()) => return Ok(true),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let Some(Some(source)) = unless_guest_failure(directory.file(Path::new(name)))? else { return Ok(false) };
        fs::create_dir_all(target)?;
        let temporary = self.import_objects.join(TEMPORARY_OBJECT);
        copy(&source, &temporary, budget).and_then(|()| fs::rename(&temporary, &target_file)).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })?;
        Ok(true)
    }
}

/// Returns whether a later change of a directory will change its times. The time of the last status
/// change is used because the guest cannot set it.
fn is_settled(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).is_ok_and(|now| now.saturating_sub(stat.st_ctime) > TIMES_SETTLE_AFTER)
}
