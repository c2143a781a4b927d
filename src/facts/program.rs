//! Finds host programs on PATH, never in directories that will be mounted (attack 07). Starts none
//! of them.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files::examine;
use crate::host::Host;
use crate::path::HostPath;

/// PATH, divided into directories whose programs may run on the host and directories that are
/// mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SearchPath {
    pub outside: Vec<HostPath>,
    /// Links in these are not resolved.
    pub inside: Vec<HostPath>,
    /// All absolute directories, in the order of the variable.
    pub all: Vec<HostPath>,
    /// The mounted directories.
    #[serde(skip)]
    pub mounted: Vec<HostPath>,
}

impl SearchPath {
    /// Divides a PATH-like value. Relative and empty entries are dropped: they mean the current
    /// directory, which is mounted.
    pub fn divide(value: Option<&OsStr>, mounted: &[HostPath]) -> Self {
        let real = mounted.iter().filter_map(|root| HostPath::new(root.as_path().canonicalize().ok()?).ok());
        let mounted: Vec<HostPath> = mounted.iter().cloned().chain(real).collect();
        let mut path = SearchPath::default();
        for entry in value.map(std::env::split_paths).into_iter().flatten() {
            let Ok(entry) = HostPath::new(&entry) else { continue };
            let real = entry.as_path().canonicalize().ok().and_then(|real| HostPath::new(real).ok());
            path.all.push(entry.clone());
            let is_inside = |path: &HostPath| mounted.iter().any(|root| path.is_within(root));
            if is_inside(&entry) {
                path.inside.push(entry);
            } else if real.as_ref().is_none_or(|real| !is_inside(real)) {
                path.outside.push(entry);
            }
        }
        path.mounted = mounted;
        path
    }

    /// Looks for a program outside of all mounted directories.
    pub fn find(&self, name: &str) -> Option<HostPath> {
        self.outside.iter().map(|directory| directory.join(name)).find(|file| self.is_host_program(file))
    }

    /// Tells whether a file is a program that no guest can have written, whatever links lead to it.
    fn is_host_program(&self, file: &HostPath) -> bool {
        let is_mounted = |path: &HostPath| self.mounted.iter().any(|root| path.is_within(root));
        is_program(file.as_path())
            && examine(file).is_some_and(|fact| !is_mounted(&fact.real) && !fact.links.iter().any(is_mounted))
    }

    /// Looks for a program by its name on PATH, or by its path.
    pub fn examine(&self, host: &Host, name: &str) -> Option<ProgramFact> {
        let path =
            if name.contains('/') { HostPath::new(host.expand(Path::new(name))).ok()? } else { self.find(name)? };
        let real = HostPath::new(path.as_path().canonicalize().ok()?).ok()?;
        Some(ProgramFact { path, real })
    }

    /// Tells whether a mounted directory on PATH contains a program of this name.
    pub fn is_planted(&self, name: &str) -> bool {
        self.inside.iter().any(|directory| is_program(directory.join(name).as_path()))
    }

    /// Returns the PATH for programs that sandpen starts on the host, which look up other programs
    /// in it.
    pub fn for_host(&self) -> PathBuf {
        std::env::join_paths(self.outside.iter().map(HostPath::as_path)).map(PathBuf::from).unwrap_or_default()
    }
}

/// A host program outside of mounted directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramFact {
    pub path: HostPath,
    /// The path with all links resolved.
    pub real: HostPath,
}

pub fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
