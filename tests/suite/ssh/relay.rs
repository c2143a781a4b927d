//! The gate over a channel: where containers run in a virtual machine, a process inside listens in
//! place of a mounted socket. Docker, Podman, sshd and agents are real; the machine is this one.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::podman_machine::PodmanMachine;
use crate::push::server::{GitServer, bash};
use crate::support::{Fixture, KEY_COMMENT, RunToEnd, Running, Shim, binary, eventually, install_program, signal};

const LIST: &str = "echo $SSH_AUTH_SOCK; ssh-add -l | cut -d' ' -f3-";

fn listed() -> String {
    format!("/ssh-agent\n{KEY_COMMENT} (ED25519)")
}

/// Runs a test at the address of Docker Desktop, which leads to the daemon of this machine.
fn on_desktop(test: impl FnOnce(&Fixture)) {
    Fixture::on_docker_as_ordinary_user(|fixture| fixture.with_agent().with_desktop_address(), test);
}

/// Changes a command to a program that is shipped as on macOS, with the Linux helper beside it.
pub fn shipped(fixture: &Fixture, command: &Command) -> Command {
    let directory = fixture.outside("program");
    let arch = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    for name in ["sandpen".to_owned(), format!("sandpen-linux-{arch}")] {
        install_program(binary(), directory.join(name));
    }
    let mut shipped = fixture.host_command(directory.join("sandpen"));
    shipped.args(command.get_args().skip_while(|word| *word != "run"));
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        shipped.env(name, value);
    }
    shipped
}

/// Returns the processes of engine clients that carry this fixture's channel.
fn channel_clients(running: &Running) -> Vec<u32> {
    let is_channel = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("\0channel\0"))
    };
    running.children_of_all_threads().into_iter().filter(is_channel).collect()
}

#[test]
fn the_agent_is_reached_without_a_mounted_socket() {
    on_desktop(|fixture| {
        let shim = Shim::new(fixture, "docker", "");
        let script = format!(
            "{LIST}; echo text >text; ssh-add -L >key.pub; ssh-keygen -q -Y sign -n file -f key.pub text && echo signed
            rm -f /ssh-agent; mv /ssh-agent /moved; ssh-add -l >/dev/null && echo kept
            for i in 1 2 3 4 5 6 7 8 9 10; do ssh-add -l >/dev/null || echo failed & done; wait"
        );
        let mut command = fixture.run();
        command.env("PATH", shim.path()).args(["--", "bash", "-c", &script]);
        let finished = command.finish();
        assert_eq!(finished.success(), format!("{}\nsigned\nkept", listed()), "{}", finished.stderr);
        let calls = shim.calls();
        assert!(calls.iter().all(|call| !call.contains(":/ssh-agent") && !call.starts_with("info")), "{calls:?}");
        assert_eq!(calls.iter().filter(|call| call.starts_with("run ")).count(), 1, "{calls:?}");
        assert_eq!(fixture.containers(), [""; 0]);
        assert!(fixture.sandpen(["log"]).finish().success().contains("signed"));
    });
}

#[test]
fn explain_shows_the_channel() {
    on_desktop(|fixture| {
        let plan = fixture.explain(&["--", "true"]);
        let ssh = &plan["ssh"];
        assert_eq!((&ssh["state"], &ssh["strategy"]), (&"forwarded".into(), &"relay".into()));
        assert_eq!((&ssh["socket"], &ssh["gate"]), (&"/ssh-agent".into(), &true.into()));
        assert!(ssh["channel_argv"].to_string().contains("\"agent=/ssh-agent\""), "{ssh}");
        assert!(!plan["mounts"].to_string().contains("/ssh-agent"), "{}", plan["mounts"]);
        // Off leaves no channel, and a socket that is mounted needs none.
        assert!(fixture.explain(&["--ssh-agent", "off", "--", "true"])["ssh"]["channel_argv"].is_null());
        assert!(fixture.explain_with(&["--", "true"], &[("DOCKER_HOST", "")])["ssh"]["channel_argv"].is_null());
    });
}

#[test]
fn attack_28_rules_hold_over_the_channel() {
    on_desktop(|fixture| {
        let script = "ssh-add -q -D; ssh-add -L >key.pub; echo text >text
            ssh-keygen -q -Y sign -n file -f key.pub text || echo refused; ssh-add -l | wc -l";
        let mut command = fixture.run();
        let finished = command.args(["--ssh-host", "example.org", "--", "bash", "-c", script]).finish();
        assert!(finished.success().starts_with("refused"), "{} {}", finished.stdout, finished.stderr);
        assert!(finished.stderr.contains("the SSH agent's gate refused"), "{}", finished.stderr);
        let listed = fixture.host_command("ssh-add").env("SSH_AUTH_SOCK", &fixture.agent().socket).arg("-l").finish();
        assert!(listed.success().contains(KEY_COMMENT), "the agent has lost its key");
    });
}

#[test]
fn a_channel_that_breaks_is_opened_again() {
    on_desktop(|fixture| {
        let mut command = fixture.run();
        command.stdin(Stdio::piped()).args(["--", "bash", "-c"]);
        command
            .arg("echo up; while read line; do ssh-add -l >/dev/null 2>&1 && echo listed || echo failed; done; exit 7");
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "up");
        let clients = channel_clients(&running);
        assert_eq!(clients.len(), 1);
        signal(clients[0], Signal::KILL);
        eventually("another client carries the channel", || {
            channel_clients(&running).first().is_some_and(|client| *client != clients[0])
        });
        eventually("the agent answers again", || {
            running.write("list\n");
            running.line() == "listed"
        });
        running.close_stdin();
        assert_eq!(running.finish().code, Some(7));
        assert_eq!((fixture.containers(), fixture.sessions().len()), (Vec::new(), 0));
    });
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    on_desktop(|fixture| {
        let mut command = fixture.run();
        let mut running = Running::start(command.args(["--", "bash", "-c", "echo up; sleep 1000"]));
        assert_eq!(running.line(), "up");
        let clients = channel_clients(&running);
        assert_eq!(clients.len(), 1);
        running.kill_alone();
        eventually("the channel's client ends", || {
            clients.iter().all(|client| !std::path::Path::new(&format!("/proc/{client}/exe")).exists())
        });
        eventually("the container is gone", || {
            fixture.sandpen(["prune"]).finish();
            fixture.containers().is_empty()
        });
    });
}

#[test]
fn pushes_by_rule_go_over_the_channel() {
    Fixture::on_docker_as_ordinary_user(Fixture::with_desktop_address, |fixture| {
        let server = GitServer::start(fixture);
        let refs = server.refs();
        let script = "set -e; git fetch -q; echo 2 >>file; git commit -qam second; git push -q origin HEAD:agent/x
            git push -q origin HEAD:main || echo refused";
        let finished = bash(fixture, &["agent/*"], script);
        assert_eq!(finished.success(), "refused", "{}", finished.stderr);
        assert_eq!(server.subject("agent/x"), "second");
        assert_eq!(server.subject("main"), "first");
        assert_ne!(server.refs(), refs);
    });
}

#[test]
fn a_podman_machine_needs_no_tunnel() {
    PodmanMachine::on(|machine| {
        let mut command = machine.command("run");
        command.env("SANDBOX_SSH_AGENT", "on").env("CONTAINER_CONNECTION", super::podman_machine::CONNECTION);
        command.args(["-v", "--user", "host", "--", "sh", "-c", LIST]);
        let finished = shipped(&machine.fixture, &command).finish();
        assert_eq!(finished.success(), listed(), "{}", finished.stderr);
        assert!(!finished.stderr.contains("SSH tunnel"), "{}", finished.stderr);
        assert_eq!((machine.fixture.containers(), machine.fixture.sessions().len()), (Vec::new(), 0));
    });
}

/// The client reaches the daemon by `ssh`; so does the channel.
#[test]
fn docker_over_ssh_carries_the_channel() {
    Fixture::on_docker_as_ordinary_user(Fixture::with_agent, |fixture| {
        let sshd = super::sshd::Sshd::start(fixture, "");
        fixture.write(".ssh/known_hosts", &sshd.known);
        let ssh = format!(
            "#!/bin/sh\nexec /usr/bin/ssh -F none -o IdentitiesOnly=yes -o UserKnownHostsFile={} -i {} \"$@\"\n",
            fixture.home.join(".ssh/known_hosts").display(),
            sshd.identity.display()
        );
        let directory = fixture.outside("ssh-shim");
        fixture.write_script(directory.join("ssh"), &ssh);
        let mut command = fixture.run();
        command.env("PATH", format!("{}:{}", directory.display(), crate::support::SYSTEM_PATH));
        command.env("DOCKER_HOST", format!("ssh://{}@127.0.0.1:{}", fixture.user_name(), sshd.port));
        let finished = command.args(["--", "sh", "-c", LIST]).finish();
        assert_eq!(finished.success(), listed(), "{}", finished.stderr);
        assert_eq!((fixture.containers(), fixture.sessions().len()), (Vec::new(), 0));
    });
}
