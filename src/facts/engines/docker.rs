//! Looks up Docker's endpoint and connects to it. Starts no process and reads only the client's
//! configuration.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::facts::Reach;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::untrusted;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DockerFacts {
    /// The client.
    pub program: Option<HostPath>,
    /// The address that the client connects to.
    pub endpoint: String,
    /// The variable, context or default that the endpoint comes from.
    pub chosen_by: EndpointOrigin,
    pub reach: Reach,
    /// Whether the daemon runs as this user, so that root in a container is the host's user.
    pub rootless: bool,
    /// Whether the daemon is on another machine, where the host's paths do not exist.
    pub remote: bool,
    /// The cgroup controllers that a rootless daemon can use. It ignores other limits silently.
    pub controllers: Vec<String>,
}

/// The setting that names the address of Docker's daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EndpointOrigin {
    /// DOCKER_HOST.
    Environment,
    Context(String),
    /// The socket of a rootless daemon exists, and that of the system does not.
    RootlessSocket,
    #[default]
    Default,
}

impl fmt::Display for EndpointOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("env DOCKER_HOST"),
            Self::Context(name) => write!(f, "docker context {name}"),
            Self::RootlessSocket => f.write_str("rootless socket"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Serialize for EndpointOrigin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A program that runs Docker's daemon in a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineProvider {
    Colima,
    Lima,
    RancherDesktop,
    Podman,
}

impl MachineProvider {
    pub fn name(self) -> &'static str {
        match self {
            Self::Colima => "Colima",
            Self::Lima => "Lima",
            Self::RancherDesktop => "Rancher Desktop",
            Self::Podman => "Podman",
        }
    }
}

/// The client's own files are far smaller.
const MAX_FILE: u64 = 1 << 20;
const SYSTEM_SOCKET: &str = "/var/run/docker.sock";

impl DockerFacts {
    pub fn look(host: &Host, program: Option<HostPath>) -> Self {
        let (endpoint, chosen_by) = endpoint(host);
        let mut facts = DockerFacts {
            program,
            endpoint,
            chosen_by,
            reach: Reach::Answers,
            rootless: false,
            remote: false,
            controllers: Vec::new(),
        };
        if facts.program.is_none() {
            facts.reach = Reach::NoProgram;
            return facts;
        }
        let unix = facts.endpoint.strip_prefix("unix://").map(PathBuf::from);
        let tcp = facts.endpoint.strip_prefix("tcp://").or_else(|| facts.endpoint.strip_prefix("http://"));
        if let Some(socket) = unix {
            match UnixStream::connect(&socket) {
                Ok(stream) => {
                    facts.rootless = host.uid != 0 && peer(&stream) == Some(host.uid);
                    facts.controllers = crate::facts::delegated_controllers(host.uid);
                }
                Err(error) => facts.reach = Reach::from(error),
            }
        } else if let Some(address) = tcp {
            facts.remote = true;
            if let Err(error) = connect(address) {
                facts.reach = Reach::from(error);
            }
        } else {
            // Only the client can connect to ssh:// and others; the launch reports if it fails.
            facts.remote = true;
        }
        facts
    }
}

impl DockerFacts {
    /// Tells whether this is Docker Desktop, which runs containers in a virtual machine on Linux,
    /// too.
    pub fn is_desktop(&self) -> bool {
        self.endpoint.contains("/.docker/desktop/")
            || matches!(&self.chosen_by, EndpointOrigin::Context(name) if name == "desktop-linux")
    }

    /// Tells whether the daemon is on another machine, and not behind a tunnel or in a virtual machine of
    /// this one.
    pub fn is_on_another_machine(&self) -> bool {
        self.remote && names_another_machine(&self.endpoint)
    }

    /// Returns the arguments of the client that select this daemon, whatever the environment says.
    pub fn endpoint_arguments(&self) -> Vec<OsString> {
        match &self.chosen_by {
            EndpointOrigin::Context(name) => ["--context", name.as_str()].map(OsString::from).into(),
            _ => ["--host", self.endpoint.as_str()].map(OsString::from).into(),
        }
    }

    /// Recognizes the product behind the endpoint, for messages, by a directory of the address or by
    /// the name of the context.
    pub fn provider(&self) -> Option<MachineProvider> {
        let context = match &self.chosen_by {
            EndpointOrigin::Context(name) => name.as_str(),
            _ => "",
        };
        let directories: Vec<&str> = self.endpoint.split('/').collect();
        [
            (".colima", "colima", MachineProvider::Colima),
            (".lima", "lima", MachineProvider::Lima),
            (".rd", "rancher-desktop", MachineProvider::RancherDesktop),
            ("podman", "podman", MachineProvider::Podman),
        ]
        .into_iter()
        .find(|(directory, name, _)| directories.contains(directory) || context.starts_with(name))
        .map(|(.., provider)| provider)
    }
}

/// Tells whether an address such as `ssh://me@host:22/path` names another machine.
pub fn names_another_machine(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else { return false };
    if !["ssh", "tcp", "http", "https"].contains(&scheme) {
        return false;
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host != "localhost" && !host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the uid of the process that listens on the other end.
#[cfg(target_os = "linux")]
fn peer(stream: &UnixStream) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

#[cfg(not(target_os = "linux"))]
fn peer(_: &UnixStream) -> Option<u32> {
    // Rootless daemons run on Linux hosts; elsewhere the daemon is in a virtual machine.
    None
}

fn connect(address: &str) -> io::Result<()> {
    let address = address.trim_end_matches('/');
    let resolved = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    TcpStream::connect_timeout(&resolved, Duration::from_secs(2)).map(drop)
}

/// Follows the client's order: DOCKER_HOST, DOCKER_CONTEXT, the configured context, the system's
/// socket, the rootless one. Returns the address and what it comes from.
fn endpoint(host: &Host) -> (String, EndpointOrigin) {
    if let Some(address) = host.env.text("DOCKER_HOST") {
        return (address.to_owned(), EndpointOrigin::Environment);
    }
    let directory =
        host.env.path("DOCKER_CONFIG").map_or_else(|| host.home.join(".docker").as_path().to_owned(), Path::to_owned);
    let named = host.env.text("DOCKER_CONTEXT").map(str::to_owned).or_else(|| current_context(&directory));
    if let Some(name) = named.filter(|name| name != "default") {
        let address = context_endpoint(&directory, &name).unwrap_or_else(|| "unknown".into());
        return (address, EndpointOrigin::Context(name));
    }
    if !Path::new(SYSTEM_SOCKET).exists() {
        // The installer of rootless Docker asks users to set DOCKER_HOST to this socket; some
        // forget it.
        let runtime = host.env.path("XDG_RUNTIME_DIR").map(|directory| directory.join("docker.sock"));
        if let Some(socket) = runtime.filter(|socket| socket.exists()) {
            return (format!("unix://{}", socket.display()), EndpointOrigin::RootlessSocket);
        }
    }
    (format!("unix://{SYSTEM_SOCKET}"), EndpointOrigin::Default)
}

fn current_context(directory: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct ClientConfig {
        #[serde(rename = "currentContext")]
        current_context: Option<String>,
    }
    let text = untrusted::read_linked(&directory.join("config.json"), MAX_FILE).ok()?;
    serde_json::from_str::<ClientConfig>(&text).ok()?.current_context.filter(|name| !name.is_empty())
}

/// Reads the endpoint of a context. The directories are named by a digest, so each is searched for
/// the name.
fn context_endpoint(directory: &Path, name: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Context {
        name: String,
        endpoints: Endpoints,
    }
    #[derive(Deserialize)]
    struct Endpoints {
        docker: Endpoint,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Endpoint {
        host: String,
    }
    std::fs::read_dir(directory.join("contexts/meta")).ok()?.flatten().find_map(|entry| {
        let text = untrusted::read_linked(&entry.path().join("meta.json"), MAX_FILE).ok()?;
        let context: Context = serde_json::from_str(&text).ok()?;
        (context.name == name).then_some(context.endpoints.docker.host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_machine() {
        for address in
            ["ssh://me@build.example", "tcp://10.1.2.3:2376", "ssh://me@127.0.0.1@host/x", "tcp://[2001:db8::1]:1"]
        {
            assert!(names_another_machine(address), "{address}");
        }
        for address in [
            "unix:///run/docker.sock",
            "tcp://127.0.0.1:2375",
            "ssh://core@localhost:5000/x",
            "tcp://[::1]:1",
            "unknown",
        ] {
            assert!(!names_another_machine(address), "{address}");
        }
    }
}
