//! Finds host programs on PATH, never inside directories that will be mounted (attack 07).

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::host::Host;
use crate::path::HostPath;

/// PATH, divided into what may be used on the host and what lies in mounted directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SearchPath {
    /// Absolute directories outside everything that is mounted.
    pub outside: Vec<HostPath>,
    /// Absolute directories inside mounted directories, as written.
    pub inside: Vec<HostPath>,
}

impl SearchPath {
    /// Divides a PATH-like value. Relative and empty entries mean the current directory, which is mounted: dropped.
    pub fn divide(value: Option<&OsStr>, mounted: &[HostPath]) -> Self {
        let mut path = SearchPath::default();
        for entry in value.map(std::env::split_paths).into_iter().flatten() {
            let Ok(entry) = HostPath::new(&entry) else { continue };
            let real = entry.as_path().canonicalize().ok().and_then(|real| HostPath::new(real).ok());
            let is_inside = |path: &HostPath| mounted.iter().any(|root| path.is_within(root));
            if is_inside(&entry) {
                path.inside.push(entry);
            } else if real.as_ref().is_none_or(|real| !is_inside(real)) {
                path.outside.push(entry);
            }
        }
        path
    }

    /// The program of this name outside of all mounted directories.
    pub fn find(&self, name: &str) -> Option<HostPath> {
        self.outside.iter().map(|directory| directory.join(name)).find(|file| is_program(file.as_path()))
    }

    /// Looks at a program by its name on PATH, or by its path.
    pub fn examine(&self, host: &Host, name: &str) -> Option<ProgramFact> {
        let path =
            if name.contains('/') { HostPath::new(host.expand(Path::new(name))).ok()? } else { self.find(name)? };
        let real = HostPath::new(path.as_path().canonicalize().ok()?).ok()?;
        Some(ProgramFact { path, real })
    }

    /// Whether a mounted directory on PATH holds a program of this name.
    pub fn is_planted(&self, name: &str) -> bool {
        self.inside.iter().any(|directory| is_program(directory.join(name).as_path()))
    }

    /// The value of PATH for programs that sandpen starts on the host: they look up helpers of their own there.
    pub fn for_host(&self) -> PathBuf {
        std::env::join_paths(self.outside.iter().map(HostPath::as_path)).map(PathBuf::from).unwrap_or_default()
    }
}

/// A program of the host's, outside of mounted directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramFact {
    /// The first place on PATH that has it.
    pub path: HostPath,
    /// The same with all links resolved.
    pub real: HostPath,
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
