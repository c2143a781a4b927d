//! The command-line client of a container engine: its program, its PATH, and the machine it is pinned to.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::path::HostPath;

/// The engine's program, and the PATH on which it finds helpers of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The program, outside of all mounted directories; `None` when there is none.
    pub program: Option<HostPath>,
    /// PATH without mounted directories.
    pub path: PathBuf,
    /// The machine that Podman is pinned to: the tunnel ends in one, and everything must happen in that one, whatever the
    /// environment says.
    pub machine: Option<Pin>,
}

/// A virtual machine, and how long it may take to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The name of Podman's connection to it.
    pub connection: String,
    /// Podman itself would wait for ever.
    pub timeout: Duration,
}

impl Client {
    /// The words between the program and its command.
    pub fn pin(&self) -> Vec<OsString> {
        let words = self.machine.iter().flat_map(|pin| ["--connection", pin.connection.as_str()]);
        words.map(OsString::from).collect()
    }
}
