//! Locks in sandpen's state directory that keep two exchanges with one repository apart, and tell
//! whether other sandboxes use it. The host's Git knows nothing of them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::process::lock;

/// Waits for the lock on a repository of the host. It is released with the file.
pub fn lock_repository(locks: &Path, git_dir: &Path) -> io::Result<File> {
    fs::create_dir_all(locks)?;
    let path = locks.join(crate::plan::flat_name(git_dir));
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    lock::wait(&file)?;
    Ok(file)
}

/// Shares a lock with all sandboxes over a repository.
pub fn share_repository(locks: &Path, git_dir: &Path) -> io::Result<File> {
    fs::create_dir_all(locks)?;
    let path = locks.join(format!("{}.shared", crate::plan::flat_name(git_dir)));
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    lock::share(&file)?;
    Ok(file)
}
