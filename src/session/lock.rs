//! The launcher's lock: held while it lives, released by the kernel the moment it is gone. Safe against reused process ids.
//!
//! An open-file-description lock on Linux: a guest that can only read the file cannot take it away (it could with `flock`), and
//! looking at it from the launcher itself does not drop it (as with a plain POSIX lock).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

#[cfg(target_os = "linux")]
const TRY: libc::c_int = libc::F_OFD_SETLK;
#[cfg(target_os = "linux")]
const WAIT: libc::c_int = libc::F_OFD_SETLKW;
#[cfg(not(target_os = "linux"))]
const TRY: libc::c_int = libc::F_SETLK;
#[cfg(not(target_os = "linux"))]
const WAIT: libc::c_int = libc::F_SETLKW;

/// Takes the lock; it lasts as long as the file is open.
pub fn take(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    lock(&file, TRY, libc::F_WRLCK as libc::c_short)?;
    Ok(file)
}

/// Whether a launcher holds the lock; `None` when there is none to hold.
pub fn is_held(path: &Path) -> Option<bool> {
    let file = File::open(path).ok()?;
    // A read lock that is granted is let go with the file, at the end of this function.
    Some(lock(&file, TRY, libc::F_RDLCK as libc::c_short).is_err())
}

/// Waits until the launcher is gone.
pub fn wait_for_release(file: &File) -> io::Result<()> {
    loop {
        match lock(file, WAIT, libc::F_RDLCK as libc::c_short) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn lock(file: &File, command: libc::c_int, kind: libc::c_short) -> io::Result<()> {
    // SAFETY: `flock` is plain data for which zero is valid: from the start of the file to its end, by no process.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and `range` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
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
