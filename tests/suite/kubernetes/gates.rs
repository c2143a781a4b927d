//! Tests what passes between a pod and the launcher: keys of the SSH agent, and further commands.

use std::process::Stdio;

use super::{kubectl, pods_of};
use crate::for_kubernetes;
use crate::push::server::{GitServer, bash};
use crate::support::{Fixture, KEY_COMMENT, RunToEnd, Running};

for_kubernetes!(
    with_agent:
    keys_sign_inside_and_stay_outside,
    the_agent_answers_again_after_its_connection_broke,
    without_a_network_the_agent_still_answers,
    a_push_by_rule_arrives,
    exec_has_the_files_the_variables_and_the_limits_of_the_first_command,
);

const SIGN: &str = "set -e; cd /tmp; ssh-add -l | cut -d' ' -f3-; ssh-add -L >key.pub; echo text >text; \
    ssh-keygen -q -Y sign -f key.pub -n file text; head -1 text.sig; ! ssh-add -D 2>/dev/null";

fn keys_sign_inside_and_stay_outside(fixture: &Fixture) {
    let finished = fixture.bash(SIGN);
    let lines: Vec<&str> = finished.success().lines().collect();
    assert!(lines[0].starts_with(KEY_COMMENT), "{lines:?}");
    assert_eq!(lines[1], "-----BEGIN SSH SIGNATURE-----");
    let place = fixture.bash("echo $SSH_AUTH_SOCK; ls -d /ssh-agent; ls -d /.sandpen-keeper 2>/dev/null || echo none");
    assert_eq!(place.success(), "/ssh-agent\n/ssh-agent\nnone");
    // The guest can neither remove the socket nor put another one in its place.
    fixture
        .bash("! rm -f \"$SSH_AUTH_SOCK\" 2>/dev/null; ! touch \"$SSH_AUTH_SOCK.x\" 2>/dev/null; ssh-add -l >/dev/null")
        .success();
    let off = fixture.run().args(["--ssh-agent", "off", "--", "sh", "-c", "echo ${SSH_AUTH_SOCK-unset}"]).finish();
    assert_eq!(off.success(), "unset");
}

/// The mounted socket stays, whatever becomes of the process to which it leads.
fn the_agent_answers_again_after_its_connection_broke(fixture: &Fixture) {
    let script = "ssh-add -l >/dev/null && echo up; cat; \
        until ssh-add -l >/dev/null 2>&1; do sleep 0.1; done; echo again";
    let mut sandbox = Running::start(fixture.run().args(["--", "bash", "-c", script]).stdin(Stdio::piped()));
    assert_eq!(sandbox.line(), "up");
    let kill = "for process in /proc/[0-9]*; do \
        if tr '\\0' ' ' <$process/cmdline | grep -q 'sandpen [c]hannel'; then kill ${process#/proc/}; fi; done";
    let pods = pods_of(fixture);
    let name = pods[0]["metadata"]["name"].as_str().expect("a name");
    let killed = kubectl(&["exec", "--container=keeper", name, "--", "bash", "-c", kill]).output().expect("kubectl");
    assert!(killed.status.success(), "{killed:?}");
    sandbox.close_stdin();
    assert_eq!(sandbox.line(), "again");
    sandbox.finish().success();
}

fn without_a_network_the_agent_still_answers(fixture: &Fixture) {
    let finished = fixture.run().args(["--network", "off", "--", "bash", "-c", SIGN]).finish();
    assert!(finished.success().contains("BEGIN SSH SIGNATURE"), "{}", finished.stderr);
}

fn a_push_by_rule_arrives(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let script = "git fetch -q && git commit -q --allow-empty -m pushed && git push -q origin HEAD:agent/one";
    let finished = bash(fixture, &["agent/*"], script);
    assert_eq!(finished.success(), "", "{}", finished.stderr);
    assert_eq!(server.subject("agent/one"), "pushed");
}

fn exec_has_the_files_the_variables_and_the_limits_of_the_first_command(fixture: &Fixture) {
    let script = "echo written >file; echo up; exec sleep 1000";
    let mut command = fixture.run();
    command.env("API_TOKEN", "hunter2").args(["--env", "API_TOKEN", "--name", "first", "--network", "off"]);
    let mut sandbox = Running::start(command.args(["--", "bash", "-c", script]));
    assert_eq!(sandbox.line(), "up");
    let script = "cat file; echo $API_TOKEN; echo other >other; (exec 3<>/dev/tcp/10.96.0.1/443) 2>&1 | grep -q permitted && echo refused; exit 7";
    let finished = fixture.sandpen(["exec", "first", "--", "bash", "-c", script]).finish();
    assert_eq!(
        (finished.code, finished.stdout.as_str()),
        (Some(7), "written\nhunter2\nrefused\n"),
        "{}",
        finished.stderr
    );
    let script = "readlink /proc/self/fd/0 >/tmp/detached; echo $API_TOKEN >>/tmp/detached; exec sleep 300";
    fixture.sandpen(["exec", "-d", "first", "--", "bash", "-c", script]).finish().success();
    let script = "until [ -s /tmp/detached ]; do sleep 0.1; done; cat /tmp/detached; pgrep -xc sleep";
    let finished = fixture.sandpen(["exec", "first", "--", "bash", "-c", script]).finish();
    assert_eq!(finished.success(), "/dev/null\nhunter2\n2");
    let missing = fixture.sandpen(["exec", "-d", "first", "--", "no-such-program"]).finish();
    assert_eq!(missing.code, Some(127), "{}", missing.stderr);
    let missing = fixture.sandpen(["exec", "first", "--", "no-such-program"]).finish();
    assert_eq!(missing.code, Some(127), "{}", missing.stderr);
    fixture.sandpen(["stop", "first"]).finish().success();
    let names = fixture.sandpen(["diff", "--name-only"]).finish().success().to_owned();
    assert_eq!(names, "file\nother");
}
