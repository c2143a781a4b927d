//! Looks at the engines: whether each answers, and which features it has on this host. Starts no
//! container.

pub mod ask;
pub mod checkup;
pub mod connection;
pub mod docker;
pub mod kubernetes;
pub mod machine;
pub mod native;
pub mod podman;
mod podman_service;
pub mod seatbelt;

use serde::Serialize;

/// A cgroup controller that enforces one of sandpen's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    pub const ALL: [Controller; 3] = [Controller::Cpu, Controller::Memory, Controller::Pids];

    /// Returns the name that the kernel uses.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        }
    }
}
