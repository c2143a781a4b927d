//! Keeps empty directories for Git's objects between sessions, because some file systems take
//! milliseconds to create and remove a directory.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::process::untrusted_dir::UntrustedDir;
use crate::session_id::random_name;

/// Begins the names of directories for objects in a session's directory.
const OBJECTS: &str = "objects-";
/// The subdirectories that Git expects.
pub const SUBDIRECTORIES: &[&str] = &[INFO, PACK];
const INFO: &str = "info";
const PACK: &str = "pack";
const ALTERNATES: &str = "alternates";
/// More names than an empty directory of objects has.
const MAX_NAMES: usize = 3;
/// More are not kept.
const MAX_SPARE: usize = 4;

/// Returns the directory of spare ones, beside the sessions' directory.
fn spares(session: &Path) -> PathBuf {
    session.parent().unwrap_or(session).with_file_name("spare")
}

/// Makes a directory for objects of a spare one, or creates it.
pub fn take(path: &Path) -> io::Result<()> {
    let spares = path.parent().map(spares).unwrap_or_default();
    for spare in fs::read_dir(&spares).into_iter().flatten().flatten() {
        // Another launcher may take the same one.
        if fs::rename(spare.path(), path).is_ok() {
            return Ok(());
        }
    }
    for name in SUBDIRECTORIES {
        DirBuilder::new().recursive(true).mode(0o755).create(path.join(name))?;
    }
    Ok(())
}

/// Keeps the directories for objects that a session left empty.
pub fn put_back(session: &Path) {
    let spares = spares(session);
    let count = fs::read_dir(&spares).map_or(0, Iterator::count);
    let directories = fs::read_dir(session).into_iter().flatten().flatten();
    let objects = directories.filter(|entry| entry.file_name().to_string_lossy().starts_with(OBJECTS));
    for entry in objects.take(MAX_SPARE.saturating_sub(count)) {
        let is_empty = UntrustedDir::open(&entry.path()).is_ok_and(|objects| is_empty(&objects));
        if is_empty && fs::create_dir_all(&spares).is_ok() {
            let _ = fs::rename(entry.path(), spares.join(random_name()));
        }
    }
}

/// Tells whether there is nothing but the list of alternates, which the next session reads and
/// corrects.
pub fn is_empty(objects: &UntrustedDir) -> bool {
    let names = |path: &str| -> Option<Vec<OsString>> {
        let entries = objects.directory(Path::new(path)).ok()?.entries(MAX_NAMES).ok()?;
        Some(entries.into_iter().map(|(name, _)| name).collect())
    };
    let is_alternates = |names: &[OsString]| match names {
        [] => true,
        [name] if name == ALTERNATES => {
            let file = objects.file(&Path::new(INFO).join(ALTERNATES)).ok().flatten();
            file.and_then(|file| file.metadata().ok()).is_some_and(|meta| meta.nlink() == 1)
        }
        _ => false,
    };
    names("").is_some_and(|names| names.len() == SUBDIRECTORIES.len())
        && names(INFO).is_some_and(|names| is_alternates(&names))
        && names(PACK).is_some_and(|names| names.is_empty())
}
