//! What is planted on the host before the probe starts, so that what arrives there, or is carried away, is seen from outside.
//! Everything is removed again when it is dropped.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::session_id::SessionId;

const PREFIX: &str = ".sandpen-selftest-";
const SECRET: &str = "secret";
/// How long a word may take to be read that has been sent already.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// A directory with a secret in it.
#[derive(Debug)]
pub struct Place {
    /// The directory.
    pub directory: HostPath,
    /// What its secret says.
    pub content: String,
}

impl Place {
    /// The file that must not be read.
    pub fn secret(&self) -> HostPath {
        self.directory.join(SECRET)
    }
}

/// All that is planted.
#[derive(Debug)]
pub struct Canaries {
    /// The name of every file that the probe plants.
    pub name: String,
    /// What it leaves behind at every address.
    pub word: String,
    /// In the home; `None` when there is no home that could be written to.
    pub home: Option<Place>,
    /// In the host's temp directory.
    pub temp: Option<Place>,
    /// At an address that only this machine reaches.
    pub loopback: TcpListener,
    /// At an address that others reach, if there is one.
    pub outer: Option<TcpListener>,
    /// For datagrams, likewise.
    pub datagrams: UdpSocket,
}

impl Canaries {
    /// Plants them.
    pub fn plant(host: &Host) -> Result<Self> {
        let random = SessionId::random().to_string();
        let name = format!("{PREFIX}{}-{random}", host.process.pid);
        let failed = |what: &'static str| move |error: io::Error| Error::failed(what).cause(error);
        let listen = failed("no port of this machine's can be listened on");
        let outer = outer_address();
        let udp = outer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        sweep(&host.home);
        sweep(&host.temp_dir());
        let canaries = Canaries {
            word: SessionId::random().to_string(),
            home: place(&host.home, &name),
            temp: place(&host.temp_dir(), &name),
            loopback: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(listen)?,
            outer: outer.and_then(|address| TcpListener::bind((address, 0)).ok()),
            datagrams: UdpSocket::bind((udp, 0)).map_err(listen)?,
            name,
        };
        // Looked at only after the probe has ended: whoever came is waiting.
        let quiet = failed("a listener cannot be set up");
        canaries.loopback.set_nonblocking(true).map_err(quiet)?;
        canaries.datagrams.set_nonblocking(true).map_err(quiet)?;
        if let Some(outer) = &canaries.outer {
            outer.set_nonblocking(true).map_err(quiet)?;
        }
        Ok(canaries)
    }

    /// Whether the probe's file has arrived in a directory of the host; it goes with this look.
    pub fn arrived_in(&self, directory: &Path) -> bool {
        fs::remove_file(directory.join(&self.name)).is_ok()
    }

    /// Whether the probe came to a listener.
    pub fn came_to(&self, listener: &TcpListener) -> bool {
        std::iter::from_fn(|| listener.accept().ok()).any(|(mut stream, _)| {
            let mut word = vec![0; self.word.len()];
            let read = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(READ_TIMEOUT)));
            read.and_then(|()| stream.read_exact(&mut word)).is_ok() && word == self.word.as_bytes()
        })
    }

    /// Whether a datagram of the probe's arrived.
    pub fn sent_datagram(&self) -> bool {
        let mut word = vec![0; self.word.len()];
        std::iter::from_fn(|| self.datagrams.recv(&mut word).ok().map(|_| word == self.word.as_bytes()))
            .any(|same| same)
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        for place in self.home.iter().chain(&self.temp) {
            let _ = fs::remove_dir_all(place.directory.as_path());
        }
    }
}

/// What a self-test that was killed has left.
fn sweep(directory: &HostPath) {
    for entry in fs::read_dir(directory.as_path()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_there = |pid: &str| Path::new("/proc").join(pid).exists();
        if Path::new("/proc/self").exists() && owner.is_some_and(|pid| !pid.is_empty() && !is_there(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn place(below: &HostPath, name: &str) -> Option<Place> {
    let directory = below.join(name);
    let content = SessionId::random().to_string();
    // Only this user could read it outside; inside the guest is this user.
    DirBuilder::new().mode(0o700).create(directory.as_path()).ok()?;
    let place = Place { directory, content };
    if fs::write(place.secret().as_path(), &place.content).is_err() {
        let _ = fs::remove_dir_all(place.directory.as_path());
        return None;
    }
    Some(place)
}

/// An address of this machine's that is not its loopback; no packet is sent.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

/// The address of a listener.
pub fn address(listener: io::Result<SocketAddr>) -> Option<String> {
    listener.ok().map(|address| address.to_string())
}

/// Paths as text, those that are text.
pub fn texts<'a>(paths: impl IntoIterator<Item = &'a HostPath>) -> Vec<String> {
    paths.into_iter().filter_map(|path| path.to_str().map(str::to_owned)).collect()
}

/// Files that hold secrets, as far as they exist in this home.
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

/// Where engines listen on this machine.
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
