//! An engine stops answering while a sandbox runs: a relay before Docker's daemon, or before a
//! private service of Podman, is stopped with SIGSTOP. A service that is stopped itself may hold a
//! lock that other tests need.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::{Engine, Finished, Fixture, RunToEnd, Running, eventually, is_running};

/// The most time from SIGTERM, or from the guest's end, to the exit of sandpen.
const EXIT_LIMIT: Duration = Duration::from_secs(15);

/// A relay between the engine's client and the engine.
struct Relay<'a> {
    fixture: &'a Fixture,
    /// Leads a process group with one process for each connection.
    process: Child,
    socket: PathBuf,
    _podman: Option<Running>,
}

impl<'a> Relay<'a> {
    fn start(fixture: &'a Fixture) -> Self {
        let socket = fixture.root.join("relay.sock");
        let (engine, podman) = if fixture.engine().flag() == "docker" {
            (PathBuf::from("/var/run/docker.sock"), None)
        } else {
            let engine = fixture.root.join("podman.sock");
            let mut service = fixture.host_command("podman");
            service.args(["system", "service", "--time=0"]).arg(format!("unix://{}", engine.display()));
            (engine, Some(Running::start(&mut service)))
        };
        eventually("the engine answers", || UnixStream::connect(&engine).is_ok());
        let mut relay = fixture.host_command("socat");
        // A client closes its half of a connection long before the other half ends.
        relay.args(["-t", "3600"]).arg(format!("UNIX-LISTEN:{},fork", socket.display()));
        relay.arg(format!("UNIX-CONNECT:{}", engine.display()));
        let process = relay.process_group(0).stderr(Stdio::null()).spawn().expect("the relay starts");
        let relay = Relay { fixture, process, socket, _podman: podman };
        eventually("the relay answers", || UnixStream::connect(&relay.socket).is_ok());
        relay
    }

    /// Lets a command of sandpen use the socket.
    fn with(&self, mut command: Command) -> Command {
        let variable = if self.fixture.engine().flag() == "docker" { "DOCKER_HOST" } else { "CONTAINER_HOST" };
        command.env(variable, format!("unix://{}", self.socket.display()));
        command
    }

    fn signal(&self, which: Signal) {
        let group = Pid::from_raw(self.process.id().cast_signed()).expect("a pid");
        kill_process_group(group, which).expect("the relay runs");
    }

    fn sandpen(&self, name: &str) -> Finished {
        Running::start(&mut self.with(self.fixture.sandpen([name]))).finish()
    }
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}

/// Waits for the exit of sandpen, and asserts that it was in time and that it told what is left.
#[track_caller]
fn finish_in_time(fixture: &Fixture, running: &mut Running, since: Instant) -> Finished {
    let finished = running.finish();
    let took = since.elapsed();
    assert!(took < EXIT_LIMIT, "the exit took {took:?}: {}", finished.stderr);
    let engine = fixture.engine().flag();
    let expected = format!("sandpen: warning: {engine} does not answer: the container `sandpen-");
    assert_eq!(finished.stderr.matches(&expected).count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains("may still exist; the next sandpen command removes it\n"), "{}", finished.stderr);
    assert_eq!(fixture.sessions().len(), 1, "the next command finds the container by the session's directory");
    finished
}

#[track_caller]
fn assert_nothing_left(fixture: &Fixture) {
    assert_eq!(fixture.sessions(), Vec::<PathBuf>::new());
    eventually("no container is left", || fixture.containers().is_empty());
}

/// `options` come before the guest's command.
fn sigterm_ends_sandpen_in_time(fixture: &Fixture, options: &[&str]) {
    let relay = Relay::start(fixture);
    let mark = format!("sleep 5{}.{}", std::process::id(), relay.process.id());
    let script = format!("trap '' TERM HUP; echo ready; exec {mark}");
    let mut command = relay.with(fixture.run());
    let mut running = Running::start(command.args(options).args(["--", "sh", "-c", &script]));
    assert_eq!(running.line(), "ready");
    relay.signal(Signal::STOP);
    let since = Instant::now();
    running.signal(Signal::TERM);
    assert_eq!(finish_in_time(fixture, &mut running, since).code, Some(137));
    relay.signal(Signal::CONT);
    relay.sandpen("ps").success();
    assert_nothing_left(fixture);
    eventually("the guest is gone", || !is_running(&mark));
}

fn the_end_of_the_guest_ends_sandpen_in_time(fixture: &Fixture) {
    let relay = Relay::start(fixture);
    let mut command = relay.with(fixture.run());
    let script = "echo ready; while [ ! -e go ]; do sleep 0.1; done; exit 7";
    let mut running = Running::start(command.args(["--", "sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    relay.signal(Signal::STOP);
    let since = Instant::now();
    fixture.write("project/go", "");
    assert_eq!(finish_in_time(fixture, &mut running, since).code, Some(7));
    let pruned = relay.sandpen("prune");
    assert_eq!(pruned.code, Some(0), "{pruned:?}");
    assert!(pruned.stderr.contains("does not answer: the sandbox `"), "{}", pruned.stderr);
    assert_eq!(fixture.sessions().len(), 1);
    relay.signal(Signal::CONT);
    relay.with(fixture.run()).args(["--", "true"]).finish().success();
    assert_nothing_left(fixture);
}

/// A pager that does not read holds the client up after the guest's end, but the engine answers.
fn a_reader_that_is_slow_gets_all_output(fixture: &Fixture) {
    let mut command = fixture.run();
    let script = "\"$@\" | { until [ -e ended ]; do sleep 0.1; done; sleep 8; wc -c; }";
    let guest = "head -c 150000 /dev/zero; touch ended";
    command.args(["--", "sh", "-c", guest]);
    let mut shell = Command::new("/bin/sh");
    shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(&fixture.project).args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    assert_eq!(Running::start(&mut shell).finish().success(), "150000");
}

#[test]
fn sigterm_ends_sandpen_in_time_docker() {
    Fixture::on(Engine::Docker, |fixture| sigterm_ends_sandpen_in_time(fixture, &[]));
}

#[test]
fn sigterm_ends_sandpen_in_time_podman() {
    Fixture::on(Engine::PodmanRootless, |fixture| sigterm_ends_sandpen_in_time(fixture, &[]));
}

/// The proxy runs in a second container, which is to be removed, too.
#[test]
fn sigterm_ends_sandpen_and_its_proxy_in_time_docker() {
    let proxy = "socat TCP-LISTEN:8877,fork,reuseaddr,bind=127.0.0.1 PIPE";
    Fixture::on(Engine::Docker, |fixture| sigterm_ends_sandpen_in_time(fixture, &["--proxy-command", proxy]));
}

#[test]
fn the_end_of_the_guest_ends_sandpen_in_time_docker() {
    Fixture::on(Engine::Docker, the_end_of_the_guest_ends_sandpen_in_time);
}

#[test]
fn the_end_of_the_guest_ends_sandpen_in_time_podman() {
    Fixture::on(Engine::PodmanRootless, the_end_of_the_guest_ends_sandpen_in_time);
}

#[test]
fn a_reader_that_is_slow_gets_all_output_docker() {
    Fixture::on(Engine::Docker, a_reader_that_is_slow_gets_all_output);
}
