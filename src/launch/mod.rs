//! Translates a plan into a [`Launch`] for its engine. Pure: it reads no file and starts no process,
//! so that `explain` shows what `run` runs.

mod docker;
mod error;
mod file_copy;
mod kubernetes;
mod limits;
#[cfg(target_os = "linux")]
pub mod native;
mod oci;
mod podman;
mod remote;
mod seatbelt;
mod sidecar;
mod volume;

pub use error::LaunchError;
pub use file_copy::FileCopy;
pub use kubernetes::{GUEST, KEEPER, KubernetesLaunch};
pub use oci::CONTAINER_ID;
pub use remote::Transfer;
pub use seatbelt::{Entry as SeatbeltEntry, SeatbeltLaunch};
pub use sidecar::Sidecar;

use std::ffi::OsString;

use serde::Serialize;

use crate::error::Result;
use crate::facts::Facts;
use crate::host::{Host, ProcessStamp};
use crate::path::HostPath;
use crate::plan::{EngineKind, Mount, NestedPlan, Plan, Secret, Source, TunnelPlan};
use crate::process::{Client, Pin};

/// The option that a downgrade weakens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DowngradeKind {
    Cpus,
    Memory,
    Pids,
    /// The host's abstract sockets can be reached.
    AbstractSockets,
    /// Requests to the SSH agent are not filtered.
    SshAgent,
    /// The host's Git directory is writable inside.
    Git,
    /// `--keep` has no effect.
    Keep,
    /// Programs inside cannot make sandboxes of their own.
    Nested,
    /// A mount appears at the host's path instead of the requested target.
    MountTarget,
    /// Files are copied instead of mounted.
    Copied,
}

/// An option that cannot be enforced here. With `--strict` it stops the launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Downgrade {
    pub kind: DowngradeKind,
    pub asked: String,
    /// Names what applies instead.
    pub got: String,
    pub reason: String,
}

impl Downgrade {
    pub fn unlimited(kind: DowngradeKind, asked: String, reason: &str) -> Self {
        Downgrade { kind, asked, got: "no limit".into(), reason: reason.into() }
    }
}

/// Reports `--nested on` where the engine cannot allow it.
fn nested_downgrade(plan: &Plan) -> Option<Downgrade> {
    let NestedPlan::Unavailable { from, reason } = &plan.nested else { return None };
    Some(Downgrade {
        kind: DowngradeKind::Nested,
        asked: format!("sandboxes within the sandbox ({from})"),
        got: "denied".into(),
        reason: (*reason).into(),
    })
}

/// Turns the first downgrade into an error.
pub fn refuse_downgrades(downgrades: &[Downgrade]) -> Result<()> {
    match downgrades.first() {
        Some(downgrade) => Err(LaunchError::Strict { downgrade: downgrade.clone() }.into()),
        None => Ok(()),
    }
}

/// A plan, translated for one engine.
#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
#[derive(Debug, Clone, PartialEq)]
pub enum Launch {
    Container(ContainerLaunch),
    Seatbelt(SeatbeltLaunch),
    Kubernetes(KubernetesLaunch),
    #[cfg(target_os = "linux")]
    Native(native::NativeLaunch),
}

/// The call of an engine's client, and the calls that clean up after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLaunch {
    pub client: Client,
    /// Starts with the engine's name, not the path of its client.
    pub argv: Vec<OsString>,
    /// The arguments that name layers of package caches.
    pub caches: Vec<CacheArgument>,
    /// The client inherits these variables, because their values must not be in argv.
    pub inherited: Vec<(String, Secret)>,
    /// Private files that must exist before the client starts: path and content.
    pub files: Vec<(HostPath, Secret)>,
    /// Must be connected before the container starts.
    pub tunnel: Option<TunnelPlan>,
    /// Starts the process inside that relays sockets over its streams; empty if all are mounted.
    pub channel: Vec<OsString>,
    /// What is sent to a container on another machine, which mounts nothing of this one.
    pub transfer: Option<Transfer>,
    /// The container of the proxy, unless the launcher runs the proxy itself.
    pub sidecar: Option<Sidecar>,
    /// Kills the container if the client did not, and removes it unless it is kept.
    pub end: Vec<OsString>,
    /// Removes the container, whether it runs or not.
    pub remove: Vec<OsString>,
    pub downgrades: Vec<Downgrade>,
}

/// An argument that mounts a package cache with a layer of the project's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheArgument {
    /// The position in argv.
    pub at: usize,
    pub mount: Mount,
}

impl ContainerLaunch {
    /// Returns the launch with other directories of layers.
    pub fn with_layers(
        &self,
        engine: EngineKind,
        place: impl Fn(&HostPath) -> HostPath,
    ) -> std::result::Result<Self, LaunchError> {
        let mut changed = self.clone();
        for CacheArgument { at, mount } in &self.caches {
            let Source::Cache { host, layer } = &mount.source else { continue };
            let source = Source::Cache { host: host.clone(), layer: place(layer) };
            let [_, argument] = volume::arguments(&Mount { source, ..mount.clone() }, engine)?;
            changed.argv[*at] = argument;
        }
        Ok(changed)
    }
}

impl Launch {
    /// Translates a plan for its engine.
    pub fn compile(plan: &Plan, host: &Host, facts: &Facts) -> Result<Self> {
        let client = Client {
            program: plan.engine.program.clone(),
            path: facts.path.for_host(),
            machine: plan
                .ssh
                .tunnel
                .as_ref()
                .map(|tunnel| Pin { connection: tunnel.connection.name.clone(), timeout: tunnel.timeout }),
            endpoint: plan.remote.as_ref().map_or_else(Vec::new, |remote| remote.endpoint.clone()),
        };
        let launch = match plan.engine.kind {
            EngineKind::Docker => Launch::Container(docker::compile(plan, host.process, client, facts.helper.clone())?),
            EngineKind::Podman => Launch::Container(podman::compile(plan, host.process, client, facts.helper.clone())?),
            EngineKind::SandboxExec => Launch::Seatbelt(seatbelt::compile(plan, host.process)?),
            EngineKind::Kubernetes => Launch::Kubernetes(kubernetes::compile(plan, client, facts.helper.clone())?),
            #[cfg(target_os = "linux")]
            EngineKind::Native => Launch::Native(native::compile(plan)?),
            #[cfg(not(target_os = "linux"))]
            engine @ EngineKind::Native => return Err(LaunchError::WrongPlatform { engine }.into()),
        };
        if plan.strict {
            refuse_downgrades(launch.downgrades())?;
        }
        Ok(launch)
    }

    pub fn container(&self) -> Option<&ContainerLaunch> {
        match self {
            Launch::Container(launch) => Some(launch),
            Launch::Seatbelt(_) | Launch::Kubernetes(_) => None,
            #[cfg(target_os = "linux")]
            Launch::Native(_) => None,
        }
    }

    /// Returns the pod, as data.
    pub fn manifest(&self) -> Option<&serde_json::Value> {
        match self {
            Launch::Kubernetes(launch) => Some(&launch.manifest),
            _ => None,
        }
    }

    pub fn downgrades(&self) -> &[Downgrade] {
        match self {
            Launch::Container(launch) => &launch.downgrades,
            Launch::Seatbelt(launch) => &launch.downgrades,
            Launch::Kubernetes(launch) => &launch.downgrades,
            #[cfg(target_os = "linux")]
            Launch::Native(launch) => &launch.downgrades,
        }
    }

    /// Returns the command line of the engine's client; for the native engine, that of the guest.
    pub fn argv(&self) -> &[OsString] {
        match self {
            Launch::Container(launch) => &launch.argv,
            Launch::Seatbelt(launch) => &launch.argv,
            Launch::Kubernetes(launch) => &launch.argv,
            #[cfg(target_os = "linux")]
            Launch::Native(launch) => &launch.argv,
        }
    }

    pub fn proxy_argv(&self) -> Option<&[OsString]> {
        self.container().and_then(|launch| launch.sidecar.as_ref()).map(|sidecar| sidecar.argv.as_slice())
    }

    /// Returns the command line that starts the process inside for sockets that cannot be mounted.
    pub fn channel_argv(&self) -> Option<&[OsString]> {
        let argv = match self {
            Launch::Container(launch) => &launch.channel,
            Launch::Kubernetes(launch) => &launch.channel,
            _ => return None,
        };
        Some(argv.as_slice()).filter(|argv| !argv.is_empty())
    }

    /// Lists the operations that argv does not show: native's setup steps, the rules of a Seatbelt
    /// profile.
    pub fn steps(&self) -> Option<Vec<String>> {
        match self {
            Launch::Container(_) | Launch::Kubernetes(_) => None,
            Launch::Seatbelt(launch) => Some(launch.steps()),
            #[cfg(target_os = "linux")]
            Launch::Native(launch) => Some(launch.steps()),
        }
    }
}

/// Labels identify the owning launcher by pid and start time, because pids are reused.
fn labels(plan: &Plan, owner: ProcessStamp) -> [(&'static str, String); 4] {
    [
        ("dev.sandpen.session", plan.id.to_string()),
        ("dev.sandpen.owner-pid", owner.pid.to_string()),
        ("dev.sandpen.owner-start", owner.start.to_string()),
        ("dev.sandpen.workdir", plan.workdir.to_string()),
    ]
}
