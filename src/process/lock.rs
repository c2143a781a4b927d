//! The launcher's lock: held while the launcher lives and released by the kernel when it ends,
//! however it ends. Unlike a process id, it cannot be mistaken for another process's.
//!
//! On Linux it is an open-file-description lock: a guest that can only read the file cannot take
//! it, which it could with `flock`, and the launcher does not lose it by opening the file again,
//! which it would with a plain POSIX lock. On macOS it is `flock`, which belongs to the open file,
//! too.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;

use super::{KILLED, release_pages};

/// The file in the session's directory that the launcher locks while it lives.
pub const OWNER: &str = "owner";

/// Takes the lock, which lasts as long as the file is open.
pub fn take(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    lock(&file, Kind::Exclusive, Wait::No)?;
    Ok(file)
}

/// Waits until no other process has the lock, and takes it.
pub fn wait(file: &File) -> io::Result<()> {
    loop {
        match lock(file, Kind::Exclusive, Wait::Yes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Takes the lock together with others that share it.
pub fn share(file: &File) -> io::Result<()> {
    lock(file, Kind::Shared, Wait::No)
}

/// Returns whether no other process shares the lock. If so, no other process can share it until the
/// file is closed.
pub fn is_only_one(file: &File) -> bool {
    lock(file, Kind::Exclusive, Wait::No).is_ok()
}

/// Returns whether a launcher holds the lock; `None` if there is no such file. Takes no lock, which a
/// launcher could fail to take at the same moment.
pub fn is_held(path: &Path) -> Option<bool> {
    let file = File::open(path).ok()?;
    // After its launcher was killed, Docker makes a directory of a missing file that it is to mount.
    Some(is_locked(&file).unwrap_or_else(|_| file.metadata().is_ok_and(|meta| meta.is_file())))
}

/// Ends this process as soon as the launcher has ended. The launcher holds a write lock on a file
/// that the guest can only read; a read lock is granted when it is gone, and no guest can delay
/// that. The first process of a container takes all others with it.
pub fn exit_when_released(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    thread::spawn(move || {
        // This thread has nothing else to do, so it also releases memory.
        thread::sleep(release_pages::MIN_GUEST_TIME);
        release_pages::release_code_pages();
        if wait_for_release(&file).is_ok() {
            std::process::exit(KILLED.exit_code().into());
        }
    });
}

fn wait_for_release(file: &File) -> io::Result<()> {
    loop {
        match lock(file, Kind::Shared, Wait::Yes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
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
    let command = match wait {
        Wait::Yes => libc::F_OFD_SETLKW,
        Wait::No => libc::F_OFD_SETLK,
    };
    control(file, command, kind).map(drop)
}

/// Returns whether a read lock would have to wait.
#[cfg(target_os = "linux")]
fn is_locked(file: &File) -> io::Result<bool> {
    control(file, libc::F_OFD_GETLK, Kind::Shared).map(|range| range.l_type != libc::F_UNLCK as libc::c_short)
}

#[cfg(target_os = "linux")]
fn control(file: &File, command: libc::c_int, kind: Kind) -> io::Result<libc::flock> {
    use std::os::fd::AsRawFd;
    // SAFETY: `flock` is plain data for which zero is valid: from the start of the file to its end.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = match kind {
        Kind::Exclusive => libc::F_WRLCK as libc::c_short,
        Kind::Shared => libc::F_RDLCK as libc::c_short,
    };
    range.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and `range` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(range),
    }
}

/// `flock` cannot be asked: a lock that is granted is released with the file.
#[cfg(not(target_os = "linux"))]
fn is_locked(file: &File) -> io::Result<bool> {
    match lock(file, Kind::Shared, Wait::No) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Locks with `flock`, where no container shares the file with its guest and a Seatbelt guest
/// cannot read it.
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
    fn the_holder_sees_its_lock_and_keeps_it() -> io::Result<()> {
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
