//! Tests what a guest in a pod has and has not, and what becomes of it when its launcher is killed.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::pods_of;
use crate::for_kubernetes;
use crate::support::{Fixture, RunToEnd, TIMEOUT, holds_within};

for_kubernetes!(
    the_exit_code_is_what_the_helper_says,
    a_live_workspace_is_a_downgrade,
    the_repository_is_inside_as_it_is_outside,
    without_a_network_there_are_no_sockets,
    a_read_only_mount_is_a_copy,
    values_arrive_over_the_link,
    files_of_other_kinds_arrive,
    a_finished_sandbox_leaves_nothing,
    a_killed_launcher_ends_its_guest,
    ctrl_c_and_other_signals_arrive,
);

fn the_exit_code_is_what_the_helper_says(fixture: &Fixture) {
    for (script, code) in
        [("exit 0", 0), ("exit 9", 9), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let finished = fixture.bash(&format!("echo out; echo err >&2; {script}"));
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), "out\n"), "{script}: {}", finished.stderr);
        assert!(finished.stderr.ends_with("err\n"), "{script}: {}", finished.stderr);
    }
}

fn a_live_workspace_is_a_downgrade(fixture: &Fixture) {
    fixture.run().args(["--strict", "--", "true"]).finish().success();
    let strict = fixture.run().args(["--workspace", "live", "--strict", "--", "true"]).finish();
    assert!(strict.failure(44).contains("workspace live (flag --workspace)"));
}

const STATUS: &str = "git status --short --branch; git log --format='%H %s'; git diff --cached; git diff";

fn the_repository_is_inside_as_it_is_outside(fixture: &Fixture) {
    let prepare = "git init -q -b main . && git config user.name n && git config user.email e && echo 1 >a && echo 1 >b \
        && git add . && git commit -qm one && echo 2 >>a && git commit -qam two && echo staged >s && git add s \
        && echo 3 >>a && rm b && echo new >n && echo '*.o' >.gitignore && echo object >x.o";
    assert!(fixture.host_command("sh").args(["-c", prepare]).status().expect("git").success());
    let outside = fixture.host_command("sh").args(["-c", STATUS]).output().expect("git");
    let inside = fixture.bash(STATUS);
    inside.success();
    assert_eq!(inside.stdout, String::from_utf8_lossy(&outside.stdout));
    assert_eq!(fixture.bash("ls; cat n").success(), "a\nn\ns\nnew");
}

fn without_a_network_there_are_no_sockets(fixture: &Fixture) {
    let connect = "exec 3<>/dev/tcp/$KUBE_ADDRESS/443";
    let script = |network: &str| {
        let mut command = fixture.run();
        command.args(["--network", network, "--env", "KUBE_ADDRESS=10.96.0.1"]).args(["--", "bash", "-c", connect]);
        command.finish()
    };
    script("on").success();
    let refused = script("off");
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("Operation not permitted"), "{}", refused.stderr);
    let local = "perl -e 'use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die $!; \
        for (AF_INET, AF_INET6, 16, 17, 40) { socket(my $t, $_, SOCK_DGRAM, 0) and die \"family $_\" }'";
    fixture.run().args(["--network", "off", "--", "bash", "-c", local]).finish().success();
}

fn a_read_only_mount_is_a_copy(fixture: &Fixture) {
    fixture.write("data/file", "content");
    fixture.give_to_user(fixture.home.join("data"));
    let data = fixture.home.join("data").display().to_string();
    let mount = format!("{data}:/data");
    let finished =
        fixture.run().args(["--mount", &mount, "--", "bash", "-c", "cat /data/file; touch /data/x"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), "content"), "{}", finished.stderr);
    assert!(finished.stderr.contains("a copy as of the start"), "{}", finished.stderr);
    assert!(finished.stderr.contains("Read-only file system"), "{}", finished.stderr);
}

fn values_arrive_over_the_link(fixture: &Fixture) {
    let mut command = fixture.run();
    command.env("API_TOKEN", "hunter2").args(["--env", "API_TOKEN", "--env", "ODD=a b\n=\"c\""]);
    let finished = command.args(["--", "sh", "-c", r#"printf '%s|%s|%s' "$API_TOKEN" "$ODD" "$HOME""#]).finish();
    assert_eq!(finished.success(), format!("hunter2|a b\n=\"c\"|{}", fixture.home.display()));
    // A pod has variables of its own for the cluster's server, and a token for it unless it is told not to.
    fixture.bash("! env | grep ^KUBERNETES && ! test -e /var/run/secrets/kubernetes.io").success();
}

fn files_of_other_kinds_arrive(fixture: &Fixture) {
    let prepare = "mkdir -p d/e empty && echo x >d/e/f && chmod 750 d/e/f && ln -s d/e/f link && ln -s /nowhere broken \
        && touch -d '2001-02-03 04:05:06 UTC' d/e/f && mkfifo pipe && printf 'a\\0b' >\"odd \n name\"";
    assert!(fixture.host_command("bash").args(["-c", prepare]).status().expect("sh").success());
    let look = "stat -c '%a %Y %F' d/e/f; readlink link broken; ls empty; test ! -e pipe && cat link; wc -c <odd*";
    let finished = fixture.bash(look);
    assert_eq!(finished.success(), "750 981173106 regular file\nd/e/f\n/nowhere\nx\n3");
}

fn a_finished_sandbox_leaves_nothing(fixture: &Fixture) {
    fixture.bash("true").success();
    assert_eq!(pods_of(fixture), Vec::<serde_json::Value>::new());
    assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
}

fn a_killed_launcher_ends_its_guest(fixture: &Fixture) {
    let mut command = fixture.run();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).args(["--", "sh", "-c", "echo up; exec sleep 600"]);
    let mut child = command.spawn().expect("start");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
    assert_eq!(line, "up\n");
    child.kill().expect("kill");
    child.wait().expect("wait");
    let guest_has_ended = || {
        let pods = pods_of(fixture);
        let statuses = pods.first().and_then(|pod| pod.pointer("/status/containerStatuses")?.as_array().cloned());
        let ended = |name: &str| {
            let mut statuses = statuses.iter().flatten();
            statuses.any(|status| status["name"] == name && status.pointer("/state/terminated").is_some())
        };
        ended("guest") && !ended("keeper")
    };
    // The work is still there, until the next command brings it home.
    assert!(holds_within(TIMEOUT, guest_has_ended), "the guest ends and the keeper stays");
    fixture.sandpen(["prune"]).finish().success();
    assert_eq!(pods_of(fixture), Vec::<serde_json::Value>::new());
}

fn ctrl_c_and_other_signals_arrive(fixture: &Fixture) {
    for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::USR1, "USR1")] {
        let script = format!("trap 'echo got {name}; exit 7' {name}; echo up; while :; do sleep 0.1; done");
        let mut command = fixture.run();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).args(["--", "bash", "-c", &script]);
        let mut child = command.spawn().expect("start");
        let mut output = std::io::BufReader::new(child.stdout.take().expect("stdout"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        kill_process(Pid::from_child(&child), signal).expect("kill");
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        assert_eq!(line, format!("up\ngot {name}\n"));
        assert_eq!(child.wait().expect("wait").code(), Some(7));
    }
}
