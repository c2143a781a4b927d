//! A private Docker daemon is killed or stopped while a sandbox runs.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::support::{
    Engine, Fixture, RunToEnd, Running, TIMEOUT, eventually, holds_within, is_root_or_skip, is_running, signal,
};

const IMAGE: &str = "localhost/sandpen-busybox:latest";

struct Daemon<'a> {
    fixture: &'a Fixture,
    process: Child,
}

impl<'a> Daemon<'a> {
    fn start(fixture: &'a Fixture) -> Self {
        let root = &fixture.root;
        let log = File::create(root.join("dockerd.log")).expect("a log");
        let option = |name: &str, file: &str| format!("--{name}={}", root.join(file).display());
        // These files name the process of a killed daemon, which init may not have reaped yet.
        for file in ["pid", "exec/containerd/containerd.pid"] {
            let _ = std::fs::remove_file(root.join(file));
        }
        // The daemon runs in a separate network namespace: without a bridge, it would remove the
        // host's docker0 at its start, which belongs to another daemon.
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "dockerd"]);
        command.args([option("data-root", "data"), option("exec-root", "exec"), option("pidfile", "pid")]);
        command.args([&format!("--host={}", host(fixture)), "--iptables=false", "--bridge=none"]);
        let streams = (log.try_clone().expect("a log"), log);
        let process = command.stdin(Stdio::null()).stdout(streams.0).stderr(streams.1).spawn().expect("dockerd");
        let daemon = Daemon { fixture, process };
        eventually("the daemon answers", || {
            daemon.docker(&["info"]).output().is_ok_and(|output| output.status.success())
        });
        daemon
    }

    fn docker(&self, arguments: &[&str]) -> Command {
        let mut command = self.fixture.host_command("docker");
        command.env("DOCKER_HOST", host(self.fixture)).args(arguments);
        command
    }

    fn load_image(&self) {
        let mut save = self.fixture.host_command("docker");
        let mut save = save.args(["save", IMAGE]).stdout(Stdio::piped()).spawn().expect("docker save");
        let loaded = self.docker(&["load"]).stdin(save.stdout.take().expect("a pipe")).finish();
        loaded.success();
        save.wait().expect("wait");
    }

    fn ended(&mut self) -> bool {
        holds_within(TIMEOUT, || self.process.try_wait().expect("wait").is_some())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.process.id(), Signal::TERM);
            if !self.ended() {
                let _ = self.process.kill();
                let _ = self.process.wait();
            }
        }
        // A killed daemon leaves its mounts.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| Path::new(point).starts_with(&self.fixture.root)) {
            let _ = Command::new("umount").arg("--lazy").arg(point).stderr(Stdio::null()).status();
        }
    }
}

fn host(fixture: &Fixture) -> String {
    format!("unix://{}", fixture.root.join("docker.sock").display())
}

/// Each row has a fault, its signal, the exit code, and texts of stderr.
const TABLE: &[(&str, Signal, i32, &[&str])] = &[
    (
        "the daemon is killed",
        Signal::KILL,
        44,
        &["docker lost the sandbox", "hint: its daemon may have been stopped or restarted"],
    ),
    // A daemon that is stopped sends SIGTERM to its containers first.
    ("the daemon is stopped, or restarted", Signal::TERM, 143, &[]),
];

#[test]
fn a_daemon_that_ends_takes_the_sandbox_along() {
    if !is_root_or_skip("a private Docker daemon") {
        return;
    }
    Fixture::on(Engine::Docker, |fixture| {
        Daemon::start(fixture).load_image();
        for (fault, which, code, words) in TABLE {
            let mut daemon = Daemon::start(fixture);
            let mark = format!("sleep 4{}", std::process::id());
            let mut command = fixture.run_image(IMAGE);
            command.args(["--network", "off"]);
            command.args(["--", "sh", "-c", &format!("echo ready; exec {mark}")]).env("DOCKER_HOST", host(fixture));
            let mut running = Running::start(&mut command);
            assert_eq!(running.line(), "ready");
            signal(daemon.process.id(), *which);
            let finished = running.finish();
            assert_eq!(finished.code, Some(*code), "{fault}: {}", finished.stderr);
            assert!(words.iter().all(|word| finished.stderr.contains(word)), "{fault}: {}", finished.stderr);
            assert!(daemon.ended(), "{fault}");
            assert!(fixture.sessions().is_empty(), "{fault}");
            eventually("the guest is gone", || !is_running(&mark));
            // The next daemon removes the remaining container.
            drop(daemon);
            let daemon = Daemon::start(fixture);
            eventually("no container is left", || {
                daemon.docker(&["ps", "--all", "--quiet"]).finish().success().is_empty()
            });
        }
    });
}

#[test]
fn a_daemon_that_does_not_run_fails_the_launch() {
    Fixture::on(Engine::Docker, |fixture| {
        let mut command = fixture.run_image(IMAGE);
        command.args(["--", "true"]);
        let finished = Running::start(command.env("DOCKER_HOST", host(fixture))).finish();
        assert!(finished.code == Some(44) && finished.stderr.contains("hint: "), "{finished:?}");
        assert!(fixture.sessions().is_empty());
    });
}
