//! Real parts: ssh-agent with keys, sshd on a free port, a "Podman machine" made of both and a rootless Podman, programs that
//! stand in front of an engine's client, and places to run on, the native engine among them.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::{Engine, IMAGE, Pen, Ran, RunToEnd, Running, comes_true, eventually};

/// The comment of the key that guests should see.
pub const KEY: &str = "the key of the test";

/// One test per place where a sandbox can run on Linux.
#[macro_export]
macro_rules! for_every_place {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::ssh::rig::Place;
            use $crate::support::Engine;
            #[test]
            fn docker() { Place::on(Engine::Docker, super::$name) }
            #[test]
            fn podman() { Place::on(Engine::Podman, super::$name) }
            #[test]
            fn podman_rootless() { Place::on(Engine::PodmanRootless, super::$name) }
            #[test]
            fn docker_rootless() { Place::on(Engine::DockerRootless, super::$name) }
            #[test]
            fn native_as_root() { Place::native(Engine::Podman, super::$name) }
            #[test]
            fn native_as_user() { Place::native(Engine::PodmanRootless, super::$name) }
        }
    )+};
}

/// A pen on an engine, or on none: then the native engine takes over, as the same user.
pub struct Place {
    pub pen: Pen,
    pub native: bool,
}

impl Place {
    pub fn on(engine: Engine, test: impl FnOnce(&Place)) {
        Pen::on(engine, |_| test(&Place { pen: Pen::new(engine), native: false }));
    }

    pub fn native(user_of: Engine, test: impl FnOnce(&Place)) {
        if !is_there("native") {
            eprintln!("SKIPPED: native is not in SANDPEN_TEST_ENGINES");
            return;
        }
        test(&Place { pen: Pen::new(user_of), native: true });
    }

    /// `sandpen run` (or `explain`) with nothing said about the agent but where it is.
    pub fn command(&self, name: &str, agent: Option<&Agent>) -> Command {
        let mut command = self.pen.sandpen();
        command.env_remove("SANDPEN_SSH_AGENT");
        if let Some(agent) = agent {
            command.env("SSH_AUTH_SOCK", &agent.socket);
        }
        command.arg(name);
        match self.native {
            true => command.args(["--engine", "native"]),
            false => command.args(["--engine", self.pen.engine.flag(), "--image", IMAGE]),
        };
        command
    }

    pub fn bash(&self, agent: Option<&Agent>, options: &[&str], script: &str) -> Ran {
        self.command("run", agent).args(options).args(["--", "bash", "-c", script]).ran()
    }

    pub fn explain(&self, agent: Option<&Agent>, options: &[&str], env: &[(&str, &str)]) -> serde_json::Value {
        let mut command = self.command("explain", agent);
        command.args(["--format", "json"]).args(options).envs(env.iter().copied()).args(["--", "true"]);
        serde_json::from_str(command.ran().ok()).expect("JSON")
    }
}

pub fn is_there(engine: &str) -> bool {
    std::env::var("SANDPEN_TEST_ENGINES").unwrap_or_default().split(',').any(|name| name == engine)
}

/// A running ssh-agent of the pen's user, its socket below /tmp as ssh-agent itself would put it.
pub struct Agent {
    pub socket: PathBuf,
    pub process: Running,
    _directory: TempDir,
}

impl Agent {
    pub fn empty(pen: &Pen) -> Self {
        let directory = tempfile::Builder::new().prefix("pen-agent-").tempdir_in("/tmp").expect("directory");
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).expect("chmod");
        std::os::unix::fs::chown(directory.path(), Some(pen.uid), Some(pen.gid)).expect("chown");
        let socket = directory.path().join("agent");
        let process = Running::start(pen.host_command("ssh-agent").arg("-D").arg("-a").arg(&socket));
        eventually("ssh-agent makes its socket", || socket.exists());
        Agent { socket, process, _directory: directory }
    }

    pub fn with_key(pen: &Pen) -> Self {
        let agent = Self::empty(pen);
        agent.add(pen, &keygen(pen, "user-key", KEY));
        agent
    }

    pub fn add(&self, pen: &Pen, key: &Path) {
        pen.host_command("ssh-add").env("SSH_AUTH_SOCK", &self.socket).arg("-q").arg(key).ran().ok();
    }
}

/// Makes a key of the pen's user, in a directory of the pen that no sandbox sees.
pub fn keygen(pen: &Pen, name: &str, comment: &str) -> PathBuf {
    let key = pen.outside("keys").join(name);
    let mut keygen = pen.host_command("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"]).arg(&key).ran().ok();
    key
}

pub fn public(key: &Path) -> String {
    fs::read_to_string(key.with_extension("pub")).expect("public key").trim().to_owned()
}

/// A real sshd of the pen's user on a free loopback port.
pub struct Sshd {
    pub port: u16,
    pub process: Running,
    /// The line for known_hosts.
    pub known: String,
    /// The key that may log in.
    pub identity: PathBuf,
}

impl Sshd {
    /// `extra`: further lines of its configuration.
    pub fn start(pen: &Pen, extra: &str) -> Self {
        let host_key = keygen(pen, "host-key", "host");
        let identity = keygen(pen, "identity", "machine");
        let authorized = pen.write("../keys/authorized", &format!("{}\n", public(&identity)));
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\nUseDNS no\nMaxStartups 100\n{extra}\n",
            host_key.display(),
            authorized.display(),
        );
        let config = pen.write("../keys/sshd_config", &config);
        // As root it would refuse users whose password is locked, as the rig's is.
        let process = Running::start(pen.host_command("/usr/sbin/sshd").args(["-D", "-e", "-f"]).arg(config));
        eventually("sshd answers", || answers(port));
        let known = public(&host_key);
        let known = known.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Sshd { port, process, known: format!("[127.0.0.1]:{port} {known}\n"), identity }
    }
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut banner = [0; 4];
    let answers = stream.read_exact(&mut banner).is_ok() && &banner == b"SSH-";
    let _ = stream.write_all(b"SSH-2.0-probe\r\n");
    answers
}

/// A Podman machine: the rig's ordinary user with a rootless Podman behind a real sshd. As in a real machine, the user inside has
/// the uid of the user outside, so that shared files have the same owner.
pub struct Machine {
    pub pen: Pen,
    pub sshd: Sshd,
    pub agent: Agent,
    _service: Option<Running>,
}

/// The connection's name.
pub const CONNECTION: &str = "pen-machine";

impl Machine {
    pub fn on(test: impl FnOnce(&mut Machine)) {
        Self::with("", true, test);
    }

    /// Without Podman behind sshd, for launches that must not get that far.
    pub fn without_podman(sshd: &str, test: impl FnOnce(&mut Machine)) {
        Self::with(sshd, false, test);
    }

    pub fn with(sshd: &str, podman: bool, test: impl FnOnce(&mut Machine)) {
        Pen::on(Engine::PodmanRootless, |_| {
            let pen = Pen::new(Engine::PodmanRootless);
            let sshd = Sshd::start(&pen, sshd);
            let agent = Agent::with_key(&pen);
            // Podman's own client checks the machine's key, too.
            pen.write(".ssh/known_hosts", &sshd.known);
            let service = podman.then(|| service(&pen));
            let mut machine = Machine { pen, sshd, agent, _service: service };
            machine.connections(&[(CONNECTION, &machine.uri(), Some(&machine.sshd.identity))], Some(CONNECTION));
            test(&mut machine);
        });
    }

    pub fn uri(&self) -> String {
        self.uri_at(self.sshd.port)
    }

    pub fn uri_at(&self, port: u16) -> String {
        let user = std::env::var("SANDPEN_TEST_USER").expect("the rig's user");
        format!("ssh://{user}@127.0.0.1:{port}{}/podman.sock", self.pen.root().display())
    }

    /// Writes Podman's list of connections.
    pub fn connections(&self, list: &[(&str, &str, Option<&PathBuf>)], default: Option<&str>) {
        let base = std::env::var("CONTAINERS_CONF").ok().and_then(|file| fs::read_to_string(file).ok());
        let base = base.unwrap_or_else(|| "[engine]\n".into());
        assert!(base.contains("[engine]\n"), "{base}");
        let default = default.map(|default| format!("active_service = \"{default}\"\n")).unwrap_or_default();
        let mut text = base.replace("[engine]\n", &format!("[engine]\n{default}"));
        for (name, uri, identity) in list {
            text.push_str(&format!("[engine.service_destinations.{name}]\nuri = \"{uri}\"\n"));
            if let Some(identity) = identity {
                text.push_str(&format!("identity = \"{}\"\n", identity.display()));
            }
        }
        self.pen.write("../keys/containers.conf", &text);
    }

    /// `sandpen NAME`, as on a Mac with this machine.
    pub fn command(&self, name: &str) -> Command {
        let mut command = self.pen.sandpen();
        command.env_remove("SANDPEN_SSH_AGENT").env("SSH_AUTH_SOCK", &self.agent.socket);
        command.env("CONTAINERS_CONF", self.pen.outside("keys").join("containers.conf"));
        command.args([name, "--assume-host", "macos", "--engine", "podman", "--image", IMAGE]);
        command
    }

    /// `sandpen run … -- sh -c SCRIPT`.
    pub fn sh(&self, script: &str) -> Command {
        let mut command = self.command("run");
        command.args(["--", "sh", "-c", script]);
        command
    }

    /// A guest that says "up", shows its keys when told to, and ends when its input does, with code 7.
    pub fn start(&self, options: &[&str]) -> (Running, Tunnel) {
        let mut command = self.command("run");
        command.stdin(std::process::Stdio::piped()).args(options);
        command.args(["--", "sh", "-c", "echo up; while read line; do ssh-add -l; done; exit 7"]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "up");
        let tunnel = Tunnel::of(&running);
        (running, tunnel)
    }

    /// What must hold after every failed launch (R7.6–R7.8).
    #[track_caller]
    pub fn assert_refused(&self, ran: &Ran, words: &[&str]) {
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(44), ""), "{}", ran.stderr);
        assert!(ran.stderr.starts_with("sandpen: error: "), "{}", ran.stderr);
        for word in words.iter().chain(&["`podman machine start`"]) {
            assert!(ran.stderr.contains(word), "`{word}` is missing: {}", ran.stderr);
        }
        assert!(ran.stderr.lines().any(|line| line.starts_with("hint: ")), "{}", ran.stderr);
        assert_eq!(self.pen.containers(), [""; 0], "no container was started");
        assert_eq!(self.pen.sessions().len(), 0);
    }
}

fn service(pen: &Pen) -> Running {
    let socket = pen.root().join("podman.sock");
    let mut command = pen.host_command("podman");
    command.args(["system", "service", "--time=0"]).arg(format!("unix://{}", socket.display()));
    let running = Running::start(&mut command);
    eventually("Podman's service answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    running
}

impl Drop for Machine {
    fn drop(&mut self) {
        // `kill -9` of sandpen leaves the machine's container to itself.
        for container in self.pen.containers() {
            let _ = self.pen.client().args(["rm", "--force", "--time", "0", &container]).output();
        }
    }
}

/// The tunnel of a running sandbox, as the process table shows it.
#[derive(Debug)]
pub struct Tunnel {
    pub pid: u32,
    pub command_line: String,
    pub directory: PathBuf,
    pub landing: PathBuf,
}

impl Tunnel {
    #[track_caller]
    pub fn of(running: &Running) -> Self {
        Self::find(running).expect("ssh runs as a child of sandpen")
    }

    /// Of a sandbox that is about to start.
    #[track_caller]
    pub fn opening(running: &Running) -> Self {
        let mut found = None;
        eventually("ssh runs", || {
            found = Self::find(running);
            found.is_some()
        });
        found.expect("seen")
    }

    fn find(running: &Running) -> Option<Self> {
        running.children().into_iter().find_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<String> =
                line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let forward = words.iter().skip_while(|word| *word != "-R").nth(1)?;
            let landing = PathBuf::from(forward.split(':').next()?);
            Some(Tunnel { pid, directory: landing.with_extension(""), landing, command_line: words.join(" ") })
        })
    }

    /// Neither ssh nor anything in the machine is left, soon.
    #[track_caller]
    pub fn assert_gone(&self) {
        let gone = || is_gone(self.pid) && !self.directory.exists() && !self.landing.exists();
        assert!(comes_true(Duration::from_secs(3), gone), "still there: {self:?}");
    }
}

/// Whether a process has ended, reaped or not.
pub fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('Z'))
}

/// A program of the same name in front of an engine's client. It records its arguments; `script` may answer before the real
/// client does.
pub struct Shim {
    pub directory: PathBuf,
    log: PathBuf,
}

impl Shim {
    pub fn new(pen: &Pen, name: &str, script: &str) -> Self {
        let directory = pen.outside("shim");
        let log = directory.join("log");
        let real = pen.host_command("sh").args(["-c", &format!("command -v {name}")]).ran().ok().to_owned();
        let text = format!("#!/bin/sh\necho \"$*\" >>{}\n{script}\nexec {real} \"$@\"\n", log.display());
        let shim = pen.write(format!("../shim/{name}"), &text);
        fs::set_permissions(shim, PermissionsExt::from_mode(0o755)).expect("chmod");
        pen.write("../shim/log", "");
        Shim { directory, log }
    }

    /// PATH with the shim in front.
    pub fn path(&self) -> String {
        format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", self.directory.display())
    }

    /// What it was called with, a line for each call.
    pub fn calls(&self) -> Vec<String> {
        fs::read_to_string(&self.log).expect("log").lines().map(str::to_owned).collect()
    }
}
