//! R7.6–R7.8: any failure before the tunnel is open exits with 44, quotes ssh, suggests a fix, and
//! starts no container.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::podman_machine::{CONNECTION, PodmanMachine};
use super::tunnel_process::{TunnelProcess, has_exited};
use crate::support::{RunToEnd, Running, Shim};

#[test]
fn r7_2_no_connection_or_several_without_a_default_are_fatal() {
    PodmanMachine::without_podman("", |machine| {
        let (uri, identity) = (machine.uri(), Some(&machine.sshd.identity));
        machine.connections(&[], None);
        machine.assert_refused(&machine.sh("true").finish(), &["Podman has no connection to a machine"]);
        machine.connections(&[("one", &uri, identity), ("two", &uri, identity)], None);
        let finished = machine.sh("true").finish();
        machine
            .assert_refused(&finished, &["`one`", "`two`", "none is the default", "podman system connection default"]);
        let finished = machine.sh("true").env("CONTAINER_CONNECTION", "three").finish();
        machine.assert_refused(&finished, &["env CONTAINER_CONNECTION", "`three`", "`one`"]);
        // `explain` prints the same as a warning, and succeeds.
        let finished = machine.command("explain").args(["--", "true"]).finish();
        assert!(
            finished.success().contains("none is the default") && finished.stderr.contains("none is the default"),
            "{finished:?}"
        );
        // Without the agent, sandpen does not select a connection.
        let plan = machine.command("explain").args(["--ssh-agent", "off", "--", "true"]).finish();
        assert!(plan.success().contains("podman run "), "{}", plan.stdout);
    });
}

#[test]
fn r7_6_a_list_that_fails_or_cannot_be_read_is_fatal() {
    PodmanMachine::without_podman("", |machine| {
        for (answer, words) in [
            ("echo garbage", &["cannot be read"][..]),
            ("echo '[{\"Name\":1}]'", &["cannot be read"]),
            ("echo '{}'", &["cannot be read"]),
            (
                "echo '[{\"Name\":\"m\",\"URI\":\"ssh://-oProxyCommand=touch /tmp/pen-owned@h/x\"}]'",
                &["cannot be used"],
            ),
            ("echo '[{\"Name\":\"m\",\"URI\":\"ssh://u@h;touch /tmp/pen-owned/x\"}]'", &["cannot be used"]),
            ("echo no such machine >&2; exit 125", &["could not list Podman's connections", "no such machine"]),
        ] {
            let shim = Shim::new(&machine.fixture, "podman", &format!("case \"$*\" in *list*) {answer}; exit ;; esac"));
            let finished = machine.sh("true").env("PATH", shim.path()).finish();
            machine.assert_refused(&finished, words);
            assert!(!shim.calls().iter().any(|call| call.contains("run")), "{:?}", shim.calls());
        }
        assert!(!std::path::Path::new("/tmp/pen-owned").exists());
    });
}

#[test]
fn r7_6_a_missing_key_is_named() {
    PodmanMachine::without_podman("", |machine| {
        let missing = machine.fixture.outside("keys").join("no-such-key");
        machine.connections(&[(CONNECTION, &machine.uri(), Some(&missing))], Some(CONNECTION));
        machine.assert_refused(&machine.sh("true").finish(), &["no-such-key", "does not exist"]);
    });
}

#[test]
fn r7_7_without_an_ssh_program_nothing_starts() {
    PodmanMachine::without_podman("", |machine| {
        let shim = Shim::new(&machine.fixture, "podman", "");
        let finished = machine.sh("true").env("PATH", &shim.directory).finish();
        finished.failure(44);
        assert!(
            finished.stderr.contains("cannot find `ssh` on PATH") && finished.stderr.contains("hint: install OpenSSH"),
            "{finished:?}"
        );
        // This ssh cannot be executed.
        machine.fixture.write_script("../shim/ssh", "not a program");
        let finished = machine.sh("true").env("PATH", shim.path()).finish();
        machine.assert_refused(&finished, &["the SSH tunnel cannot be started", "hint: or run without"]);
    });
}

#[test]
fn r7_7_an_sshd_that_refuses_is_quoted() {
    PodmanMachine::without_podman("", |machine| {
        // This key may not log in.
        let wrong = machine.fixture.make_key("wrong", "wrong");
        machine.connections(&[(CONNECTION, &machine.uri(), Some(&wrong))], Some(CONNECTION));
        let finished = machine.sh("true").finish();
        machine.assert_refused(&finished, &["could not be established", "ssh says: ", "Permission denied (publickey)"]);
        // ssh does not try the agent's keys instead.
        machine.fixture.agent().add_key(&machine.fixture, &machine.sshd.identity);
        machine.assert_refused(&machine.sh("true").finish(), &["Permission denied (publickey)"]);
        // No process listens at this port, as if the machine were stopped.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("port").port();
        machine.connections(&[(CONNECTION, &machine.uri_at(free), Some(&wrong))], Some(CONNECTION));
        let finished = machine.sh("true").finish();
        machine.assert_refused(&finished, &["ssh says: ", "Connection refused"]);
    });
}

#[test]
fn r7_7_a_forward_that_the_server_denies_is_quoted() {
    PodmanMachine::without_podman("AllowStreamLocalForwarding no", |machine| {
        let finished = machine.sh("true").finish();
        machine.assert_refused(&finished, &["could not be established", "ssh says: ", "forwarding failed"]);
    });
}

#[test]
fn r7_4_a_wrong_time_limit_is_named_and_nothing_starts() {
    PodmanMachine::without_podman("", |machine| {
        for wrong in ["0", "soon", "-1", "99999"] {
            let finished = machine.sh("true").env("SANDPEN_TUNNEL_TIMEOUT", wrong).finish();
            finished.failure(2);
            let named = format!("env SANDPEN_TUNNEL_TIMEOUT: `{wrong}` is not a number of seconds");
            assert!(finished.stderr.contains(&named) && finished.stderr.contains("hint: "), "{}", finished.stderr);
        }
    });
}

#[test]
fn r7_8_a_machine_that_never_answers_ends_in_time() {
    PodmanMachine::without_podman("", |machine| {
        let mute = TcpListener::bind("127.0.0.1:0").expect("a listener that never answers");
        let port = mute.local_addr().expect("port").port();
        machine.connections(&[(CONNECTION, &machine.uri_at(port), Some(&machine.sshd.identity))], Some(CONNECTION));
        let start = Instant::now();
        let finished = machine.sh("true").env("SANDPEN_TUNNEL_TIMEOUT", "1").finish();
        let took = start.elapsed();
        machine.assert_refused(&finished, &["ssh says: ", "timed out"]);
        assert!(took < Duration::from_secs(15), "{took:?}");
    });
}

#[test]
fn r7_4_r7_8_a_socket_that_does_not_appear_ends_in_time_and_kills_ssh() {
    // The login works, but the script that prepares the socket never runs.
    PodmanMachine::without_podman("ForceCommand cat >/dev/null", |machine| {
        let mut running = Running::start(machine.sh("true").env("SANDPEN_TUNNEL_TIMEOUT", "1"));
        let tunnel = TunnelProcess::opening(&running);
        let finished = running.finish();
        // sshd never removes the socket, and the script that would has not run; a launch an hour
        // later would remove it.
        let _ = std::fs::remove_file(&tunnel.landing);
        machine.assert_refused(&finished, &["was not ready within 1 s"]);
        assert!(has_exited(tunnel.pid), "the tunnel process still runs");
    });
}

#[test]
fn r7_9_signals_end_a_launch_that_waits_for_its_machine() {
    for (which, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        PodmanMachine::without_podman("ForceCommand cat >/dev/null", |machine| {
            let mut running = Running::start(&mut machine.sh("true"));
            let tunnel = TunnelProcess::opening(&running);
            let start = Instant::now();
            running.signal(which);
            let finished = running.finish();
            let _ = std::fs::remove_file(&tunnel.landing);
            assert!(has_exited(tunnel.pid), "R7.9: {tunnel:?}");
            assert_eq!((finished.code, finished.stderr.as_str()), (Some(code), ""));
            assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
            assert_eq!((machine.fixture.containers().len(), machine.fixture.sessions().len()), (0, 0));
        });
    }
}
