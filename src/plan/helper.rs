//! Decides what the guest helper does inside: the first process of a container, which starts the
//! command.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::entry::{Mount, Why};
use super::prepare::Prepare;
use super::push::PushPlan;
use super::{Draft, FINDINGS, PackageIndex, mounts};
use crate::config::value::{Access, EngineKind, Port};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::FileKind;
use crate::host::Platform;
use crate::path::{GuestPath, HostPath};
use crate::process::status_file::STATUS;
use crate::warning::{Warning, WarningTopic};

/// The first port inside on which the helper receives connections to published ports.
const FIRST_RELAY_PORT: u16 = 61000;

/// The configuration of the helper, passed as JSON in its first argument. The command follows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelperConfig {
    /// Directories of the workspace that are on the host's PATH, and the one of Git's remote helper.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_path: Vec<String>,
    /// Directories of the workspace that are on the host's PYTHONPATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_python_path: Vec<String>,
    /// Published ports to relay to the guest's loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<Forward>,
    /// A file that a shell reads before the command starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<String>,
    /// Whether this is a command of `sandpen exec`, for which no status is reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exec: bool,
    /// For a command of `sandpen exec`: the byte of the launcher's file that its client has locked.
    /// When the client has ended, the command and all that it started are ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// For a command of `sandpen exec`: leaves the command running, without streams, and exits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detach: bool,
    /// The directory through which the proxy gets the guest's port; `None` unless the network is
    /// filtered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Sockets that the launcher's other process inside makes, without which the command does not start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<String>,
    /// The port on which that process listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_port: Option<u16>,
    /// Whether the launcher's lock is mounted, so that the helper can end with the launcher.
    #[serde(default)]
    pub owner: bool,
    /// The control directory, if it is not [`CONTROL_DIR`](super::CONTROL_DIR).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_dir: Option<String>,
    /// Directories that the launcher reads and removes after the command, although the guest is
    /// another user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<String>,
    /// The launcher's process id under Seatbelt, where it is the helper's parent. Helper and
    /// command are then one process group, which the launcher signals and which ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<u32>,
    /// Serves pip's cache, if the sandbox has no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_index: Option<PackageIndex>,
    /// Whether programs in a container may make sandboxes of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
}

/// Passes the proxy's listening socket out of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The directory with the socket over which the listener is sent.
    pub directory: String,
}

/// A published port: connections to `listen` are relayed to `port` on the guest's loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// The port inside the container that the engine connects to.
    pub listen: u16,
    /// The port that the guest listens on.
    pub port: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    #[error("{feature} requires the guest helper, but there is no `sandpen-linux-{arch}` beside sandpen")]
    Missing { feature: &'static str, arch: &'static str },
}

impl Diagnostic for HelperError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        vec!["build it with `scripts/build-helper`, and put it there".into()]
    }
}

impl Draft<'_> {
    pub(super) fn helper_config(&self, ports: &[Port], push: &PushPlan) -> HelperConfig {
        let mut startup = mounts::STARTUP_FILES.iter().map(|file| self.host.cwd.join(file));
        let startup = startup.find(|file| self.facts.files.get(file).is_some_and(|fact| fact.kind == FileKind::File));
        HelperConfig {
            append_path: match self.engine {
                // The native engine keeps the order of the host's PATH.
                EngineKind::Native if self.has_host_tools() => Vec::new(),
                _ => self.in_workspace(&self.facts.path.inside),
            }
            .into_iter()
            .chain(push.is_on().then(|| self.push_path()))
            .collect(),
            append_python_path: self.in_workspace(&self.facts.python_path.inside),
            forward: ports
                .iter()
                .zip(relay_ports(ports))
                .map(|(port, listen)| Forward { listen, port: port.0 })
                .collect(),
            startup: startup.and_then(|file| file.to_str().map(str::to_owned)),
            exec: false,
            client: None,
            detach: false,
            handover: None,
            awaited: Vec::new(),
            awaited_port: None,
            owner: self.host.platform == Platform::Linux && !self.copies_files,
            control_dir: None,
            opened: Vec::new(),
            package_index: None,
            nested: false,
            launcher: None,
        }
    }

    fn in_workspace(&self, directories: &[HostPath]) -> Vec<String> {
        let inside = directories.iter().filter(|directory| self.workspace.contains(directory));
        inside.filter_map(|directory| directory.to_str().map(str::to_owned)).collect()
    }

    /// Mounts the guest helper and its channel to the launcher. The helper is a Linux build of this
    /// program.
    pub(super) fn helper(&mut self, helper_config: &HelperConfig, command: &[OsString]) -> Result<Option<GuestPath>> {
        let Some(program) = &self.facts.helper else {
            if !helper_config.forward.is_empty() {
                return Err(HelperError::Missing { feature: "publishing ports", arch: self.host.arch }.into());
            }
            if !helper_config.append_path.is_empty() || helper_config.startup.is_some() {
                self.warnings.push(Warning::new(
                    WarningTopic::Helper,
                    "without the guest helper, PATH additions and sandbox.bashrc have no effect inside",
                ));
            }
            if command.is_empty() {
                self.warnings
                    .push(Warning::new(WarningTopic::Helper, "without the guest helper, the shell inside is `sh`"));
            }
            return Ok(None);
        };
        let control_dir = self.control_dir();
        if self.copies_files {
            // It is sent there, and speaks to the launcher over the link.
            return Ok(Some(control_dir.join("sandpen")));
        }
        // A file and not a directory, so that the guest cannot leave other files behind.
        let status = self.session_dir.join(STATUS);
        self.prepare.push(Prepare::Shared { path: status.clone() });
        let channel = Why::default("the helper reports the status of the command");
        self.mounts.add(Mount::file(status, control_dir.join(STATUS), Access::Rw, channel));
        let helper = Why::default("the guest helper: init, PATH additions, ports");
        self.mounts.add(Mount::file(program.clone(), control_dir.join("sandpen"), Access::Ro, helper));
        if helper_config.owner {
            let owner = Why::default("the guest exits when sandpen does, even if sandpen is killed");
            self.mounts.add(Mount::file(self.session_dir.join("owner"), control_dir.join("owner"), Access::Ro, owner));
        }
        Ok(Some(control_dir.join("sandpen")))
    }
}

impl Draft<'_> {
    /// Mounts what the self-test's probe needs: this program, and a file for its findings.
    pub(super) fn probe(&mut self) {
        let found = self.session_dir.join(FINDINGS);
        self.prepare.push(Prepare::Shared { path: found.clone() });
        let why = Why::default("the self-test's probe writes its findings to it");
        let inside = match self.facts.seatbelt.as_ref().filter(|_| self.engine == EngineKind::SandboxExec) {
            Some(seatbelt) => seatbelt
                .sessions
                .join(self.session_dir.as_path().file_name().unwrap_or_default())
                .join(FINDINGS)
                .to_guest(),
            None => self.control_dir().join(FINDINGS),
        };
        let source = match self.engine {
            EngineKind::SandboxExec => HostPath::new(inside.as_path()).unwrap_or(found),
            _ => found,
        };
        self.mounts.add(Mount::file(source, inside, Access::Rw, why));
        if let (EngineKind::Native, Some(program)) = (self.engine, &self.facts.helper) {
            let why = Why::default("the self-test's probe");
            self.mounts.add(Mount::file(program.clone(), self.control_dir().join("sandpen"), Access::Ro, why));
        }
    }
}

/// Iterates over ports for the helper to listen on: high ones that are not published themselves.
fn relay_ports(published: &[Port]) -> impl Iterator<Item = u16> {
    (FIRST_RELAY_PORT..=u16::MAX).filter(|port| !published.contains(&Port(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_survives_the_command_line() {
        let helper_config = HelperConfig {
            append_path: vec!["/a b/\"c\"".into()],
            forward: vec![Forward { listen: 61000, port: 3000 }],
            startup: Some("/x".into()),
            owner: true,
            ..HelperConfig::default()
        };
        let json = serde_json::to_string(&helper_config).unwrap_or_default();
        assert_eq!(serde_json::from_str::<HelperConfig>(&json).ok(), Some(helper_config));
    }
}
