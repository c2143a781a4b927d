//! Reads the kernel's restrictions of this process, and tries what they should prevent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use super::ProbeOutcome;

/// Returns a field of `/proc/self/status`.
pub fn field<'a>(status: &'a ProbeOutcome<String>, name: &str) -> ProbeOutcome<&'a str> {
    let status = status.as_ref().map_err(Clone::clone)?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim).ok_or_else(|| format!("/proc/self/status has no field `{name}`"))
}

/// Returns the sets of capabilities that are not empty.
pub fn capabilities(status: &ProbeOutcome<String>) -> ProbeOutcome<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let value = field(status, set)?;
        if value.bytes().any(|digit| digit != b'0') {
            found.insert(set.to_owned(), value.to_owned());
        }
    }
    Ok(found)
}

/// Calls TIOCSTI on a file that is no terminal: the kernel would return ENOTTY, a filter returns EPERM
/// before that. Returns the error number.
pub fn insert_terminal_input() -> ProbeOutcome<i32> {
    let file = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
    let letter = b'x';
    // SAFETY: the request reads one byte, which outlives the call; the descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TIOCSTI as _, &raw const letter) };
    Ok(if result == 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(-1) })
}

/// Creates a user namespace in a child process, because `unshare` needs a single thread.
pub fn create_namespace() -> ProbeOutcome<i32> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new(program).args(["probe", "namespace"]).stdin(Stdio::null()).status();
    let status = status.map_err(|error| error.to_string())?;
    status.code().ok_or_else(|| format!("the child process ended with {status}"))
}

/// Runs in the child process; returns the error number, or 0 if the call succeeded.
#[cfg(target_os = "linux")]
pub fn unshare() -> u8 {
    // SAFETY: the call takes no memory and concerns this process alone, which ends at once.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX),
    }
}

#[cfg(not(target_os = "linux"))]
pub fn unshare() -> u8 {
    libc::ENOSYS as u8
}
