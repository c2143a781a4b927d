//! Looks at what this kernel lets the native engine do.

use serde::Serialize;

use crate::error::Error;
use crate::facts::SystemFacts;

/// What the native engine can do here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NativeFacts {
    /// Why the native engine cannot run here; `None` also when it is the only candidate, because the launch then says so.
    #[serde(skip)]
    pub problem: Option<Error>,
    /// The limits that an ordinary user's sandbox cannot have.
    pub cannot_limit: Vec<&'static str>,
    /// Whether Landlock can keep the guest from the host's abstract sockets while the network is shared.
    pub scopes_sockets: bool,
    /// Whether the number of processes is limited when nobody asks.
    pub limits_processes: bool,
    /// What of the host's system is shown inside.
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

#[cfg(target_os = "linux")]
pub use crate::native::{
    cannot_limit, landlock_version, limits_processes_by_default, problem, scopes_abstract_sockets,
};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use crate::error::Error;

    /// There are no Linux namespaces here.
    pub fn problem() -> Option<Error> {
        Some(
            Error::launch("the native engine is Linux's own").hint("use `--engine sandbox-exec`, `docker` or `podman`"),
        )
    }

    /// Nothing runs, so nothing is left unlimited.
    pub fn cannot_limit() -> Vec<&'static str> {
        Vec::new()
    }

    /// As above.
    pub fn limits_processes_by_default() -> bool {
        true
    }

    /// As above.
    pub fn landlock_version() -> u32 {
        0
    }

    /// As above.
    pub fn scopes_abstract_sockets() -> bool {
        true
    }
}
#[cfg(not(target_os = "linux"))]
pub use elsewhere::*;
