//! The engines that can run a sandbox.

use serde::Serialize;

/// An engine that can run a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// macOS Seatbelt.
    SandboxExec,
    /// Linux namespaces.
    Native,
    /// A pod in a Kubernetes cluster.
    Kubernetes,
}

impl EngineKind {
    /// Returns the name in flags, files and JSON.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Docker => "docker",
            EngineKind::Podman => "podman",
            EngineKind::SandboxExec => "sandbox-exec",
            EngineKind::Native => "native",
            EngineKind::Kubernetes => "kubernetes",
        }
    }

    /// Whether the guest runs in a container.
    pub fn is_container(self) -> bool {
        matches!(self, EngineKind::Docker | EngineKind::Podman | EngineKind::Kubernetes)
    }
}
