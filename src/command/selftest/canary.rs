//! Plants canaries on the host before the probe starts: secrets that the probe must not read, and
//! directories and listeners that it must not reach. Dropping them removes them.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SelftestError;
use crate::host::Host;
use crate::path::HostPath;
use crate::session_id::random_name;

/// The names of all that the self-test makes on the host begin with it.
pub const PREFIX: &str = ".sandpen-selftest-";
const SECRET: &str = "secret";
/// Suffices to read data that has already been sent.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// A directory with a secret file.
#[derive(Debug)]
pub struct CanaryDirectory {
    pub path: HostPath,
    /// The content of the secret file.
    pub content: String,
}

impl CanaryDirectory {
    pub fn secret(&self) -> HostPath {
        self.path.join(SECRET)
    }
}

#[derive(Debug)]
pub struct Canaries {
    /// The probe uses this name for every file that it writes.
    pub file_name: String,
    /// The probe sends this text to every address that it reaches.
    pub token: String,
    /// `None` if the home directory cannot be written.
    pub home: Option<CanaryDirectory>,
    pub temp: Option<CanaryDirectory>,
    pub loopback: TcpListener,
    /// Listens on an address other than loopback, if the host has one.
    pub outer: Option<TcpListener>,
    pub datagrams: UdpSocket,
}

impl Canaries {
    pub fn plant(host: &Host) -> Result<Self, SelftestError> {
        let random = random_name();
        let file_name = format!("{PREFIX}{}-{random}", host.process.pid);
        let listen = |source: io::Error| SelftestError::Listen { source };
        let outer = outer_address();
        let udp = outer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        remove_stale(&host.home);
        remove_stale(&host.temp_dir());
        let canaries = Canaries {
            token: random_name(),
            home: plant_directory(&host.home, &file_name),
            temp: plant_directory(&host.temp_dir(), &file_name),
            loopback: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(listen)?,
            outer: outer.and_then(|address| TcpListener::bind((address, 0)).ok()),
            datagrams: UdpSocket::bind((udp, 0)).map_err(listen)?,
            file_name,
        };
        // They are read after the probe has ended, when all of its connections are already queued.
        canaries.loopback.set_nonblocking(true).map_err(listen)?;
        canaries.datagrams.set_nonblocking(true).map_err(listen)?;
        if let Some(outer) = &canaries.outer {
            outer.set_nonblocking(true).map_err(listen)?;
        }
        Ok(canaries)
    }

    /// Tells whether the probe's file arrived in a directory of the host, and removes it.
    pub fn arrived_in(&self, directory: &Path) -> bool {
        fs::remove_file(directory.join(&self.file_name)).is_ok()
    }

    /// Tells whether the probe connected to a listener; other connections are ignored.
    pub fn was_reached(&self, listener: &TcpListener) -> bool {
        std::iter::from_fn(|| listener.accept().ok()).any(|(mut stream, _)| {
            let mut token = vec![0; self.token.len()];
            let read = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(READ_TIMEOUT)));
            read.and_then(|()| stream.read_exact(&mut token)).is_ok() && token == self.token.as_bytes()
        })
    }

    pub fn received_datagram(&self) -> bool {
        let mut token = vec![0; self.token.len()];
        std::iter::from_fn(|| self.datagrams.recv(&mut token).ok().map(|_| token == self.token.as_bytes()))
            .any(|same| same)
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        for canary in self.home.iter().chain(&self.temp) {
            let _ = fs::remove_dir_all(canary.path.as_path());
        }
    }
}

/// Removes the canaries of killed self-tests.
fn remove_stale(directory: &HostPath) {
    for entry in fs::read_dir(directory.as_path()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_running = |pid: &str| Path::new("/proc").join(pid).exists();
        if Path::new("/proc/self").exists() && owner.is_some_and(|pid| !pid.is_empty() && !is_running(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn plant_directory(parent: &HostPath, name: &str) -> Option<CanaryDirectory> {
    let path = parent.join(name);
    // Only this user can read it on the host, and inside the guest runs as this user.
    DirBuilder::new().mode(0o700).create(path.as_path()).ok()?;
    let canary = CanaryDirectory { path, content: random_name() };
    if fs::write(canary.secret().as_path(), &canary.content).is_err() {
        let _ = fs::remove_dir_all(canary.path.as_path());
        return None;
    }
    Some(canary)
}

/// Finds an address of the host other than loopback, without sending a packet.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

pub fn address(listener: io::Result<SocketAddr>) -> Option<String> {
    listener.ok().map(|address| address.to_string())
}

/// Returns the paths that are UTF-8.
pub fn texts<'a>(paths: impl IntoIterator<Item = &'a HostPath>) -> Vec<String> {
    paths.into_iter().filter_map(|path| path.to_str().map(str::to_owned)).collect()
}

/// Lists the files in the home directory that usually hold secrets and exist.
pub fn secrets(host: &Host) -> Vec<HostPath> {
    const NAMES: &[&str] = &[
        ".ssh/id_rsa",
        ".ssh/id_ecdsa",
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".git-credentials",
        ".docker/config.json",
        ".kube/config",
        ".gnupg/private-keys-v1.d",
        ".config/gh/hosts.yml",
        ".bash_history",
        ".zsh_history",
    ];
    let exists = |path: &HostPath| path.as_path().symlink_metadata().is_ok();
    NAMES.iter().map(|name| host.home.join(name)).filter(exists).collect()
}

/// Lists the sockets at which engines listen on the host.
pub fn engine_sockets(host: &Host) -> Vec<HostPath> {
    let mut sockets: Vec<PathBuf> =
        ["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"]
            .map(PathBuf::from)
            .into();
    if let Some(runtime) = host.env.path("XDG_RUNTIME_DIR") {
        sockets.extend([runtime.join("docker.sock"), runtime.join("podman/podman.sock")]);
    }
    sockets.push(host.home.join(".docker/run/docker.sock").as_path().to_owned());
    let named =
        ["DOCKER_HOST", "CONTAINER_HOST"].into_iter().filter_map(|name| host.env.text(name)?.strip_prefix("unix://"));
    sockets.extend(named.map(PathBuf::from));
    sockets.into_iter().filter_map(|socket| HostPath::new(socket).ok()).collect()
}
