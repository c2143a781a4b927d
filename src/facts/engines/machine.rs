//! What a container engine in a virtual machine says of itself, as far as forwarding the SSH agent depends on it (R6, R7).
//! Each is one call of the engine's client, made only when it is needed.

use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::facts::engines::ask;
use crate::facts::engines::connection::Connection;
use crate::host::Host;
use crate::process::Client;

/// The socket that Docker Desktop and OrbStack keep in their machine.
pub const HOST_SERVICE: &str = "/run/host-services/ssh-auth.sock";

/// A machine that is just starting takes its time; one that hangs must not take all of it.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(30);

/// What an engine in a virtual machine is asked, so that the SSH agent can be forwarded there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineQuestion {
    /// Docker: which operating system the machine reports (R6.1).
    OperatingSystem,
    /// Podman: which connection leads to the machine (R7.2).
    Connection,
}

/// What Docker says of the machine it runs in (R6.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DesktopFacts {
    /// The operating system that `docker info` names; empty when it did not answer.
    pub system: String,
    /// Whether the socket is there for the guest; `None` until a launch has looked.
    pub socket: Option<bool>,
}

impl DesktopFacts {
    /// Asks the active context, and never guesses from files.
    pub fn ask(client: &Client) -> Self {
        let output = ask::question(client, &["info", "--format", "{{.OperatingSystem}}"])
            .and_then(|mut command| ask::within(&mut command, MACHINE_TIMEOUT));
        let system = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        DesktopFacts { system, socket: None }
    }

    /// Whether it is one of those that keep the socket.
    pub fn has_service(&self) -> bool {
        let system = self.system.to_ascii_lowercase();
        system.contains("docker desktop") || system.contains("orbstack")
    }
}

/// Asks Podman for its connections and chooses one (R7.2, R7.6).
pub fn connection(host: &Host, client: &Client) -> Result<Connection> {
    let failed = |reason: &dyn std::fmt::Display| {
        Error::launch("Podman does not tell its connections")
            .cause(reason)
            .hint("check that the machine runs: `podman machine list`, `podman machine start`")
            .hint("or do without the SSH agent: --ssh-agent off")
    };
    let mut command = ask::question(client, &["system", "connection", "list", "--format", "json"])
        .ok_or_else(|| failed(&"there is no `podman` on PATH"))?;
    let output = ask::within(&mut command, MACHINE_TIMEOUT).ok_or_else(|| {
        failed(&format!("it cannot be started, or does not answer within {} s", MACHINE_TIMEOUT.as_secs()))
    })?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    let chosen = Connection::select(&output.stdout, host.env.text("CONTAINER_CONNECTION"))?;
    match chosen.identity.as_deref().filter(|identity| !std::path::Path::new(identity).is_file()) {
        Some(identity) => Err(Error::launch(format!(
            "the key `{identity}` of Podman's connection `{}` does not exist",
            chosen.name
        ))
        .hint("check that the machine exists and runs: `podman machine list`, `podman machine start`; and its connections: `podman system connection list`")
        .hint("or do without the SSH agent: --ssh-agent off")),
        None => Ok(chosen),
    }
}
