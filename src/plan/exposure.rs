//! Decides whether a requested mount contains more than files: what controls the machine, or all of
//! the user's home.

use super::Draft;
use crate::facts::FileFact;
use crate::path::HostPath;
use crate::vars;

/// Sockets of engines that run as root, and of the system.
const CONTROL_SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
];

impl Draft<'_> {
    /// Describes what a mount exposes besides its files, if anything.
    pub(super) fn exposure(&self, fact: &FileFact) -> Option<&'static str> {
        let contains = |path: &HostPath| path.is_within(&fact.real);
        let contains_text = |path: &str| HostPath::new(path).is_ok_and(|path| contains(&path));
        let real = fact.real.to_str().unwrap_or_default();
        if real == "/" {
            return Some("the whole host, with the sockets that control it: the guest can become root on this machine");
        }
        if real == "/proc" || real.starts_with("/proc/") {
            return Some(
                "the host's processes, with their files and secrets: the guest can become root on this machine",
            );
        }
        let own_engine = self.facts.docker.as_ref().and_then(|docker| docker.endpoint.strip_prefix("unix://"));
        if CONTROL_SOCKETS.iter().copied().chain(own_engine).any(contains_text) {
            return Some("sockets that control the host: the guest can become root on this machine");
        }
        if contains(&self.host.home) {
            return Some("your whole home directory, with keys and credentials");
        }
        let agent = self.host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| HostPath::new(path).ok());
        let is_agents = agent.is_some_and(|agent| contains(&agent) && agent != fact.real);
        is_agents.then_some("the socket of the SSH agent")
    }
}
