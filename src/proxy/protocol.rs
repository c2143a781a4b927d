//! The values that sandpen, the proxy's process and the guest agree on: the job that is passed on
//! the command line, the lines that the process prints, and the port.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::value::HostRule;

/// The port on the guest's loopback at which programs find the proxy.
pub const PROXY_PORT: u16 = 8877;

/// The line that the process prints when its proxy accepts connections.
pub const READY: &str = "ready";

/// The line that the process prints before it exits because the guest did.
pub const OVER: &str = "over";

/// How long a proxy may take to accept connections.
pub const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The argument of `sandpen proxy`, as JSON. The user's command, if there is one, follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyJob {
    /// The directory in which the guest hands over its listening socket; empty on the host, where
    /// the process only supervises the user's command.
    pub directory: String,
    /// The hosts that sandpen's proxy allows; `None` if the user's command decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<HostRule>>,
    /// Whether the process can watch the launcher's lock.
    pub owner: bool,
    /// How many seconds the user's command may take to listen.
    pub timeout: u64,
}
