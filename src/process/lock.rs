//! The launcher's lock: held while it lives, released by the kernel the moment it is gone. Safe against reused process ids.
//!
//! An open-file-description lock on Linux: a guest that can only read the file cannot take it away (it could with `flock`), and
//! looking at it from the launcher itself does not drop it (as with a plain POSIX lock). On macOS `flock`, which is of the open
//! file, too.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;

use super::release_pages;

/// The file in the session's directory that the launcher locks while it lives.
pub const OWNER: &str = "owner";

/// Takes the lock; it lasts as long as the file is open.
pub fn take(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    lock(&file, Kind::Exclusive, Wait::No)?;
    Ok(file)
}

/// Whether a launcher holds the lock; `None` when there is none to hold.
pub fn is_held(path: &Path) -> Option<bool> {
    let file = File::open(path).ok()?;
    // A read lock that is granted is let go with the file, at the end of this function.
    match lock(&file, Kind::Shared, Wait::No) {
        Ok(()) => Some(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(true),
        // Docker makes directories of what it is told to mount and does not find, after a launcher that was killed.
        Err(_) => Some(file.metadata().is_ok_and(|meta| meta.is_file())),
    }
}

/// Waits until the launcher is gone.
pub fn wait_for_release(file: &File) -> io::Result<()> {
    loop {
        match lock(file, Kind::Shared, Wait::Yes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Exits the process, in a sandbox, when its launcher is gone. The launcher holds a write lock on a
/// file in `control_dir` that the guest can only read; a read lock is granted once the launcher has
/// exited, for whatever reason, and the guest cannot delay it. As the first process of its pid
/// namespace this one takes every other one with it.
pub fn exit_with_owner(control_dir: &Path) {
    let Ok(lock) = File::open(control_dir.join(OWNER)) else { return };
    thread::spawn(move || {
        // Not urgent: release pages here, off the start-up path.
        thread::sleep(release_pages::MIN_GUEST_TIME);
        release_pages::release_code_pages();
        if wait_for_release(&lock).is_ok() {
            std::process::exit(137);
        }
    });
}

enum Kind {
    Exclusive,
    Shared,
}

enum Wait {
    Yes,
    No,
}

#[cfg(target_os = "linux")]
fn lock(file: &File, kind: Kind, wait: Wait) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: `flock` is plain data for which zero is valid: from the start of the file to its end, by no process.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = match kind {
        Kind::Exclusive => libc::F_WRLCK as libc::c_short,
        Kind::Shared => libc::F_RDLCK as libc::c_short,
    };
    range.l_whence = libc::SEEK_SET as libc::c_short;
    let command = match wait {
        Wait::Yes => libc::F_OFD_SETLKW,
        Wait::No => libc::F_OFD_SETLK,
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and `range` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Elsewhere no container shares the file with its guest, and a Seatbelt guest cannot read it.
#[cfg(not(target_os = "linux"))]
fn lock(file: &File, kind: Kind, wait: Wait) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    let operation = match (kind, wait) {
        (Kind::Exclusive, Wait::Yes) => FlockOperation::LockExclusive,
        (Kind::Exclusive, Wait::No) => FlockOperation::NonBlockingLockExclusive,
        (Kind::Shared, Wait::Yes) => FlockOperation::LockShared,
        (Kind::Shared, Wait::No) => FlockOperation::NonBlockingLockShared,
    };
    Ok(flock(file, operation)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_seen_from_the_same_process_and_not_lost_by_looking() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        assert_eq!(is_held(file.path()), Some(false));
        let held = take(file.path())?;
        assert_eq!(is_held(file.path()), Some(true));
        assert_eq!(is_held(file.path()), Some(true));
        drop(held);
        assert_eq!(is_held(file.path()), Some(false));
        assert_eq!(is_held(Path::new("/nonexistent/lock")), None);
        Ok(())
    }
}
