//! Tries what the kernel should refuse.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use crate::command::selftest::probe::Seen;

/// One line of `/proc/self/status`.
pub fn field<'a>(status: &'a Seen<String>, name: &str) -> Seen<&'a str> {
    let status = status.as_ref().map_err(Clone::clone)?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim).ok_or_else(|| format!("the kernel does not tell `{name}`"))
}

/// The sets of capabilities that are not empty.
pub fn capabilities(status: &Seen<String>) -> Seen<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let value = field(status, set)?;
        if value.bytes().any(|digit| digit != b'0') {
            found.insert(set.to_owned(), value.to_owned());
        }
    }
    Ok(found)
}

/// Types a letter into what is no terminal: whoever lets the call through says just that, a filter refuses it before.
pub fn type_into_terminal() -> Seen<i32> {
    let file = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
    let letter = b'x';
    // SAFETY: the request reads one byte, which outlives the call; the descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TIOCSTI as _, &raw const letter) };
    Ok(if result == 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(-1) })
}

/// Makes a user namespace in a process of its own, which must have one thread.
pub fn make_namespace() -> Seen<i32> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new(program).args(["probe", "namespace"]).stdin(Stdio::null()).status();
    let status = status.map_err(|error| error.to_string())?;
    status.code().ok_or_else(|| format!("it ended with {status}"))
}

/// What that process does: the number of the error, 0 when it was allowed.
#[cfg(target_os = "linux")]
pub fn unshare() -> u8 {
    // SAFETY: the call takes no memory and concerns this process alone, which ends at once.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX),
    }
}

/// There are none on other systems.
#[cfg(not(target_os = "linux"))]
pub fn unshare() -> u8 {
    libc::ENOSYS as u8
}
