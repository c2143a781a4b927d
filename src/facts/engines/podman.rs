//! Whether Podman answers: its program is there, or its remote connection accepts.

use std::os::unix::net::UnixStream;

use serde::Serialize;

use crate::facts::Reach;
use crate::host::{Host, Platform};
use crate::path::HostPath;

/// What is known of Podman.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodmanFacts {
    /// The program.
    pub program: Option<HostPath>,
    /// Whether it answers.
    pub reach: Reach,
    /// Whether containers belong to this ordinary user.
    pub rootless: bool,
    /// Whether the containers run elsewhere: a virtual machine or another host.
    pub remote: bool,
    /// Whether the user has registry logins of their own, which an empty auth file would hide.
    pub has_auth: bool,
    /// Which limits a rootless Podman can enforce: the controllers delegated to the user.
    pub controllers: Vec<String>,
}

impl PodmanFacts {
    /// Looks for the program and what belongs to it.
    pub fn look(host: &Host, program: Option<HostPath>) -> Self {
        let address = host.env.text("CONTAINER_HOST");
        let remote =
            host.platform == Platform::Macos || address.is_some() || host.env.text("CONTAINER_CONNECTION").is_some();
        let reach = match (&program, address.and_then(|address| address.strip_prefix("unix://"))) {
            (None, _) => Reach::NoProgram,
            (Some(_), Some(socket)) => UnixStream::connect(socket).map_or_else(Reach::from, |_| Reach::Answers),
            (Some(_), None) => Reach::Answers,
        };
        let rootless = host.uid != 0;
        let controllers = if rootless && !remote { crate::facts::delegated_controllers(host.uid) } else { Vec::new() };
        PodmanFacts { program, reach, rootless, remote, has_auth: has_auth(host), controllers }
    }
}

fn has_auth(host: &Host) -> bool {
    let runtime = host.env.path("XDG_RUNTIME_DIR").map(|directory| directory.join("containers/auth.json"));
    let config = host.home.join(".config/containers/auth.json").as_path().to_owned();
    host.env.path("REGISTRY_AUTH_FILE").is_some() || runtime.into_iter().chain([config]).any(|file| file.exists())
}
