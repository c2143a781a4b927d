//! Finds the files that programs installed below HOME need (by nvm, pipx, uv, cargo or their own
//! installers): the command, and all programs of PATH. No other part of HOME is mounted.

mod installation;
mod script;
mod trace;

use std::path::PathBuf;

use serde::Serialize;

use super::files::FileKind;
use super::program::{SearchPath, is_program};
use crate::host::Host;
use crate::path::HostPath;
use trace::Trace;

/// Files that programs need inside, read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Traced {
    /// Installation directories and single files, as real paths.
    pub shown: Vec<(HostPath, FileKind)>,
    /// Links that were followed: their path and their target as written.
    pub links: Vec<(HostPath, PathBuf)>,
}

/// The programs below HOME.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolFacts {
    /// The file of the command on the host: the first match on PATH, or the path that was given.
    pub program: Option<HostPath>,
    /// What the command needs.
    pub command: Traced,
    /// What the programs of PATH need.
    pub path: Traced,
    /// Whether PATH has more programs than are followed.
    pub is_cut: bool,
}

/// The directories that decide what is followed.
pub struct Scope<'a> {
    /// PATH for the command.
    pub command_path: &'a SearchPath,
    /// PATH for other programs, without the preset's directories.
    pub path: &'a SearchPath,
    /// Directories that the guest can write: nothing in them is followed.
    pub writable: &'a [HostPath],
}

impl ToolFacts {
    /// Traces the command and the directories of PATH. Programs in the system's directories need
    /// nothing.
    pub fn look(host: &Host, command: Option<&str>, scope: &Scope<'_>) -> Self {
        let home = &host.home;
        let mut command_trace = Trace::new(home, scope.command_path, scope.writable);
        let program = command.and_then(|command| locate(host, command, scope.command_path));
        if let Some(program) = &program {
            command_trace.program(program);
            command_trace.wrapper(program);
            command_trace.own_data(program);
        }
        let mut path_trace = Trace::new(home, scope.path, scope.writable);
        if let Some(environment) = host.env.path(crate::vars::VIRTUAL_ENV) {
            path_trace.base_of(environment);
        }
        scope.path.outside.iter().for_each(|entry| path_trace.directory(entry));
        let is_cut = command_trace.is_cut || path_trace.is_cut;
        ToolFacts { program, command: command_trace.finish(), path: path_trace.finish(), is_cut }
    }

    /// Tells whether a path is inside because of one of these programs.
    pub fn shows(&self, path: &HostPath) -> bool {
        [&self.command, &self.path].iter().any(|traced| {
            traced.shown.iter().any(|(shown, _)| path.is_within(shown))
                || traced.links.iter().any(|(link, _)| path.is_within(link))
        })
    }
}

/// Finds the file of a command: by its name on PATH, or by its path.
fn locate(host: &Host, command: &str, path: &SearchPath) -> Option<HostPath> {
    if !command.contains('/') {
        return path.find(command);
    }
    let file = HostPath::new(host.expand(command.as_ref())).ok()?;
    is_program(file.as_path()).then_some(file)
}

#[cfg(test)]
mod tests;
