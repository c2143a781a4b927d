//! The launcher's lock: held while the launcher lives and released by the kernel when it ends,
//! however it ends. Unlike a process id, it cannot be mistaken for another process's.
//!
//! On Linux it is an open-file-description lock: a guest that can only read the file cannot take
//! it, which it could with `flock`, and the launcher does not lose it by opening the file again,
//! which it would with a plain POSIX lock. It covers the file's first byte; a client of `exec` locks
//! another one of the same file. On macOS it is `flock`, which belongs to the open file, too.

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

/// Takes a byte of the launcher's file, other than the first, for a client whose processes inside
/// end with it. Fails if a process inside has locked the byte for itself.
#[cfg(target_os = "linux")]
pub fn take_byte(path: &Path, byte: u32) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    lock_byte(&file, Kind::Exclusive, Wait::No, byte)?;
    Ok(file)
}

/// Waits in a thread until no client holds the byte, and calls `then`.
#[cfg(target_os = "linux")]
pub fn when_byte_is_released(path: &Path, byte: u32, then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let file = File::open(path)?;
    thread::spawn(move || {
        if retry(|| lock_byte(&file, Kind::Shared, Wait::Yes, byte)).is_ok() {
            then();
        }
    });
    Ok(())
}

/// Takes a byte of a file together with others that share it.
#[cfg(target_os = "linux")]
pub fn share_byte(file: &File, byte: u32) -> io::Result<()> {
    lock_byte(file, Kind::Shared, Wait::No, byte)
}

/// Returns whether nobody else shares the byte. If so, nobody else can until the file is closed.
#[cfg(target_os = "linux")]
pub fn is_only_one_at(file: &File, byte: u32) -> bool {
    lock_byte(file, Kind::Exclusive, Wait::No, byte).is_ok()
}

fn retry(mut lock: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Waits until no other process has the lock, and takes it.
pub fn wait(file: &File) -> io::Result<()> {
    retry(|| lock(file, Kind::Exclusive, Wait::Yes))
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
        if retry(|| lock(&file, Kind::Shared, Wait::Yes)).is_ok() {
            std::process::exit(KILLED.exit_code().into());
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
    lock_byte(file, kind, wait, 0)
}

#[cfg(target_os = "linux")]
fn lock_byte(file: &File, kind: Kind, wait: Wait, byte: u32) -> io::Result<()> {
    let command = match wait {
        Wait::Yes => libc::F_OFD_SETLKW,
        Wait::No => libc::F_OFD_SETLK,
    };
    control(file, command, kind, byte).map(drop)
}

/// Returns whether a read lock would have to wait.
#[cfg(target_os = "linux")]
fn is_locked(file: &File) -> io::Result<bool> {
    control(file, libc::F_OFD_GETLK, Kind::Shared, 0).map(|range| range.l_type != libc::F_UNLCK as libc::c_short)
}

#[cfg(target_os = "linux")]
fn control(file: &File, command: libc::c_int, kind: Kind, byte: u32) -> io::Result<libc::flock> {
    use std::os::fd::AsRawFd;
    // SAFETY: `flock` is plain data for which zero is valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = match kind {
        Kind::Exclusive => libc::F_WRLCK as libc::c_short,
        Kind::Shared => libc::F_RDLCK as libc::c_short,
    };
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = byte.into();
    range.l_len = 1;
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

    #[test]
    #[cfg(target_os = "linux")]
    fn clients_do_not_disturb_each_other_or_the_launcher() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let launcher = take(file.path())?;
        let clients = [take_byte(file.path(), 7)?, take_byte(file.path(), 8)?];
        assert_eq!(take_byte(file.path(), 7).map_err(|error| error.kind()).err(), Some(io::ErrorKind::WouldBlock));
        let (sender, ended) = std::sync::mpsc::channel();
        for byte in [7, 8] {
            let sender = sender.clone();
            when_byte_is_released(file.path(), byte, move || sender.send(byte).unwrap_or_default())?;
        }
        let [first, second] = clients;
        drop(second);
        assert_eq!(ended.recv(), Ok(8));
        assert!(ended.try_recv().is_err());
        drop(first);
        assert_eq!(ended.recv(), Ok(7));
        let _client = take_byte(file.path(), 9)?;
        drop(launcher);
        assert_eq!(is_held(file.path()), Some(false));
        Ok(())
    }
}
