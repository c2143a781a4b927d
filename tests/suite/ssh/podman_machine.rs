//! Simulates a Podman machine: a rootless Podman behind a real sshd.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::sshd::Sshd;
use super::tunnel_process::TunnelProcess;
use crate::support::{Engine, Finished, Fixture, Running, eventually};

pub const CONNECTION: &str = "pen-machine";

/// sshd and Podman belong to the fixture's user. As in a real machine, the user inside has the uid
/// of the user outside, so shared files have the same owner.
pub struct PodmanMachine {
    pub fixture: Fixture,
    pub sshd: Sshd,
    _service: Option<Running>,
}

impl PodmanMachine {
    pub fn on(test: impl FnOnce(&mut PodmanMachine)) {
        Self::with("", true, test);
    }

    /// Runs a test without Podman behind sshd, for launches that must fail before they need it.
    pub fn without_podman(sshd: &str, test: impl FnOnce(&mut PodmanMachine)) {
        Self::with(sshd, false, test);
    }

    /// `sshd` holds further lines of sshd's configuration.
    pub fn with(sshd: &str, podman: bool, test: impl FnOnce(&mut PodmanMachine)) {
        if !Engine::PodmanRootless.is_available() {
            return;
        }
        let fixture = Fixture::new().with_engine(Engine::PodmanRootless).with_agent();
        let sshd = Sshd::start(&fixture, sshd);
        // Podman's client checks the machine's host key as well.
        fixture.write(".ssh/known_hosts", &sshd.known);
        let service = podman.then(|| start_service(&fixture));
        let mut machine = PodmanMachine { fixture, sshd, _service: service };
        machine.connections(&[(CONNECTION, &machine.uri(), Some(&machine.sshd.identity))], Some(CONNECTION));
        test(&mut machine);
    }

    pub fn uri(&self) -> String {
        self.uri_at(self.sshd.port)
    }

    pub fn uri_at(&self, port: u16) -> String {
        format!("ssh://{}@127.0.0.1:{port}{}/podman.sock", self.fixture.user_name(), self.fixture.root.display())
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
        self.fixture.write("../keys/containers.conf", &text);
    }

    /// Returns the command `sandpen NAME`, as on a Mac with this machine.
    pub fn command(&self, name: &str) -> Command {
        let mut command = self.fixture.command(name);
        command.env("CONTAINERS_CONF", self.fixture.outside("keys").join("containers.conf"));
        // R7 to the letter: the tunnel leads to the agent itself.
        command.env("SANDBOX_SSH_AGENT", "raw").args(["--assume-host", "macos"]);
        command
    }

    /// Returns the command `sandpen run … -- sh -c SCRIPT`.
    pub fn sh(&self, script: &str) -> Command {
        let mut command = self.command("run");
        command.args(["--", "sh", "-c", script]);
        command
    }

    /// Starts a guest that prints "up", lists its keys for every line of input, and exits with code
    /// 7 at the end of its input.
    pub fn start(&self, options: &[&str]) -> (Running, TunnelProcess) {
        let mut command = self.command("run");
        command.stdin(std::process::Stdio::piped()).args(options);
        command.args(["--", "sh", "-c", "echo up; while read line; do ssh-add -l; done; exit 7"]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "up");
        let tunnel = TunnelProcess::of(&running);
        (running, tunnel)
    }

    /// Asserts the conditions that hold after every failed launch (R7.6–R7.8).
    #[track_caller]
    pub fn assert_refused(&self, finished: &Finished, messages: &[&str]) {
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(44), ""), "{}", finished.stderr);
        assert!(finished.stderr.starts_with("sandpen: error: "), "{}", finished.stderr);
        for message in messages.iter().chain(&["`podman machine start`"]) {
            assert!(finished.stderr.contains(message), "`{message}` is missing: {}", finished.stderr);
        }
        assert!(finished.stderr.lines().any(|line| line.starts_with("hint: ")), "{}", finished.stderr);
        assert_eq!(self.fixture.containers(), [""; 0], "a container was started");
        assert_eq!(self.fixture.sessions().len(), 0);
    }
}

fn start_service(fixture: &Fixture) -> Running {
    let socket = fixture.root.join("podman.sock");
    let mut command = fixture.host_command("podman");
    command.args(["system", "service", "--time=0"]).arg(format!("unix://{}", socket.display()));
    let running = Running::start(&mut command);
    eventually("Podman's service answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    running
}

impl Drop for PodmanMachine {
    fn drop(&mut self) {
        // `kill -9` of sandpen leaves the container in the machine running.
        for container in self.fixture.containers() {
            let _ = self.fixture.client().args(["rm", "--force", "--time", "0", &container]).output();
        }
    }
}
