//! The configuration of the helper.

use serde::{Deserialize, Serialize};

/// The configuration of the helper, passed as JSON in its first argument; the rest is the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelperConfig {
    /// Directories of the workspace that are on the host's PATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_path: Vec<String>,
    /// The same for PYTHONPATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_python_path: Vec<String>,
    /// Published ports to relay to the guest's loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<Forward>,
    /// A file that a shell reads before the command starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<String>,
    /// Whether this is a command of `sandpen exec`, for which no status is reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exec: bool,
    /// How the proxy gets its port, when the network is filtered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Whether the launcher's lock is mounted, so that the helper can end with the launcher.
    #[serde(default)]
    pub owner: bool,
    /// The control directory, if it is not [`CONTROL_DIR`](super::CONTROL_DIR).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_dir: Option<String>,
    /// The launcher's process id under Seatbelt, where it is the helper's parent. Helper and command
    /// are then one process group, which the launcher signals and which ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<u32>,
}

/// How the proxy's port leaves the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The directory with the socket over which the listener is sent.
    pub directory: String,
}

/// A published port: connections to `listen` are relayed to `port` on the guest's loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// The port inside the container that the engine connects to.
    pub listen: u16,
    /// The port that the guest listens on.
    pub port: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_survives_the_command_line() {
        let helper_config = HelperConfig {
            append_path: vec!["/a b/\"c\"".into()],
            forward: vec![Forward { listen: 61000, port: 3000 }],
            startup: Some("/x".into()),
            owner: true,
            ..HelperConfig::default()
        };
        let json = serde_json::to_string(&helper_config).unwrap_or_default();
        assert_eq!(serde_json::from_str::<HelperConfig>(&json).ok(), Some(helper_config));
    }
}
