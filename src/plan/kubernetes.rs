//! Decides what is special about a sandbox in a Kubernetes pod: the cluster, the pod's options, and
//! what cannot be had there. Nothing of the host is mounted: files are copied at the start.

use super::entry::{Mount, Source, Topic};
use super::{Draft, NetworkPlan};
use crate::config::value::{
    Access, EngineKind, GitMode, NetworkMode, NodeSelector, TmpMode, Toleration, UserMode, WorkspaceMode,
};
use crate::config::{Config, Origin};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::{FileKind, KubernetesFacts};

/// The directory that only the keeper's container has.
pub const KEEPER_DIR: &str = "/.sandpen-keeper";
/// The socket on which the keeper waits for the launcher.
#[cfg(target_os = "linux")]
pub const LINK_SOCKET: &str = "/.sandpen-keeper/link";
/// The socket on which the keeper waits for the first process of the guest's container.
#[cfg(target_os = "linux")]
pub const GUEST_SOCKET: &str = "/.sandpen/guest-link";

/// Returns the name of the socket on which the channel waits for the connections of one that the keeper holds.
pub fn channel_socket(name: &str) -> String {
    format!("{name}.channel")
}

/// The namespace that a context without one uses.
const DEFAULT_NAMESPACE: &str = "default";
/// What `explain` shows before the first launch.
const NO_OWNER: &str = "0";

/// The cluster, and options of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesPlan {
    /// The context that was asked for.
    pub asked_context: Option<String>,
    /// The context that kubectl uses.
    pub context: Option<String>,
    pub server: Option<String>,
    pub namespace: String,
    pub runtime_class: Option<String>,
    pub service_account: Option<String>,
    pub node_selector: Vec<NodeSelector>,
    pub tolerations: Vec<Toleration>,
    pub image_pull_secrets: Vec<String>,
    /// Identifies this installation in the labels of pods.
    pub owner: String,
    /// Files and directories of the workspace: they come back.
    pub workspace: Vec<crate::path::HostPath>,
}

#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error("{origin}: `{path}` cannot be writable inside: only the workspace comes back from {place}")]
    Writable { origin: Origin, path: String, place: &'static str },
    #[error("{origin}: `{path}` is {what}, which cannot be copied to another machine")]
    NotAFile { origin: Origin, path: String, what: &'static str },
    #[error("{origin}: {feature} is not possible with the engine `kubernetes`")]
    Impossible { origin: Origin, feature: &'static str, instead: &'static str },
}

impl Diagnostic for KubernetesError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        vec![match self {
            Self::Writable { .. } => "mount it read-only, or make it part of the workspace with `--include-dir`".into(),
            Self::NotAFile { .. } => "drop it, or use an engine of this machine".into(),
            Self::Impossible { instead, .. } => (*instead).into(),
        }]
    }
}

impl Draft<'_> {
    /// Refuses what a pod cannot have.
    pub(super) fn refuse_for_kubernetes(&self, network: &NetworkPlan) -> Result<()> {
        if self.engine != EngineKind::Kubernetes {
            return Ok(());
        }
        refuse_options(self.config, network)?;
        self.refuse_mounts("a pod")
    }

    /// Refuses requested mounts that cannot be copies; `place` names what has them.
    pub(super) fn refuse_mounts(&self, place: &'static str) -> Result<()> {
        let mut asked = self.mounts.iter().filter(|mount| mount.why.topic == Topic::Asked);
        asked.try_for_each(|mount| self.refuse_mount(mount, place))
    }

    fn refuse_mount(&self, mount: &Mount, place: &'static str) -> Result<()> {
        let (Source::Host(source), origin) = (&mount.source, mount.why.from.clone()) else { return Ok(()) };
        let path = source.to_string();
        let what = match self.facts.files.get(source).map(|fact| fact.kind) {
            Some(FileKind::Socket) => Some("a socket"),
            Some(FileKind::File | FileKind::Directory) | None => None,
            Some(_) => Some("a device or a pipe"),
        };
        if let Some(what) = what {
            return Err(KubernetesError::NotAFile { origin, path, what }.into());
        }
        if mount.access == Access::Rw && !self.workspace.contains(source) {
            return Err(KubernetesError::Writable { origin, path, place }.into());
        }
        Ok(())
    }

    pub(super) fn kubernetes(&self) -> Option<KubernetesPlan> {
        let facts = self.facts.kubernetes.as_ref().filter(|_| self.engine == EngineKind::Kubernetes)?;
        Some(KubernetesPlan::new(self.config, facts, self.workspace.trees().cloned().collect()))
    }
}

impl KubernetesPlan {
    fn new(config: &Config, facts: &KubernetesFacts, workspace: Vec<crate::path::HostPath>) -> Self {
        let name = |asked: &Option<crate::config::Sourced<crate::config::value::ObjectName>>| {
            asked.as_ref().map(|asked| asked.value.to_string())
        };
        KubernetesPlan {
            asked_context: config.context.as_ref().map(|asked| asked.value.clone()),
            context: facts.context.clone(),
            server: facts.server.clone(),
            namespace: name(&config.namespace)
                .or_else(|| facts.namespace.clone())
                .unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
            runtime_class: name(&config.runtime_class),
            service_account: name(&config.service_account),
            node_selector: config.node_selector.iter().map(|asked| asked.value.clone()).collect(),
            tolerations: config.tolerations.iter().map(|asked| asked.value.clone()).collect(),
            image_pull_secrets: config.image_pull_secrets.iter().map(|asked| asked.value.to_string()).collect(),
            owner: facts.owner.clone().unwrap_or_else(|| NO_OWNER.into()),
            workspace,
        }
    }
}

fn refuse_options(config: &Config, network: &NetworkPlan) -> Result<()> {
    let refuse = |origin: &Origin, feature, instead| -> Result<()> {
        Err(KubernetesError::Impossible { origin: origin.clone(), feature, instead }.into())
    };
    if network.mode == NetworkMode::Proxied {
        let origin = config.allow_hosts.first().map_or(&config.network.origin, |rule| &rule.origin);
        return refuse(
            origin,
            "a filtered network",
            "use `--network off`, which holds in every cluster, or `--network on`",
        );
    }
    if let Some(port) = config.ports.first() {
        return refuse(&port.origin, "publishing ports", "drop it; `kubectl port-forward` reaches the pod");
    }
    if config.tmp.value == TmpMode::Host {
        return refuse(&config.tmp.origin, "the host's temporary directory", "drop it: the pod has a private one");
    }
    if config.git.value == GitMode::Shared {
        return refuse(&config.git.origin, "the host's Git directory", "use `--git private`");
    }
    if let WorkspaceMode::Kept(_) = config.workspace.value {
        let instead = "apply it first, or use `--engine docker`";
        return refuse(&config.workspace.origin, "going on with a kept copy of the workspace", instead);
    }
    if config.user.value == UserMode::Image {
        return refuse(&config.user.origin, "the image's user", "drop it: the command runs as an ordinary user");
    }
    if let Some(flag) = config.engine_flags.iter().find(|flag| matches!(flag.origin, Origin::Flag(_))) {
        return refuse(&flag.origin, "a flag of the engine", "use the options `kubernetes.…` of a configuration file");
    }
    Ok(())
}
