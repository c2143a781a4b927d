//! What the helper is told.

use serde::{Deserialize, Serialize};

/// What the helper is told, as JSON in its first argument; the rest is the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelperConfig {
    /// Directories of the workspace that were on the host's PATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_path: Vec<String>,
    /// The same for PYTHONPATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_python_path: Vec<String>,
    /// Published ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<Forward>,
    /// A shell file read before the command starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<String>,
    /// Whether this is a further command in a running sandbox, which reports nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub further: bool,
    /// Where the proxy's port is handed over, when the network is filtered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Whether the launcher's lock can be watched.
    #[serde(default)]
    pub owner: bool,
    /// Where the pen is, if not at its usual place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_dir: Option<String>,
    /// The launcher, where it is the parent of this process (Seatbelt): helper and command are one group of processes, which
    /// signals reach without the helper's doing, and which ends when the launcher does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<u32>,
}

/// The way of the proxy's port out of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The directory that holds the socket.
    pub directory: String,
}

/// One published port: what arrives at `listen` goes to `port` on the guest's loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Where the engine delivers.
    pub listen: u16,
    /// Where the guest listens.
    pub port: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duties_survive_the_command_line() {
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
