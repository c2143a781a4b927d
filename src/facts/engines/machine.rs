//! Asks a container engine about its virtual machine, to forward the SSH agent into it (R6, R7).
//! Each question is one call of the engine's client.

use std::time::Duration;

use serde::Serialize;

use super::ask;
use super::connection::{Connection, ConnectionError};
use crate::error::Result;
use crate::host::Host;
use crate::process::Client;

/// The socket through which Docker Desktop and OrbStack forward the host's agent into their virtual
/// machine.
pub const HOST_SERVICE: &str = "/run/host-services/ssh-auth.sock";

/// A machine that is starting needs several seconds.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineQuestion {
    /// Asks Docker for the operating system of its machine (R6.1).
    OperatingSystem,
    /// Asks Podman for the connection to its machine (R7.2).
    Connection,
}

/// Docker's virtual machine (R6.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DesktopFacts {
    /// The operating system that `docker info` reports; empty if it does not answer.
    pub system: String,
    /// Whether `HOST_SERVICE` exists in the machine; `None` until a launch has looked.
    pub socket: Option<bool>,
}

impl DesktopFacts {
    /// Asks the active context.
    pub fn ask(client: &Client) -> Self {
        let output = ask::question(client, &["info", "--format", "{{.OperatingSystem}}"])
            .and_then(|mut command| ask::within(&mut command, MACHINE_TIMEOUT));
        let system = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        DesktopFacts { system, socket: None }
    }

    /// Tells whether the product provides `HOST_SERVICE`.
    pub fn has_service(&self) -> bool {
        let system = self.system.to_ascii_lowercase();
        system.contains("docker desktop") || system.contains("orbstack")
    }
}

/// Asks Podman for its connections and selects one (R7.2, R7.6).
pub fn connection(host: &Host, client: &Client) -> Result<Connection> {
    let mut command = ask::question(client, &["system", "connection", "list", "--format", "json"])
        .ok_or_else(|| ConnectionError::NotListed { reason: "there is no `podman` on PATH".into() })?;
    let output = ask::within(&mut command, MACHINE_TIMEOUT).ok_or_else(|| ConnectionError::NotListed {
        reason: format!("it cannot be started, or does not answer within {} s", MACHINE_TIMEOUT.as_secs()),
    })?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ConnectionError::NotListed { reason }.into());
    }
    let chosen = Connection::select(&output.stdout, host.env.text("CONTAINER_CONNECTION"))?;
    match chosen.identity.as_deref().filter(|identity| !std::path::Path::new(identity).is_file()) {
        Some(key) => Err(ConnectionError::NoKey { key: key.to_owned(), name: chosen.name }.into()),
        None => Ok(chosen),
    }
}
