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
    LANDLOCK_SCOPES_ABI, NamespaceRestriction, cannot_limit, landlock_abi, limits_processes_by_default,
    namespace_restriction, problem, scopes_abstract_sockets,
};

use crate::error::{Diagnostic, Kind};

/// The native engine cannot run here.
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
