//! Looks for Podman, and connects to its service if it has a socket here. Starts no process.

use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::Serialize;

use super::docker::names_another_machine;
use super::podman_service::PodmanService;
use crate::facts::Reach;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::untrusted;

const MAX_AUTH_FILE: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodmanFacts {
    pub program: Option<HostPath>,
    pub reach: Reach,
    /// Whether Podman runs as an ordinary user.
    pub rootless: bool,
    /// Whether the containers run in a virtual machine or on another host.
    pub remote: bool,
    /// The service, if it is on another machine.
    pub elsewhere: Option<PodmanService>,
    /// Whether the user has registry logins, which an empty auth file would hide.
    pub has_auth: bool,
    /// The cgroup controllers that a rootless Podman can use for limits.
    pub controllers: Vec<String>,
}

impl PodmanFacts {
    pub fn look(host: &Host, program: Option<HostPath>) -> Self {
        let (remote, service) = PodmanService::of(host);
        let address = host.env.text("CONTAINER_HOST");
        let reach = match (&program, address.and_then(|address| address.strip_prefix("unix://"))) {
            (None, _) => Reach::NoProgram,
            (Some(_), Some(socket)) => UnixStream::connect(socket).map_or_else(Reach::from, |_| Reach::Answers),
            (Some(_), None) => Reach::Answers,
        };
        let rootless = host.uid != 0;
        let controllers = if rootless && !remote { crate::facts::delegated_controllers(host.uid) } else { Vec::new() };
        let elsewhere = service.filter(|service| names_another_machine(&service.address));
        PodmanFacts { program, reach, rootless, remote, elsewhere, has_auth: has_auth(host), controllers }
    }
}

fn has_auth(host: &Host) -> bool {
    let runtime = host.env.path("XDG_RUNTIME_DIR").map(|directory| directory.join("containers/auth.json"));
    let config = host.home.join(".config/containers/auth.json").as_path().to_owned();
    match host.env.path("REGISTRY_AUTH_FILE") {
        // Podman stops at a file that it cannot read, even if it pulls nothing.
        Some(file) => is_auth_file(file),
        None => runtime.into_iter().chain([config]).any(|file| file.exists()),
    }
}

fn is_auth_file(file: &Path) -> bool {
    let text = untrusted::read_linked(file, MAX_AUTH_FILE).unwrap_or_default();
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text).is_ok()
}
