//! The launcher's lock: held while it lives, released by the kernel the moment it is gone. Safe against reused process ids.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::path::HostPath;

/// Takes the lock. A POSIX lock belongs to the process, so no child inherits it.
pub fn take(path: &HostPath) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path.as_path())?;
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Waits until the launcher is gone.
pub fn wait_for_release(file: &File) -> io::Result<()> {
    loop {
        match fcntl_lock(file, FlockOperation::LockShared) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
