//! Engines: each makes a [`Launch`] of a plan. Pure: what `explain` shows is what `run` runs.

mod docker;
mod limits;
#[cfg(target_os = "linux")]
pub mod native;
mod oci;
mod podman;
mod seatbelt;
mod sidecar;
mod volume;

pub use oci::CONTAINER_ID;
pub use sidecar::Sidecar;

use std::ffi::OsString;

use serde::Serialize;

use crate::error::{Diagnostic, Kind, Result};
use crate::facts::Facts;
use crate::host::{Host, ProcessStamp};
use crate::path::HostPath;
use crate::plan::TunnelPlan;
use crate::plan::{EngineKind, Plan, Secret};
use crate::process::{Client, Pin};
pub use seatbelt::{Entry as SeatbeltEntry, SeatbeltLaunch};

/// What a downgrade weakens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DowngradeKind {
    Cpus,
    Memory,
    Pids,
    /// The host's abstract sockets can be reached.
    AbstractSockets,
    /// A sandbox that was to be kept is not.
    Keep,
    /// A mount appears at another place than asked for.
    MountTarget,
}

/// Something that was asked for and cannot be enforced here. With `--strict` it stops the launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Downgrade {
    pub kind: DowngradeKind,
    pub asked: String,
    /// What there is instead.
    pub got: String,
    pub reason: String,
}

impl Downgrade {
    /// Reports a limit that cannot be set.
    pub fn unlimited(kind: DowngradeKind, asked: String, reason: &str) -> Self {
        Downgrade { kind, asked, got: "no limit".into(), reason: reason.into() }
    }
}

/// Turns the first downgrade into an error.
pub fn refuse_downgrades(downgrades: &[Downgrade]) -> Result<()> {
    match downgrades.first() {
        Some(downgrade) => Err(LaunchError::Strict { downgrade: downgrade.clone() }.into()),
        None => Ok(()),
    }
}

/// Why a plan cannot be translated for its engine.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{} cannot be enforced here", downgrade.asked)]
    Strict { downgrade: Downgrade },
    #[cfg(not(target_os = "linux"))]
    #[error("the engine `{}` cannot run on this platform", engine.name())]
    WrongPlatform { engine: EngineKind },
}

impl Diagnostic for LaunchError {
    fn kind(&self) -> Kind {
        match self {
            Self::Strict { .. } => Kind::Launch,
            #[cfg(not(target_os = "linux"))]
            Self::WrongPlatform { .. } => Kind::Usage,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Strict { downgrade } => vec![downgrade.reason.clone()],
            #[cfg(not(target_os = "linux"))]
            Self::WrongPlatform { .. } => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Strict { downgrade } => vec![format!("without --strict it would run with: {}", downgrade.got)],
            #[cfg(not(target_os = "linux"))]
            Self::WrongPlatform { .. } => Vec::new(),
        }
    }
}

/// What one engine makes of a plan.
#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
#[derive(Debug, Clone, PartialEq)]
pub enum Launch {
    /// An engine's client with its command line.
    Container(ContainerLaunch),
    /// macOS's `sandbox-exec` with its command line and its profile.
    Seatbelt(SeatbeltLaunch),
    /// Set-up operations for the kernel.
    #[cfg(target_os = "linux")]
    Native(native::NativeLaunch),
}

/// The command line of an engine's client, its environment, the files it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLaunch {
    /// The engine's client.
    pub client: Client,
    /// The command line; the first word is the engine's name.
    pub argv: Vec<OsString>,
    /// Variables whose values the client inherits, because they must not be in argv.
    pub inherited: Vec<(String, Secret)>,
    /// Private files the client reads: path and content.
    pub files: Vec<(HostPath, Secret)>,
    /// The tunnel that must stand before the container starts.
    pub tunnel: Option<TunnelPlan>,
    /// The proxy's container, when the network is filtered by one.
    pub sidecar: Option<Sidecar>,
    /// The command that ends the container if the client could not; it removes it too, unless it is kept.
    pub end: Vec<OsString>,
    /// The command that removes the container, in whatever state.
    pub remove: Vec<OsString>,
    /// What cannot be enforced.
    pub downgrades: Vec<Downgrade>,
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
        };
        let launch = match plan.engine.kind {
            EngineKind::Docker => Launch::Container(docker::compile(plan, host.process, client)?),
            EngineKind::Podman => Launch::Container(podman::compile(plan, host.process, client)?),
            EngineKind::SandboxExec => Launch::Seatbelt(seatbelt::compile(plan, host.process)?),
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

    /// The command line of an engine's client, if that is what it is.
    pub fn container(&self) -> Option<&ContainerLaunch> {
        match self {
            Launch::Container(launch) => Some(launch),
            Launch::Seatbelt(_) => None,
            #[cfg(target_os = "linux")]
            Launch::Native(_) => None,
        }
    }

    /// What was asked for and cannot be enforced.
    pub fn downgrades(&self) -> &[Downgrade] {
        match self {
            Launch::Container(launch) => &launch.downgrades,
            Launch::Seatbelt(launch) => &launch.downgrades,
            #[cfg(target_os = "linux")]
            Launch::Native(launch) => &launch.downgrades,
        }
    }

    /// The command line that is executed: the engine's, or the guest's own.
    pub fn argv(&self) -> &[OsString] {
        match self {
            Launch::Container(launch) => &launch.argv,
            Launch::Seatbelt(launch) => &launch.argv,
            #[cfg(target_os = "linux")]
            Launch::Native(launch) => &launch.argv,
        }
    }

    /// The command line that starts the proxy's container.
    pub fn proxy_argv(&self) -> Option<&[OsString]> {
        self.container().and_then(|launch| launch.sidecar.as_ref()).map(|sidecar| sidecar.argv.as_slice())
    }

    /// The set-up operations of an engine whose command line does not tell: native's steps, the rules of a Seatbelt profile.
    pub fn steps(&self) -> Option<Vec<String>> {
        match self {
            Launch::Container(_) => None,
            Launch::Seatbelt(launch) => Some(launch.steps()),
            #[cfg(target_os = "linux")]
            Launch::Native(launch) => Some(launch.steps()),
        }
    }
}

/// Labels by which a container is found again, safe against reused process ids.
fn labels(plan: &Plan, owner: ProcessStamp) -> [(&'static str, String); 4] {
    [
        ("dev.sandpen.session", plan.id.to_string()),
        ("dev.sandpen.owner-pid", owner.pid.to_string()),
        ("dev.sandpen.owner-start", owner.start.to_string()),
        ("dev.sandpen.workdir", plan.workdir.to_string()),
    ]
}
