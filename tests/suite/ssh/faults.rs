//! R7.6–R7.8: whatever goes wrong before the tunnel stands is exit 44 with ssh's own words and the command that helps, and no
//! container is started.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::rig::{CONNECTION, Machine, Shim, Tunnel, is_gone, keygen};
use crate::support::{RunToEnd, Running};

#[test]
fn r7_2_no_connection_or_several_without_a_default_are_fatal() {
    Machine::without_podman("", |machine| {
        let (uri, identity) = (machine.uri(), Some(&machine.sshd.identity));
        machine.connections(&[], None);
        machine.assert_refused(&machine.sh("true").ran(), &["Podman has no connection to a machine"]);
        machine.connections(&[("one", &uri, identity), ("two", &uri, identity)], None);
        let ran = machine.sh("true").ran();
        machine.assert_refused(&ran, &["`one`", "`two`", "none is the default", "podman system connection default"]);
        let ran = machine.sh("true").env("CONTAINER_CONNECTION", "three").ran();
        machine.assert_refused(&ran, &["env CONTAINER_CONNECTION", "`three`", "`one`"]);
        // `explain` says the same as a warning, and is not stopped by it.
        let ran = machine.command("explain").args(["--", "true"]).ran();
        assert!(ran.ok().contains("none is the default") && ran.stderr.contains("none is the default"), "{ran:?}");
        // Without the agent, Podman's connections are Podman's own business.
        let plan = machine.command("explain").args(["--ssh-agent", "off", "--", "true"]).ran();
        assert!(plan.ok().contains("podman run "), "{}", plan.stdout);
    });
}

#[test]
fn r7_6_a_list_that_fails_or_cannot_be_read_is_fatal() {
    Machine::without_podman("", |machine| {
        for (answer, words) in [
            ("echo garbage", &["cannot be read"][..]),
            ("echo '[{\"Name\":1}]'", &["cannot be read"]),
            ("echo '{}'", &["cannot be read"]),
            (
                "echo '[{\"Name\":\"m\",\"URI\":\"ssh://-oProxyCommand=touch /tmp/pen-owned@h/x\"}]'",
                &["cannot be used"],
            ),
            ("echo '[{\"Name\":\"m\",\"URI\":\"ssh://u@h;touch /tmp/pen-owned/x\"}]'", &["cannot be used"]),
            ("echo no such machine >&2; exit 125", &["does not tell its connections", "no such machine"]),
        ] {
            let shim = Shim::new(&machine.pen, "podman", &format!("case \"$*\" in *list*) {answer}; exit ;; esac"));
            let ran = machine.sh("true").env("PATH", shim.path()).ran();
            machine.assert_refused(&ran, words);
            assert!(!shim.calls().iter().any(|call| call.contains("run")), "{:?}", shim.calls());
        }
        assert!(!std::path::Path::new("/tmp/pen-owned").exists());
    });
}

#[test]
fn r7_6_a_missing_key_is_named() {
    Machine::without_podman("", |machine| {
        let missing = machine.pen.outside("keys").join("no-such-key");
        machine.connections(&[(CONNECTION, &machine.uri(), Some(&missing))], Some(CONNECTION));
        machine.assert_refused(&machine.sh("true").ran(), &["no-such-key", "does not exist"]);
    });
}

#[test]
fn r7_7_without_an_ssh_program_nothing_starts() {
    Machine::without_podman("", |machine| {
        let shim = Shim::new(&machine.pen, "podman", "");
        let ran = machine.sh("true").env("PATH", &shim.directory).ran();
        assert_eq!(ran.code, Some(44), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("there is no `ssh` on PATH") && ran.stderr.contains("hint: install OpenSSH"),
            "{ran:?}"
        );
        // One that cannot be executed.
        machine.pen.write("../shim/ssh", "not a program");
        std::fs::set_permissions(shim.directory.join("ssh"), PermissionsExt::from_mode(0o755)).expect("chmod");
        let ran = machine.sh("true").env("PATH", shim.path()).ran();
        machine.assert_refused(&ran, &["the SSH tunnel cannot be started", "hint: or do without"]);
    });
}

#[test]
fn r7_7_an_sshd_that_refuses_is_quoted() {
    Machine::without_podman("", |machine| {
        // A key that may not log in.
        let wrong = keygen(&machine.pen, "wrong", "wrong");
        machine.connections(&[(CONNECTION, &machine.uri(), Some(&wrong))], Some(CONNECTION));
        let ran = machine.sh("true").ran();
        machine.assert_refused(&ran, &["could not be established", "ssh says: ", "Permission denied (publickey)"]);
        // The agent's own keys are not tried in its place.
        machine.agent.add(&machine.pen, &machine.sshd.identity);
        machine.assert_refused(&machine.sh("true").ran(), &["Permission denied (publickey)"]);
        // Nobody listens: the machine is stopped.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("port").port();
        machine.connections(&[(CONNECTION, &machine.uri_at(free), Some(&wrong))], Some(CONNECTION));
        let ran = machine.sh("true").ran();
        machine.assert_refused(&ran, &["ssh says: ", "Connection refused"]);
    });
}

#[test]
fn r7_7_a_forward_that_the_server_denies_is_quoted() {
    Machine::without_podman("AllowStreamLocalForwarding no", |machine| {
        let ran = machine.sh("true").ran();
        machine.assert_refused(&ran, &["could not be established", "ssh says: ", "forwarding failed"]);
    });
}

#[test]
fn r7_4_a_wrong_time_limit_is_named_and_nothing_starts() {
    Machine::without_podman("", |machine| {
        for wrong in ["0", "soon", "-1", "99999"] {
            let ran = machine.sh("true").env("SANDPEN_TUNNEL_TIMEOUT", wrong).ran();
            assert_eq!(ran.code, Some(2), "{}", ran.stderr);
            let named = format!("env SANDPEN_TUNNEL_TIMEOUT: `{wrong}` is not a number of seconds");
            assert!(ran.stderr.contains(&named) && ran.stderr.contains("hint: "), "{}", ran.stderr);
        }
    });
}

#[test]
fn r7_8_a_machine_that_never_answers_ends_in_time() {
    Machine::without_podman("", |machine| {
        let mute = TcpListener::bind("127.0.0.1:0").expect("a listener that says nothing");
        let port = mute.local_addr().expect("port").port();
        machine.connections(&[(CONNECTION, &machine.uri_at(port), Some(&machine.sshd.identity))], Some(CONNECTION));
        let start = Instant::now();
        let ran = machine.sh("true").env("SANDPEN_TUNNEL_TIMEOUT", "1").ran();
        let took = start.elapsed();
        machine.assert_refused(&ran, &["ssh says: ", "timed out"]);
        assert!(took < Duration::from_secs(6), "{took:?}");
    });
}

#[test]
fn r7_4_r7_8_a_socket_that_does_not_appear_ends_in_time_and_kills_ssh() {
    // The login works; what should prepare the socket never does.
    Machine::without_podman("ForceCommand cat >/dev/null", |machine| {
        let mut running = Running::start(machine.sh("true").env("SANDPEN_TUNNEL_TIMEOUT", "1"));
        let tunnel = Tunnel::opening(&running);
        let ran = running.ran();
        // sshd never removes it, and the script that would has not run; a launch an hour later takes it along.
        let _ = std::fs::remove_file(&tunnel.landing);
        machine.assert_refused(&ran, &["was not ready within 1 s"]);
        assert!(is_gone(tunnel.pid), "the tunnel process was killed");
    });
}

#[test]
fn r7_9_signals_end_a_launch_that_waits_for_its_machine() {
    for (which, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        Machine::without_podman("ForceCommand cat >/dev/null", |machine| {
            let mut running = Running::start(&mut machine.sh("true"));
            let tunnel = Tunnel::opening(&running);
            let start = Instant::now();
            running.signal(which);
            let ran = running.ran();
            let _ = std::fs::remove_file(&tunnel.landing);
            assert!(is_gone(tunnel.pid), "R7.9: {tunnel:?}");
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""));
            assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
            assert_eq!((machine.pen.containers().len(), machine.pen.sessions().len()), (0, 0));
        });
    }
}
