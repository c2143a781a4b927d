//! A lease on a file: a process that opens the file waits until the lease is released.

use std::fs::File;
use std::io;

/// From `linux/fcntl.h`, for all architectures; the `libc` crate lacks it.
#[cfg(target_os = "linux")]
const F_SETSIG: i32 = 10;

/// The kernel sends this signal when somebody begins to wait. The default one ends the process; this one
/// has no effect unless it is caught.
pub const SIGNAL: i32 = libc::SIGURG;

/// Takes a lease on a file that nobody else has open. It ends with the file at the latest, and the
/// kernel ends it `/proc/sys/fs/lease-break-time` seconds after somebody has begun to wait.
#[cfg(target_os = "linux")]
pub fn take(file: &File) -> io::Result<()> {
    set(file, F_SETSIG, SIGNAL)?;
    set(file, libc::F_SETLEASE, libc::F_WRLCK)
}

#[cfg(target_os = "linux")]
pub fn release(file: &File) -> io::Result<()> {
    set(file, libc::F_SETLEASE, libc::F_UNLCK)
}

#[cfg(target_os = "linux")]
fn set(file: &File, command: i32, value: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: both commands take an integer, and the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Other systems have no leases.
#[cfg(not(target_os = "linux"))]
pub fn take(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub fn release(_: &File) -> io::Result<()> {
    Ok(())
}
