//! Looks at what the native engine can do here: whether the kernel lets it create namespaces, which
//! limits it can enforce, and how much of Landlock there is. Creates nothing.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{cannot_limit, landlock_abi, limits_processes_by_default, problem, scopes_abstract_sockets};
#[cfg(target_os = "linux")]
pub use linux::{
    NamespaceRestriction, cannot_limit, landlock_abi, limits_processes_by_default, namespace_restriction, problem,
    scopes_abstract_sockets,
};

use serde::Serialize;

use super::Controller;

use crate::error::{Diagnostic, Error, Kind};
use crate::facts::SystemFacts;

/// The first Landlock ABI (Linux 6.12) that can keep signals and abstract sockets inside a sandbox.
pub const LANDLOCK_SCOPES_ABI: u32 = 6;

/// The abilities of the native engine on this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NativeFacts {
    /// Why the native engine cannot run here; `None` also when it is the only candidate, because
    /// the launch then says so.
    #[serde(skip)]
    pub problem: Option<Error>,
    /// The limits that an ordinary user's sandbox cannot have.
    pub cannot_limit: Vec<Controller>,
    /// Whether Landlock can keep the guest from the host's abstract sockets while the network is
    /// shared.
    pub scopes_sockets: bool,
    /// Whether the number of processes is limited by default.
    pub limits_processes: bool,
    /// The parts of the host's system that are mounted inside.
    pub system: SystemFacts,
}

impl NativeFacts {
    pub fn look(is_only_candidate: bool) -> Self {
        let problem = if is_only_candidate { None } else { problem() };
        if problem.is_some() {
            return NativeFacts {
                problem,
                cannot_limit: Vec::new(),
                scopes_sockets: true,
                limits_processes: true,
                system: SystemFacts::default(),
            };
        }
        NativeFacts {
            problem,
            cannot_limit: cannot_limit(),
            scopes_sockets: scopes_abstract_sockets(),
            limits_processes: limits_processes_by_default(),
            system: SystemFacts::look(),
        }
    }
}

/// Why the native engine cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum NativeUnavailable {
    #[cfg(target_os = "linux")]
    #[error("the native sandbox cannot be set up: {0}")]
    Restricted(NamespaceRestriction),
    #[error("the native engine requires Linux")]
    NotLinux,
}

impl Diagnostic for NativeUnavailable {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        vec![match self {
            #[cfg(target_os = "linux")]
            Self::Restricted(restriction) => restriction.remedy(),
            Self::NotLinux => "use `--engine sandbox-exec`, `docker` or `podman`".into(),
        }]
    }
}
