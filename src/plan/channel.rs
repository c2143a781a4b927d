//! Plans the sockets inside that lead to the launcher's gates over a channel. Needed where the engine runs
//! containers on another machine, a virtual one or a node, into which no socket of the host can be mounted.

use std::ffi::OsString;

use super::entry::Why;
use super::{CONTROL_DIR, Draft};
use crate::channel::StreamKind;
use crate::config::value::EngineKind;
use crate::host::Platform;
use crate::path::{GuestPath, HostPath};

/// A socket inside, and the gate's socket to which connections are relayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSocket {
    pub kind: StreamKind,
    pub inside: GuestPath,
    pub gate: HostPath,
    pub why: Why,
}

/// Returns the arguments of the helper's process that makes the sockets: what follows the program, each
/// socket as KIND=PATH, and the port on which it listens for the session's proxy.
pub fn arguments(sockets: &[ChannelSocket], proxy_port: Option<u16>) -> Vec<OsString> {
    let sockets = sockets.iter().map(|socket| {
        let mut text = OsString::from(format!("{}=", socket.kind.name()));
        text.push(socket.inside.as_os_str());
        text
    });
    let port = proxy_port.map(|port| format!("{}={port}", StreamKind::Proxy.name()).into());
    [format!("{CONTROL_DIR}/sandpen").into(), "channel".into()].into_iter().chain(sockets).chain(port).collect()
}

impl Draft<'_> {
    /// Tells whether the engine runs containers where the host's sockets do not exist.
    pub fn lacks_host_sockets(&self) -> bool {
        let is_desktop = || self.facts.docker.as_ref().is_some_and(|docker| docker.is_desktop());
        let is_remote = match self.engine {
            EngineKind::Docker => is_desktop() || self.facts.docker.as_ref().is_some_and(|docker| docker.remote),
            EngineKind::Podman => self.facts.podman.as_ref().is_some_and(|podman| podman.remote),
            EngineKind::Kubernetes => true,
            _ => return false,
        };
        is_remote || self.host.platform == Platform::Macos
    }

    /// Tells whether a process inside can relay sockets: it is the helper.
    pub fn has_channel(&self) -> bool {
        self.lacks_host_sockets() && self.facts.helper.is_some()
    }
}
