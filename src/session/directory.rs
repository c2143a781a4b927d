//! The session's directory on the host: created before the launch, removed after it, however that
//! ends.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SessionError;
use super::reuse::Content;
use super::spare;
use crate::error::Result;
use crate::gate::repository::RepositoryExchange;
use crate::path::HostPath;
use crate::plan::{Plan, Prepare, Secret};
use crate::process::lock::{self, OWNER};
use crate::process::remove_tree::remove_tree;
use crate::process::untrusted;
use crate::session_id::random_name;

/// Limits of a directory of hooks that is copied.
const MOST_COPIED: usize = 256;
const LARGEST_COPIED: u64 = 1 << 20;
/// The file in a directory in memory that names its session.
const SESSION: &str = "session";
/// What is left of a detached sandbox that has ended.
const KEPT_AT_END: &[&str] = &["session.json", "screen", OWNER];
/// The age at which a directory is no longer taken for one that is being created.
const CREATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Begins the name of a directory that is being created and may not be locked yet.
pub const NEW: &str = ".new-";
/// Begins the name of a directory that is being removed. It is renamed first, so that the sandbox's
/// name is free at once.
pub const OLD: &str = ".old-";

/// The directory and the launcher's lock on it. Dropping it removes the directory, unless it is
/// kept.
#[derive(Debug)]
pub struct SessionDirectory {
    path: HostPath,
    /// A directory outside of it, which is removed with it.
    memory: Option<PathBuf>,
    is_kept: bool,
    /// What is prepared in it, if it may be used again.
    content: Option<Content>,
    _lock: File,
}

impl SessionDirectory {
    /// Creates the directory and all that the plan prepares.
    pub fn create(plan: &Plan) -> Result<Self> {
        let path = plan.session_dir.clone();
        secure_base(&path).map_err(|source| SessionError::Create { path: path.clone(), source })?;
        let content = Content::of(plan);
        let reused = content.as_ref().map_or(Ok(None), |content| content.take(path.as_path()));
        let is_reused = matches!(reused, Ok(Some(_)));
        let lock = reused.and_then(|reused| reused.map_or_else(|| create_locked(&path), Ok));
        let lock = lock.map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => SessionError::NameTaken(plan.id.clone()),
            _ => SessionError::Create { path: path.clone(), source },
        })?;
        // If a later step fails, dropping this removes the directory.
        let memory = plan.repository_gate.memory_dir.clone();
        let directory = SessionDirectory { path, memory, is_kept: false, content, _lock: lock };
        let exists = |item: &Prepare| {
            let content = directory.content.as_ref().filter(|_| is_reused);
            content.is_some_and(|content| content.contains(item, directory.path.as_path()))
        };
        for item in plan.prepare.iter().filter(|item| !exists(item)) {
            prepare(item)?;
        }
        Ok(directory)
    }

    /// Writes a file that only this user may read.
    pub fn write_private(&self, path: &HostPath, content: &Secret) -> Result<()> {
        make_file(path.as_path(), content.reveal().as_bytes(), 0o600)
            .map_err(|source| SessionError::Write { path: path.clone(), source }.into())
    }

    /// Leaves the directory for the next sandpen command, which continues the exchange with the
    /// host's repositories.
    pub fn leave(mut self) {
        self.is_kept = true;
    }

    /// Leaves the record and the last screen of a detached sandbox.
    pub fn end(mut self) {
        self.is_kept = true;
        remove_memory(&self.path, self.memory.as_deref());
        spare::put_back(self.path.as_path());
        let entries = fs::read_dir(self.path.as_path()).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| !KEPT_AT_END.iter().any(|kept| entry.file_name() == *kept)) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_all(&entry.path());
            } else {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Leaves the directory for the user, without its private files.
    pub fn keep<'a>(mut self, private: impl Iterator<Item = &'a HostPath>) {
        for file in private {
            let _ = fs::remove_file(file.as_path());
        }
        self.is_kept = true;
    }
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        if !self.is_kept {
            remove_memory(&self.path, self.memory.as_deref());
            if !self.content.as_ref().is_some_and(|content| content.put_back(self.path.as_path())) {
                remove_on_disk(&self.path);
            }
        }
    }
}

fn prepare(item: &Prepare) -> Result<()> {
    let (path, created) = match item {
        Prepare::Directory { path, mode } => (path, make_directory(path.as_path(), *mode)),
        Prepare::Private { path, session } => (path, make_private(path.as_path(), session)),
        Prepare::Objects { path } => (path, spare::take(path.as_path())),
        Prepare::File { path, content } => (path, make_file(path.as_path(), content.as_bytes(), 0o644)),
        Prepare::Copy { path, from } => (path, copy_files(from.as_path(), path.as_path())),
        Prepare::Shared { path } => (path, make_shared(path.as_path())),
        Prepare::Keep { path } => (path, make_directory(path.as_path(), 0o700)),
        Prepare::KeepFile { path, content } => (path, make_missing_file(path.as_path(), content.as_bytes())),
        Prepare::Own { path, directories } => (path, make_own(path.as_path(), directories)),
        Prepare::Point { path, root, is_directory } => {
            make_mount_point(path.as_path(), root.as_path(), *is_directory);
            return Ok(());
        }
    };
    created.map_err(|source| SessionError::Create { path: path.clone(), source }.into())
}

/// Copies the regular files of a directory, without its subdirectories and links, with their
/// permission to be executed. A guest may have written them.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    make_directory(to, 0o755)?;
    for entry in fs::read_dir(from).into_iter().flatten().flatten().take(MOST_COPIED) {
        let Ok(content) = untrusted::read_bytes(&entry.path(), LARGEST_COPIED) else { continue };
        let is_program = entry.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o100 != 0);
        make_file(&to.join(entry.file_name()), &content, if is_program { 0o755 } else { 0o644 })?;
    }
    Ok(())
}

/// Removes the directory of a session whose lock the caller holds, or that has none, and its
/// directory in memory.
pub fn remove(directory: &HostPath) {
    remove_memory(directory, RepositoryExchange::memory_dir(directory).as_deref());
    remove_on_disk(directory);
}

/// Removes a session's directory in memory. The session forgets its exchange first: if this process is
/// killed meanwhile, the next command must not take what is left for the guest's work.
fn remove_memory(session: &HostPath, memory: Option<&Path>) {
    RepositoryExchange::forget(session);
    if let Some(memory) = memory {
        remove_all(memory);
    }
}

fn remove_on_disk(directory: &HostPath) {
    spare::put_back(directory.as_path());
    let aside = directory.as_path().with_file_name(format!("{OLD}{}", random_name()));
    match fs::rename(directory.as_path(), &aside) {
        Ok(()) => remove_all(&aside),
        Err(_) => remove_all(directory.as_path()),
    }
}

/// Removes the directory of a session whose launcher has ended, if `before` permits it; returns
/// `false` if it does not, or if a launcher owns the directory by now.
pub fn remove_stale(directory: &HostPath, before: impl FnOnce() -> bool) -> bool {
    let owner = directory.join(OWNER);
    let lock = match lock::take(owner.as_path()) {
        Ok(lock) => Some(lock),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => None,
        Err(_) => return false,
    };
    // Another process may have removed it, and a new sandbox taken its name, before this one had
    // the lock.
    let is_same =
        |lock: &File| -> io::Result<bool> { Ok(lock.metadata()?.ino() == fs::metadata(owner.as_path())?.ino()) };
    if lock.as_ref().is_some_and(|lock| !is_same(lock).unwrap_or(false)) {
        return false;
    }
    let is_removed = before();
    if is_removed {
        remove(directory);
    }
    is_removed
}

/// Removes directories in memory whose sessions do not exist: their launchers were killed before the
/// sessions named them.
pub fn remove_memory_of_killed() {
    let start = format!("sandpen-{}-", rustix::process::getuid().as_raw());
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(start.as_bytes()) {
            continue;
        }
        // The user may have several directories of sessions.
        let session = fs::read(entry.path().join(SESSION)).unwrap_or_default();
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
        let is_unused = Path::new(OsStr::from_bytes(&session)).symlink_metadata().is_err();
        if is_unused && age.is_some_and(|age| age > CREATION_TIMEOUT) {
            remove_all(&entry.path());
        }
    }
}

/// Removes a directory as far as possible. What is left is removed by the next command.
pub(super) fn remove_all(path: &Path) {
    let _ = remove_tree(path);
}

/// Creates the directory under another name and renames it when it is locked: every sandpen may
/// remove a session whose lock is free.
fn create_locked(path: &HostPath) -> io::Result<File> {
    let hidden = path.as_path().with_file_name(format!("{NEW}{}", random_name()));
    DirBuilder::new().mode(0o700).create(&hidden)?;
    let locked = || -> io::Result<File> {
        make_file(&hidden.join(OWNER), b"", 0o644)?;
        let lock = File::options().read(true).write(true).open(hidden.join(OWNER))?;
        // Nobody keeps it: others only look whether it is held.
        lock::wait(&lock)?;
        fs::rename(&hidden, path.as_path())?;
        Ok(lock)
    };
    locked().inspect_err(|_| {
        let _ = fs::remove_dir_all(&hidden);
    })
}

/// Creates the directory of all sessions, and refuses one that another user planted in the
/// temporary directory.
fn secure_base(session: &HostPath) -> io::Result<()> {
    let Some(base) = session.as_path().parent() else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let uid = rustix::process::getuid().as_raw();
    // The owner of the directory above could replace it by another one.
    for (place, is_base) in std::iter::once((base, true)).chain(base.parent().map(|above| (above, false))) {
        let meta = fs::symlink_metadata(place)?;
        if meta.uid() != uid || is_base && !meta.is_dir() {
            return Err(io::Error::other(format!("`{}` belongs to another user", place.display())));
        }
    }
    Ok(())
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Creates a directory beside those of other users. A leftover of this user is removed first.
fn make_private(path: &Path, session: &HostPath) -> io::Result<()> {
    if let Ok(meta) = path.symlink_metadata() {
        if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        remove_all(path);
    }
    DirBuilder::new().mode(0o700).create(path)?;
    make_file(&path.join(SESSION), session.as_os_str().as_bytes(), 0o600)
}

fn make_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        make_directory(parent, 0o755)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)
}

/// Creates a file of the user unless it exists.
fn make_missing_file(path: &Path, content: &[u8]) -> io::Result<()> {
    match make_file(path, content, 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Creates a directory that guests write, and the mount points in it.
fn make_own(path: &Path, directories: &[String]) -> io::Result<()> {
    make_directory(path, 0o700)?;
    for name in directories {
        let point = path.join(name);
        match point.symlink_metadata() {
            Ok(meta) if meta.is_dir() => continue,
            Ok(_) => fs::remove_file(&point)?,
            Err(_) => {}
        }
        fs::create_dir(&point)?;
    }
    Ok(())
}

fn make_shared(path: &Path) -> io::Result<()> {
    make_file(path, b"", 0o600)?;
    // Set afterwards, because the umask would apply to a new file.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

/// Creates a mount point that belongs to this user. If that fails, the engine creates it or reports
/// why it cannot.
fn make_mount_point(path: &Path, root: &Path, is_directory: bool) {
    let existing = path.ancestors().find_map(|above| above.canonicalize().ok());
    if path.symlink_metadata().is_ok() || !existing.is_some_and(|existing| existing.starts_with(root)) {
        return;
    }
    let _ = if is_directory { fs::create_dir_all(path) } else { make_file(path, b"", 0o644) };
}
