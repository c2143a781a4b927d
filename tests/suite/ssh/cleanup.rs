//! R7.9–R7.11: the tunnel is closed exactly once, however the sandbox ends, and does not delay the
//! exit.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::podman_machine::PodmanMachine;
use super::tunnel_process::{TunnelProcess, has_exited};
use crate::support::pty::children;
use crate::support::{KEY_COMMENT, Running, Shim, eventually, signal};

/// An exit that waits for a machine takes longer than this, even if the test machine is idle; one
/// that does not is faster, even if it is busy.
const PROMPT: Duration = Duration::from_secs(15);

#[test]
fn r7_9_r7_11_a_normal_end_removes_tunnel_and_socket() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        assert!(tunnel.directory.exists(), "{tunnel:?}");
        running.write("list\n");
        assert!(running.line().contains(KEY_COMMENT));
        running.close_stdin();
        let finished = running.finish();
        finished.failure(7);
        // The tunnel must be gone before sandpen exits, not just soon after.
        assert!(has_exited(tunnel.pid) && !tunnel.directory.exists() && !tunnel.landing.exists(), "{tunnel:?}");
        assert!(!finished.stderr.contains("warning"), "{}", finished.stderr);
    });
}

fn ends_by(signals: &[Signal], code: i32) {
    PodmanMachine::on(|machine| {
        // The guest ends by the signal, which the engine's init forwards.
        let (mut running, tunnel) = machine.start(&[]);
        for which in signals {
            running.signal(*which);
        }
        let finished = running.finish();
        finished.failure(code);
        tunnel.assert_gone();
        assert!(!finished.stderr.contains("tunnel"), "there must be no message about the tunnel: {}", finished.stderr);
        eventually("the container is removed", || machine.fixture.containers().is_empty());
        assert_eq!(machine.fixture.sessions().len(), 0);
    });
}

#[test]
fn r7_9_sigint_ends_the_tunnel() {
    ends_by(&[Signal::INT], 130);
}

#[test]
fn r7_9_sigterm_ends_the_tunnel() {
    ends_by(&[Signal::TERM], 143);
}

#[test]
fn r7_9_sighup_ends_the_tunnel() {
    ends_by(&[Signal::HUP], 129);
}

#[test]
fn r7_10_five_signals_in_a_row_clean_up_once() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        for which in [Signal::TERM, Signal::INT, Signal::TERM, Signal::HUP, Signal::TERM] {
            running.signal(which);
        }
        let finished = running.finish();
        assert!(matches!(finished.code, Some(129 | 130 | 143)), "{finished:?}");
        tunnel.assert_gone();
        assert!(!finished.stderr.contains("panicked") && !finished.stderr.contains("tunnel"), "{}", finished.stderr);
    });
}

#[test]
fn r7_11_kill_9_of_sandpen_leaves_nothing_in_the_machine() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        running.signal(Signal::KILL);
        assert_eq!(running.finish().code, None);
        tunnel.assert_gone();
    });
}

#[test]
fn r7_11_a_hanging_machine_does_not_delay_the_exit() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        let session = session_of(machine, &tunnel);
        signal(session, Signal::STOP);
        let start = Instant::now();
        running.close_stdin();
        let finished = running.finish();
        let took = start.elapsed();
        signal(session, Signal::CONT);
        finished.failure(7);
        assert!(took < PROMPT, "the exit, with the end of the container, took {took:?}");
        assert!(has_exited(tunnel.pid));
        // The resumed process in the machine cleans up itself.
        tunnel.assert_gone();
    });
}

/// Neither the container nor the tunnel can be ended in a machine whose sshd hangs.
#[test]
fn r7_11_sigterm_with_a_hanging_sshd_ends_sandpen_in_time() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        let frozen = Frozen::with_descendants(machine.sshd.process.pid());
        let start = Instant::now();
        running.signal(Signal::TERM);
        let finished = running.finish();
        let took = start.elapsed();
        drop(frozen);
        assert!(took < PROMPT, "the exit took {took:?}");
        let expected = "podman does not answer: the container `sandpen-";
        assert!(finished.stderr.contains(expected), "{took:?}: {finished:?}");
        let mut ps = machine.fixture.sandpen(["ps"]);
        ps.env("CONTAINERS_CONF", machine.fixture.outside("keys").join("containers.conf"));
        Running::start(&mut ps).finish().success();
        assert_eq!(machine.fixture.sessions().len(), 0);
        eventually("the container is gone", || machine.fixture.containers().is_empty());
        tunnel.assert_gone();
    });
}

#[test]
fn r7_11_a_stopped_machine_does_not_delay_the_exit() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        let sessions = sessions(machine);
        let start = Instant::now();
        signal(machine.sshd.process.pid(), Signal::KILL);
        for session in sessions {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(session as i32).expect("pid"),
                Signal::KILL,
            );
        }
        running.close_stdin();
        let finished = running.finish();
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
        assert!(finished.code.is_some_and(|code| code != 0) && has_exited(tunnel.pid), "{finished:?}");
        // Podman's client ends at the same moment, so sandpen may or may not report the end of the
        // tunnel.
        assert!(finished.stderr.matches("has ended").count() <= 1, "{}", finished.stderr);
        assert!(!finished.stderr.contains("is missing and could not be pulled"), "{}", finished.stderr);
        assert_eq!(machine.fixture.sessions().len(), 0);
    });
}

#[test]
fn r7_a_tunnel_that_dies_is_named_once_and_the_guest_goes_on() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        signal(tunnel.pid, Signal::KILL);
        eventually("the machine cleans up", || !tunnel.directory.exists());
        running.write("list\nlist\n");
        running.close_stdin();
        let finished = running.finish();
        assert_eq!(finished.code, Some(7), "the guest must end by itself: {}", finished.stderr);
        assert!(!finished.stdout.contains(KEY_COMMENT), "{}", finished.stdout);
        let warning = "sandpen: warning: the SSH tunnel into the Podman machine has ended";
        assert_eq!(finished.stderr.matches(warning).count(), 1, "{}", finished.stderr);
    });
}

#[test]
fn r7_an_agent_that_dies_leaves_the_guest_running() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        signal(machine.fixture.agent().process.pid(), Signal::KILL);
        eventually("the agent is gone", || has_exited(machine.fixture.agent().process.pid()));
        running.write("list\n");
        running.close_stdin();
        let finished = running.finish();
        assert_eq!((finished.code, finished.stdout.contains(KEY_COMMENT)), (Some(7), false), "{}", finished.stderr);
        tunnel.assert_gone();
    });
}

#[test]
fn r7_9_a_container_that_does_not_start_ends_the_tunnel() {
    PodmanMachine::on(|machine| {
        let shim = Shim::new(&machine.fixture, "podman", "case \"$*\" in *' run '*) sleep 0.3; exit 125 ;; esac");
        let mut command = machine.sh("true");
        let mut running = Running::start(command.env("PATH", shim.path()).stdin(Stdio::null()));
        let tunnel = TunnelProcess::opening(&running);
        assert_eq!(running.finish().code, Some(44));
        tunnel.assert_gone();
    });
}

/// Stopped processes, which are resumed when it is dropped.
struct Frozen(Vec<u32>);

impl Frozen {
    fn with_descendants(process: u32) -> Self {
        let mut found = vec![process];
        let mut next = 0;
        while let Some(process) = found.get(next).copied() {
            signal(process, Signal::STOP);
            found.extend(children(process));
            next += 1;
        }
        Frozen(found)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.0 {
            signal(*process, Signal::CONT);
        }
    }
}

/// Returns the processes that sshd started, one for each connection.
fn sessions(machine: &PodmanMachine) -> Vec<u32> {
    machine.sshd.process.children()
}

/// Returns the process of sshd that serves the tunnel: its descendant owns the directory.
fn session_of(machine: &PodmanMachine, tunnel: &TunnelProcess) -> u32 {
    let owner = fs::read_to_string(tunnel.directory.join("owner")).expect("owner");
    let mut pid: u32 = owner.trim().parse().expect("a pid");
    while pid > 1 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).and_then(|pid| pid.parse().ok());
        let parent = parent.expect("a parent");
        if parent == machine.sshd.process.pid() {
            return pid;
        }
        pid = parent;
    }
    panic!("no process of sshd above {owner}");
}
