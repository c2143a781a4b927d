//! Keeps the environment of a native sandbox for `exec`: in the launcher's memory, because it may hold
//! secrets, and not in a process of the guest, which could change it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{MemfdFlags, memfd_create};

/// The name by which `exec` finds it among the launcher's descriptors.
const NAME: &str = "sandpen-environment";

/// Writes the variables. The launcher keeps the file open while the sandbox runs.
pub fn keep<'a>(variables: impl Iterator<Item = (&'a OsStr, &'a OsStr)>) -> io::Result<File> {
    let mut content = Vec::new();
    for (name, value) in variables {
        for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            content.extend_from_slice(part);
        }
    }
    let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    file.write_all(&content)?;
    Ok(file)
}

/// Reads the variables that a launcher keeps.
pub fn of_launcher(pid: u32) -> io::Result<Vec<(OsString, OsString)>> {
    let name = format!("/memfd:{NAME}");
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let path = entry.path();
        if fs::read_link(&path).is_ok_and(|link| link.as_os_str().as_bytes().starts_with(name.as_bytes())) {
            return Ok(parse(&fs::read(path)?));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn parse(content: &[u8]) -> Vec<(OsString, OsString)> {
    let variables = content.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&entry[..at]).to_owned(), OsStr::from_bytes(&entry[at + 1..]).to_owned()))
    });
    variables.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_keeps_the_variables() -> io::Result<()> {
        let variables = [("A", "b=c\nd"), ("EMPTY", "")];
        let kept = keep(variables.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))))?;
        let read = of_launcher(std::process::id())?;
        assert_eq!(read, variables.map(|(name, value)| (name.into(), value.into())));
        drop(kept);
        assert!(of_launcher(u32::MAX).is_err());
        Ok(())
    }
}
