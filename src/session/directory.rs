//! The session's directory on the host: made before the launch, removed after it, whatever happened in between.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::{Error, Result};
use crate::path::HostPath;
use crate::plan::{Plan, Prepare, Secret};
use crate::process::lock::{self, OWNER};
use crate::session_id::SessionId;

/// What is being made, and not locked yet.
pub const NEW: &str = ".new-";
/// What is being removed: out of the way first, so that a name is free the moment its directory begins to go.
pub const OLD: &str = ".old-";

/// The directory and the launcher's lock on it. Dropping it removes everything, unless it is kept.
#[derive(Debug)]
pub struct SessionDirectory {
    path: HostPath,
    is_kept: bool,
    _lock: File,
}

impl SessionDirectory {
    /// Makes everything the plan prepares.
    pub fn create(plan: &Plan) -> Result<Self> {
        let path = plan.session_dir.clone();
        let failed = |path: &HostPath, error: io::Error| {
            Error::launch(format!("`{path}` cannot be made for the session"))
                .cause(error)
                .hint("check free space and permissions, or set XDG_STATE_HOME to a directory of yours")
        };
        secure_base(&path).map_err(|error| failed(&path, error))?;
        let lock = appear(&path).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => name_taken(&plan.id),
            _ => failed(&path, error),
        })?;
        // From here on, whatever fails, the guard removes what was made.
        let directory = SessionDirectory { path, is_kept: false, _lock: lock };
        for item in &plan.prepare {
            match item {
                Prepare::Directory { path, mode } => {
                    make_directory(path.as_path(), *mode).map_err(|error| failed(path, error))?
                }
                Prepare::File { path, content } => {
                    make_file(path.as_path(), content.as_bytes(), 0o644).map_err(|error| failed(path, error))?
                }
                Prepare::Shared { path } => make_shared(path.as_path()).map_err(|error| failed(path, error))?,
                Prepare::Point { path, root, is_directory } => {
                    make_point(path.as_path(), root.as_path(), *is_directory)
                }
                Prepare::Keep { path } => make_directory(path.as_path(), 0o700).map_err(|error| failed(path, error))?,
            }
        }
        Ok(directory)
    }

    /// Writes a file that only this user may read.
    pub fn write_private(&self, path: &HostPath, content: &Secret) -> Result<()> {
        make_file(path.as_path(), content.reveal().as_bytes(), 0o600)
            .map_err(|error| Error::launch(format!("`{path}` cannot be written for the session")).cause(error))
    }
}

impl SessionDirectory {
    /// Leaves it for the user, without the private files among it.
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
            remove(&self.path);
        }
    }
}

/// The name is in use, by a sandbox that runs or one that is kept.
pub fn name_taken(id: &SessionId) -> Error {
    Error::launch(format!("there is a sandbox `{id}` already"))
        .hint(format!("choose another name, or end it: `sandpen stop {id}`; `sandpen ps` lists them"))
        .hint("one that has ended and is kept goes with `sandpen prune`")
}

/// Removes the directory of a session whose lock the caller holds, or that has none.
pub fn remove(directory: &HostPath) {
    let aside = directory.as_path().with_file_name(format!("{OLD}{}", SessionId::random()));
    match fs::rename(directory.as_path(), &aside) {
        Ok(()) => remove_all(&aside),
        Err(_) => remove_all(directory.as_path()),
    }
}

/// Removes the directory of a session that nobody owns any more, after some last business with it; `false` if somebody does own it
/// by now.
pub fn remove_stale(directory: &HostPath, last: impl FnOnce()) -> bool {
    let owner = directory.join(OWNER);
    let lock = match lock::take(owner.as_path()) {
        Ok(lock) => Some(lock),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => None,
        Err(_) => return false,
    };
    // Somebody may have removed it, and a new one have taken its name, before the lock was had.
    let same = |lock: &File| -> io::Result<bool> { Ok(lock.metadata()?.ino() == fs::metadata(owner.as_path())?.ino()) };
    if lock.as_ref().is_some_and(|lock| !same(lock).unwrap_or(false)) {
        return false;
    }
    last();
    remove(directory);
    true
}

fn remove_all(path: &Path) {
    if fs::remove_dir_all(path).is_err() {
        // The guest may have left directories without permissions; they are this user's all the same.
        open_up(path);
        let _ = fs::remove_dir_all(path);
    }
}

/// Makes the directory so that it is never seen without its lock held: whoever finds a free lock may remove it.
fn appear(path: &HostPath) -> io::Result<File> {
    let hidden = path.as_path().with_file_name(format!("{NEW}{}", SessionId::random()));
    DirBuilder::new().mode(0o700).create(&hidden)?;
    let locked = || -> io::Result<File> {
        make_file(&hidden.join(OWNER), b"", 0o644)?;
        let lock = lock::take(&hidden.join(OWNER))?;
        fs::rename(&hidden, path.as_path())?;
        Ok(lock)
    };
    locked().inspect_err(|_| {
        let _ = fs::remove_dir_all(&hidden);
    })
}

/// Makes the directory that holds all sessions, and refuses one that another user could have planted in the temp directory.
fn secure_base(session: &HostPath) -> io::Result<()> {
    let Some(base) = session.as_path().parent() else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let meta = fs::symlink_metadata(base)?;
    if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
        return Err(io::Error::other("its parent belongs to another user"));
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

fn make_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        make_directory(parent, 0o755)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)
}

fn make_shared(path: &Path) -> io::Result<()> {
    make_file(path, b"", 0o600)?;
    // Set afterwards, because the umask would take it away.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

/// Makes a mount point as this user. Where it is there already, or cannot be made, the engine has its own word to say.
fn make_point(path: &Path, root: &Path, is_directory: bool) {
    let existing = path.ancestors().find_map(|above| above.canonicalize().ok());
    if path.symlink_metadata().is_ok() || !existing.is_some_and(|existing| existing.starts_with(root)) {
        return;
    }
    let _ = if is_directory { fs::create_dir_all(path) } else { make_file(path, b"", 0o644) };
}

fn open_up(directory: &Path) {
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
