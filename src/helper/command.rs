//! Prepares the command inside the sandbox: its PATH, its start-up file, and its program, found as
//! `execvp` finds it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::plan::HelperConfig;
use crate::process::status_file::CommandStatus;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command with the changes that a [`HelperConfig`] asks for.
pub struct PreparedCommand {
    /// A shell if no command was given; wrapped in a shell if a start-up file is read first.
    pub argv: Vec<OsString>,
    /// PATH, with the workspace's directories at its end.
    pub path: OsString,
    /// PYTHONPATH likewise; `None` when it is neither set nor added to.
    pub python_path: Option<OsString>,
}

impl PreparedCommand {
    /// Applies the configuration. Looks for shells, so it must be called inside the sandbox.
    pub fn new(
        config: &HelperConfig,
        argv: Vec<OsString>,
        path: Option<OsString>,
        python_path: Option<OsString>,
    ) -> Self {
        let (path, python_path) = complete_paths(config, path, python_path);
        let argv = if argv.is_empty() { vec![shell(&path)] } else { argv };
        let argv = match &config.startup {
            Some(file) => with_startup_file(file, &path, argv),
            None => argv,
        };
        PreparedCommand { argv, path, python_path }
    }
}

/// Adds the workspace's directories to PATH and PYTHONPATH.
pub fn complete_paths(
    config: &HelperConfig,
    path: Option<OsString>,
    python_path: Option<OsString>,
) -> (OsString, Option<OsString>) {
    let path = append(path.unwrap_or_else(|| DEFAULT_PATH.into()), &config.append_path);
    let python_path = append(python_path.unwrap_or_default(), &config.append_python_path);
    (path, Some(python_path).filter(|value| !value.is_empty()))
}

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

/// Reads the file in a shell that then executes the command. The script is fixed; the file and the
/// command are its arguments.
fn with_startup_file(file: &str, path: &OsStr, argv: Vec<OsString>) -> Vec<OsString> {
    let script = r#". "$0"; exec "$@""#;
    [shell(path), "-c".into(), script.into(), file.into()].into_iter().chain(argv).collect()
}

/// Looks a program up as `execvp` does.
pub(super) fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf, CommandStatus> {
    let candidates: Vec<PathBuf> = if name.as_encoded_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(path).map(|directory| directory.join(name)).collect()
    };
    let mut failure = CommandStatus::NotFound;
    for candidate in candidates {
        match candidate.metadata() {
            Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(_) => failure = CommandStatus::NotExecutable,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => failure = CommandStatus::NotExecutable,
            Err(_) => {}
        }
    }
    Err(failure)
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
    fn programs_are_found_as_execvp_finds_them() {
        assert!(find(OsStr::new("sh"), OsStr::new("/nowhere:/bin")).is_ok());
        assert_eq!(find(OsStr::new("no-such-command"), OsStr::new("/bin")), Err(CommandStatus::NotFound));
        assert_eq!(find(OsStr::new("/etc/passwd"), OsStr::new("")), Err(CommandStatus::NotExecutable));
    }

    #[test]
    fn directories_are_appended_and_never_prepended() {
        assert_eq!(append("/bin".into(), &["/p/bin".into()]), "/bin:/p/bin");
        assert_eq!(append(OsString::new(), &["/p".into(), "/q".into()]), "/p:/q");
    }
}
