//! R6: tests Docker Desktop and similar products. The daemon and the socket in its machine are
//! real: this machine is the one that dockerd runs on. Only the answer to `docker info` is
//! replaced.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::support::{
    Agent, Engine, Finished, Fixture, IMAGE, KEY_COMMENT, RunToEnd, Running, Shim, eventually, is_root_or_skip,
};

const SOCKET: &str = "/run/host-services/ssh-auth.sock";

/// All tests use the same path for the socket, so only one may run at a time.
struct Turn {
    _inside: MutexGuard<'static, ()>,
    _file: File,
}

fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let inside = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::create("/var/tmp/sandpen-host-services.lock").expect("lock file");
    flock(&file, FlockOperation::LockExclusive).expect("lock");
    Turn { _inside: inside, _file: file }
}

/// Provides the host's agent in the machine, as Docker Desktop does: the socket belongs to root and
/// is closed to others.
struct Service {
    _relay: Running,
}

impl Service {
    fn start(agent: &Agent) -> Self {
        fs::create_dir_all("/run/host-services").expect("directory");
        let listen = format!("UNIX-LISTEN:{SOCKET},fork,mode=0660,unlink-early");
        let connect = format!("UNIX-CONNECT:{}", agent.socket.display());
        let relay = Running::start(Command::new("socat").args([listen, connect]));
        eventually("the service listens", || Path::new(SOCKET).exists());
        Service { _relay: relay }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = fs::remove_file(SOCKET);
        let _ = fs::remove_dir("/run/host-services");
    }
}

/// Simulates a Mac whose `docker info` returns the given system, used by an ordinary user.
struct Mac<'a> {
    fixture: &'a Fixture,
    shim: Shim,
    _turn: Turn,
}

fn mac(system: &str, test: impl FnOnce(&Mac)) {
    if !is_root_or_skip("a socket in /run/host-services") {
        return;
    }
    Fixture::on_docker_as_ordinary_user(Fixture::with_agent, |fixture| {
        let turn = turn();
        let answer = format!("case $1 in info) echo '{system}'; exit ;; esac");
        test(&Mac { fixture, shim: Shim::new(fixture, "docker", &answer), _turn: turn });
    });
}

impl Mac<'_> {
    fn command(&self, name: &str, host: &str) -> Command {
        let mut command = self.fixture.command(name);
        command.env("PATH", self.shim.path()).env("SANDBOX_SSH_AGENT", "raw").args(["--assume-host", host]);
        command
    }

    fn run(&self, options: &[&str]) -> Finished {
        let script = "id -u; echo ${SSH_AUTH_SOCK-unset}; ssh-add -l 2>/dev/null | cut -d' ' -f3-; ls -d /ssh-agent 2>/dev/null; true";
        self.command("run", "macos").args(options).args(["--", "sh", "-c", script]).finish()
    }

    /// R6.2: asserts that there is one warning with these texts, and that the sandbox starts
    /// without the agent.
    #[track_caller]
    fn assert_skipped(&self, finished: &Finished, words: &[&str]) {
        assert_eq!(finished.success(), "0\nunset", "{}", finished.stderr);
        assert_eq!(finished.stderr.matches("sandpen: warning: ").count(), 1, "{}", finished.stderr);
        for word in words.iter().chain(&["sandpen: warning: SSH agent forwarding is unavailable"]) {
            assert!(finished.stderr.contains(word), "`{word}` is missing: {}", finished.stderr);
        }
    }
}

#[test]
fn r6_1_docker_desktops_socket_is_used() {
    mac("Docker Desktop", |mac| {
        let _service = Service::start(mac.fixture.agent());
        let finished = mac.run(&["-v"]);
        assert_eq!(
            finished.success(),
            format!("0\n/ssh-agent\n{KEY_COMMENT} (ED25519)\n/ssh-agent"),
            "{}",
            finished.stderr
        );
        assert!(finished.stderr.contains(&format!("--volume {SOCKET}:/ssh-agent ")), "{}", finished.stderr);
        // The first check asked the client; the second ran the sandbox's own image, with R2.1's
        // variable.
        let calls = mac.shim.calls();
        assert!(calls.iter().any(|call| call.starts_with("info ")), "{calls:?}");
        let probe = calls.iter().find(|call| call.contains("target=/probe")).expect("the probe");
        for word in [SOCKET, IMAGE, "--env GIT_DISCOVERY_ACROSS_FILESYSTEM=1", "--rm", "test"] {
            assert!(probe.contains(word), "{probe}");
        }
        assert!(!calls.iter().any(|call| call.contains("alpine") || call.starts_with("pull")), "{calls:?}");
    });
}

#[test]
fn r6_1_a_guest_that_is_not_root_can_use_it() {
    mac("Docker Desktop 4.30.0 (linux/arm64)", |mac| {
        let _service = Service::start(mac.fixture.agent());
        let finished = mac.run(&["--user", "host"]);
        let expected = format!("{}\n/ssh-agent\n{KEY_COMMENT} (ED25519)\n/ssh-agent", mac.fixture.uid);
        assert_eq!(finished.success(), expected, "{}", finished.stderr);
        let calls = mac.shim.calls();
        let probe = calls.iter().find(|call| call.contains("target=/probe")).expect("the probe");
        assert!(
            probe.contains(&format!("--user {}:{}", mac.fixture.uid, mac.fixture.gid)),
            "the probe must run as the guest's user: {probe}"
        );
    });
}

#[test]
fn r6_1_orbstack_has_the_same_socket() {
    mac("OrbStack", |mac| {
        let _service = Service::start(mac.fixture.agent());
        assert!(mac.run(&[]).success().contains(KEY_COMMENT));
    });
}

#[test]
fn r6_2_without_the_socket_there_is_a_warning_and_a_sandbox() {
    mac("Docker Desktop", |mac| {
        assert!(!Path::new(SOCKET).exists());
        let finished = mac.run(&[]);
        mac.assert_skipped(&finished, &[SOCKET, "`Docker Desktop`"]);
        assert!(!Path::new(SOCKET).exists(), "the check created the socket's path");
        // A socket that the guest may not open counts as missing.
        let service = Service::start(mac.fixture.agent());
        std::os::unix::fs::chown(SOCKET, Some(12345), Some(12345)).expect("chown");
        fs::set_permissions(SOCKET, PermissionsExt::from_mode(0o600)).expect("chmod");
        let finished = mac.run(&[]);
        drop(service);
        mac.assert_skipped(&finished, &[SOCKET]);
    });
}

#[test]
fn r6_2_other_engines_are_named() {
    mac("Ubuntu 24.04.2 LTS", |mac| {
        let service = Service::start(mac.fixture.agent());
        // A socket exists, but both checks must hold.
        let finished = mac.run(&[]);
        mac.assert_skipped(&finished, &["`Ubuntu 24.04.2 LTS`", "Docker Desktop and OrbStack"]);
        drop(service);
        for (place, name) in [(".colima/default", "Colima"), (".lima/docker/sock", "Lima"), (".rd", "Rancher Desktop")]
        {
            let directory = mac.fixture.home.join(place);
            fs::create_dir_all(&directory).expect("directory");
            let socket = directory.join("docker.sock");
            std::os::unix::fs::symlink("/var/run/docker.sock", &socket).expect("link");
            let mut command = mac.command("run", "macos");
            command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
            let finished = command.args(["--", "sh", "-c", "id -u; echo ${SSH_AUTH_SOCK-unset}"]).finish();
            mac.assert_skipped(&finished, &[&format!("this Docker is {name}")]);
        }
    });
}

#[test]
fn r6_2_a_docker_that_does_not_say_what_it_is() {
    mac("", |mac| {
        let finished = mac.run(&[]);
        mac.assert_skipped(&finished, &["an unidentified engine"]);
    });
}

#[test]
fn r6_explain_asks_and_starts_nothing() {
    mac("Docker Desktop", |mac| {
        let plan = mac.command("explain", "macos").args(["--format", "json", "--", "true"]).finish().json();
        assert_eq!((&plan["ssh"]["state"], &plan["ssh"]["strategy"]), (&"forwarded".into(), &"host-service".into()));
        assert!(plan["ssh"]["pending"].to_string().contains(SOCKET), "{}", plan["ssh"]);
        assert!(!mac.shim.calls().iter().any(|call| call.starts_with("run")), "{:?}", mac.shim.calls());
    });
}

#[test]
fn r4_1_off_asks_docker_nothing() {
    mac("Docker Desktop", |mac| {
        let _service = Service::start(mac.fixture.agent());
        let finished = mac.run(&["--ssh-agent", "off"]);
        assert_eq!((finished.success(), finished.stderr.as_str()), ("0\nunset", ""));
        assert!(!mac.shim.calls().iter().any(|call| call.contains("info") || call.contains("probe")));
    });
}

#[test]
fn r5_docker_desktop_on_linux_uses_its_own_socket() {
    mac("Docker Desktop", |mac| {
        let _service = Service::start(mac.fixture.agent());
        let directory = mac.fixture.home.join(".docker/desktop");
        fs::create_dir_all(&directory).expect("directory");
        let socket = directory.join("docker.sock");
        std::os::unix::fs::symlink("/var/run/docker.sock", &socket).expect("link");
        let mut command = mac.command("run", "linux");
        command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
        let finished = command.args(["-v", "--", "sh", "-c", "ssh-add -l"]).finish();
        assert!(finished.success().contains(KEY_COMMENT), "{}", finished.stderr);
        assert!(finished.stderr.contains(&format!("--volume {SOCKET}:/ssh-agent")), "{}", finished.stderr);
    });
}

#[test]
fn r6_root_uses_it_as_well() {
    if !is_root_or_skip("a socket in /run/host-services") {
        return;
    }
    Fixture::on_prepared(Engine::Docker, Fixture::with_agent, |fixture| {
        let _turn = turn();
        let shim = Shim::new(fixture, "docker", "case $1 in info) echo Docker Desktop; exit ;; esac");
        let _service = Service::start(fixture.agent());
        let mut command = fixture.run();
        command.env("PATH", shim.path()).args(["--assume-host", "macos", "--user", "host"]);
        assert!(command.args(["--", "ssh-add", "-l"]).finish().success().contains(KEY_COMMENT));
    });
}
