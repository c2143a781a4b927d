//! Decides what is special about a container of an engine on another machine, and what cannot be had there.
//! Nothing of this machine is mounted: files are copied at the start.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::helper::HelperError;
use super::{Draft, NetworkPlan, ProxyPlan};
use crate::config::value::{EngineKind, GitMode, TmpMode, UserMode, WorkspaceMode};
use crate::config::{Config, Origin};
use crate::error::{Diagnostic, Kind, Result};
use crate::path::HostPath;

/// The engine on another machine, and what is copied there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePlan {
    pub address: String,
    /// The arguments of the client that select the engine, whatever the environment says later.
    pub endpoint: Vec<OsString>,
    /// Files and directories of the workspace.
    pub workspace: Vec<HostPath>,
}

/// The configuration of the container's first process, passed as JSON in its argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeeperConfig {
    /// The user and the group of the command, to whom the files belong.
    pub user: (u32, u32),
    /// Files and directories that stay root's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("{origin}: {feature} is not possible with an engine on another machine (`{address}`)")]
    Impossible { origin: Origin, feature: &'static str, address: String, instead: &'static str },
}

impl Diagnostic for RemoteError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        let Self::Impossible { instead, .. } = self;
        vec![(*instead).to_owned()]
    }
}

impl Draft<'_> {
    /// Refuses what a container on another machine cannot have.
    pub(super) fn refuse_for_remote(&self, network: &NetworkPlan) -> Result<()> {
        let Some(remote) = self.remote() else { return Ok(()) };
        refuse_options(self.config, network, &remote.address)?;
        self.refuse_mounts("an engine on another machine")?;
        if self.facts.helper.is_none() {
            return Err(HelperError::Missing { feature: "an engine on another machine", arch: self.host.arch }.into());
        }
        Ok(())
    }

    pub(super) fn remote(&self) -> Option<RemotePlan> {
        let workspace = || self.workspace.trees().cloned().collect();
        match self.engine {
            EngineKind::Docker => {
                let docker = self.facts.docker.as_ref().filter(|docker| docker.is_on_another_machine())?;
                let endpoint = docker.endpoint_arguments();
                Some(RemotePlan { address: docker.endpoint.clone(), endpoint, workspace: workspace() })
            }
            EngineKind::Podman => {
                let elsewhere = self.facts.podman.as_ref()?.elsewhere.as_ref()?;
                let endpoint = elsewhere.arguments.iter().map(OsString::from).collect();
                Some(RemotePlan { address: elsewhere.address.clone(), endpoint, workspace: workspace() })
            }
            _ => None,
        }
    }
}

fn refuse_options(config: &Config, network: &NetworkPlan, address: &str) -> Result<()> {
    let refuse = |origin: &Origin, feature, instead| -> Result<()> {
        let address = address.to_owned();
        Err(RemoteError::Impossible { origin: origin.clone(), feature, address, instead }.into())
    };
    if let (Some(ProxyPlan::Command { .. }), Some(command)) = (&network.proxy, &config.proxy_command) {
        return refuse(&command.origin, "a proxy command", "name hosts with `--allow-host`");
    }
    if let Some(port) = config.ports.first() {
        let instead = "drop it; `sandpen ports ID PORT` forwards a port of this machine while the sandbox runs";
        return refuse(&port.origin, "publishing ports", instead);
    }
    if config.tmp.value == TmpMode::Host {
        return refuse(&config.tmp.origin, "the host's temporary directory", "drop it: the sandbox has a private one");
    }
    if config.git.value == GitMode::Shared {
        return refuse(&config.git.origin, "the host's Git directory", "use `--git private`");
    }
    if let WorkspaceMode::Kept(_) = config.workspace.value {
        let instead = "`--workspace copy` makes a new one";
        return refuse(&config.workspace.origin, "going on with a kept copy of the workspace", instead);
    }
    if config.user.value == UserMode::Image {
        let instead = "drop it: the command runs as an ordinary user";
        return refuse(&config.user.origin, "the image's user", instead);
    }
    Ok(())
}
