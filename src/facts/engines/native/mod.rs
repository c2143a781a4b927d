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
    cannot_limit, landlock_abi, limits_processes_by_default, namespace_restriction, problem, scopes_abstract_sockets,
};

use crate::error::{Diagnostic, Kind};

/// The first Landlock ABI (Linux 6.12) that can keep signals and abstract sockets inside a sandbox.
pub const LANDLOCK_SCOPES_ABI: u32 = 6;

/// Keeps unprivileged processes of this machine from creating user namespaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceRestriction {
    #[error("user namespaces are disabled (`{sysctl}` is `{value}`)")]
    Sysctl { sysctl: &'static str, value: String },
    #[error("AppArmor restricts unprivileged user namespaces")]
    AppArmor,
    #[error("this looks like a container that forbids namespaces: {evidence}")]
    Container { evidence: String },
}

impl NamespaceRestriction {
    pub fn remedy(&self) -> String {
        match self {
            Self::Sysctl { sysctl, .. } => {
                let name = sysctl.trim_start_matches("/proc/sys/").replace('/', ".");
                let value = if name.ends_with("clone") { 1 } else { 15000 };
                format!("run `sudo sysctl -w {name}={value}`, or use a container engine")
            }
            Self::AppArmor => "run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give this \
                 program an AppArmor profile with `userns,`, or use a container engine"
                .into(),
            Self::Container { .. } => "start the container with `--security-opt seccomp=unconfined --security-opt \
                 systempaths=unconfined`, or run on the host"
                .into(),
        }
    }
}

/// The native engine cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum NativeUnavailable {
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
            Self::Restricted(restriction) => restriction.remedy(),
            Self::NotLinux => "use `--engine sandbox-exec`, `docker` or `podman`".into(),
        }]
    }
}
