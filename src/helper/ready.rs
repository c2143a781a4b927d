//! The command as it is executed inside: found as `execvp` finds it, with PATH and start-up file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::plan::HelperConfig;
use crate::process::status_file::Report;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The command as it is executed, after the helper_config that change it.
pub struct Ready {
    /// The command: a shell if none was named, wrapped if a file is read first.
    pub command: Vec<OsString>,
    /// PATH, with the workspace's directories at its end.
    pub path: OsString,
    /// PYTHONPATH likewise; `None` when it is neither set nor added to.
    pub python_path: Option<OsString>,
}

impl Ready {
    /// Applies the helper_config. Looks for shells, so it must be called inside.
    pub fn new(
        helper_config: &HelperConfig,
        command: Vec<OsString>,
        path: Option<OsString>,
        python_path: Option<OsString>,
    ) -> Self {
        let path = append(path.unwrap_or_else(|| DEFAULT_PATH.into()), &helper_config.append_path);
        let python_path = append(python_path.unwrap_or_default(), &helper_config.append_python_path);
        let command = if command.is_empty() { vec![shell(&path)] } else { command };
        let command = match &helper_config.startup {
            Some(file) => with_startup(file, &path, command),
            None => command,
        };
        Ready { command, path, python_path: Some(python_path).filter(|value| !value.is_empty()) }
    }
}

/// Appends directories to a PATH-like value.
fn append(value: OsString, directories: &[String]) -> OsString {
    let mut value = value;
    for directory in directories {
        if !value.is_empty() {
            value.push(":");
        }
        value.push(directory);
    }
    value
}

fn shell(path: &OsStr) -> OsString {
    ["bash", "sh"].into_iter().find(|name| find(OsStr::new(name), path).is_ok()).unwrap_or("sh").into()
}

/// Reads the file in a shell, then becomes the command. The text is fixed; the file and the command are its arguments.
fn with_startup(file: &str, path: &OsStr, command: Vec<OsString>) -> Vec<OsString> {
    let script = r#". "$0"; exec "$@""#;
    [shell(path), "-c".into(), script.into(), file.into()].into_iter().chain(command).collect()
}

/// Looks a command up as `execvp` does.
pub(super) fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf, Report> {
    let candidates: Vec<PathBuf> = if name.as_encoded_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(path).map(|directory| directory.join(name)).collect()
    };
    let mut answer = Report::NotFound;
    for candidate in candidates {
        match candidate.metadata() {
            Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(_) => answer = Report::NotExecutable,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => answer = Report::NotExecutable,
            Err(_) => {}
        }
    }
    Err(answer)
}

pub(super) fn is_elf(program: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(program).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_execvp_finds_them() {
        assert!(find(OsStr::new("sh"), OsStr::new("/nowhere:/bin")).is_ok());
        assert_eq!(find(OsStr::new("no-such-command"), OsStr::new("/bin")), Err(Report::NotFound));
        assert_eq!(find(OsStr::new("/etc/passwd"), OsStr::new("")), Err(Report::NotExecutable));
    }

    #[test]
    fn directories_are_appended_never_put_in_front() {
        assert_eq!(append("/bin".into(), &["/p/bin".into()]), "/bin:/p/bin");
        assert_eq!(append(OsString::new(), &["/p".into(), "/q".into()]), "/p:/q");
    }
}
