//! Tests the name, labels and signals of a sandbox, and the cleanup after it.

use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Fixture, RunToEnd, Running, eventually, is_running, signal};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    signals_reach_the_guest,
    sigterm_leaves_nothing,
    a_signal_right_after_the_start_is_not_lost,
    a_killed_client_leaves_nothing,
    locked_directories_do_not_keep_the_session,
);
for_native_image!(a_killed_client_leaves_nothing, locked_directories_do_not_keep_the_session);
for_every_container_engine!(
    a_running_sandbox_can_be_found_by_its_labels,
    two_sandboxes_in_one_project_are_independent,
    files_of_the_images_user_do_not_keep_the_session,
);

/// Starts a guest and waits until it prints `ready`.
fn start(fixture: &Fixture, script: &str) -> Running {
    let mut running = Running::start(fixture.run().stdin(Stdio::piped()).args(["--", "bash", "-c", script]));
    assert_eq!(running.line(), "ready");
    running
}

/// Waits until the engine lists the container as running: before that, Podman's client loses
/// signals.
fn start_and_settle(fixture: &Fixture, script: &str) -> Running {
    let running = start(fixture, script);
    if !fixture.engine().is_container() {
        return running;
    }
    eventually("the engine knows of the container", || {
        let mut list = fixture.client();
        !list.args(["ps", "--quiet", "--filter", "status=running"]).finish().success().is_empty()
            && fixture.containers().len() == 1
    });
    running
}

#[track_caller]
fn assert_nothing_left(fixture: &Fixture) {
    eventually("the container is gone", || fixture.containers().is_empty());
    assert_eq!(fixture.sessions(), Vec::<PathBuf>::new(), "session directories remain");
}

fn a_running_sandbox_can_be_found_by_its_labels(fixture: &Fixture) {
    let mut running = start(fixture, "echo ready; echo $SANDBOX; cat > /dev/null");
    let name = running.line();
    let labels = fixture.client().args(["inspect", "--format", "{{json .Config.Labels}}", &name]).finish().json();
    assert_eq!(format!("sandpen-{}", labels["dev.sandpen.session"].as_str().expect("label")), name);
    assert_eq!(labels["dev.sandpen.workdir"], fixture.project.display().to_string());
    assert_eq!(labels["dev.sandpen.owner-pid"], running.pid().to_string());
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).expect("stat");
    let start = stat.rsplit_once(')').expect("stat").1.split_whitespace().nth(19).expect("start time");
    assert_eq!(labels["dev.sandpen.owner-start"], start);
    assert_eq!(fixture.containers(), [name.as_str()]);
    assert_eq!(fixture.sessions().len(), 1);
    assert_eq!(running.children().len(), 1, "sandpen has one child, the engine's client");
    running.close_stdin();
    running.finish().success();
    assert_nothing_left(fixture);
}

fn two_sandboxes_in_one_project_are_independent(fixture: &Fixture) {
    let script =
        "echo ready; echo $SANDBOX > $SANDBOX; cat > /dev/null; ls; ls -A /tmp; ls -A ~; touch /tmp/mine ~/mine";
    let (mut one, mut two) = (start(fixture, script), start(fixture, script));
    eventually("both wrote", || std::fs::read_dir(&fixture.project).expect("project").count() == 2);
    let names = fixture.containers();
    assert_eq!(names.len(), 2, "{names:?}");
    for running in [&mut one, &mut two] {
        running.close_stdin();
        let finished = running.finish();
        let mut expected = names.clone();
        expected.sort();
        // The sandboxes share the project; each has a private home and temp directory.
        assert_eq!(finished.success(), format!("{}\nproject", expected.join("\n")));
    }
    assert_nothing_left(fixture);
}

fn signals_reach_the_guest(fixture: &Fixture) {
    let script = "for s in TERM HUP USR1 INT; do trap \"echo got $s; n=x\\$n\" $s; done; echo ready;
        while [ ${#n} -lt 4 ]; do sleep 0.1; done; exit 5";
    let mut running = start_and_settle(fixture, script);
    for (which, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1"), (Signal::INT, "INT")] {
        running.signal(which);
        assert_eq!(running.line(), format!("got {name}"));
    }
    let finished = running.finish();
    assert_eq!(finished.code, Some(5), "the guest chooses the exit code: {}", finished.stderr);
    assert_nothing_left(fixture);
}

fn sigterm_leaves_nothing(fixture: &Fixture) {
    let mark = format!("{}.5", 400_000 + std::process::id());
    for (which, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let script = format!("echo ready; sleep {mark}");
        let mut running = start_and_settle(fixture, &script);
        running.signal(which);
        assert_eq!(running.finish().code, Some(code), "{which:?}");
        assert_nothing_left(fixture);
    }
}

/// The guest runs before its engine's client is ready to forward signals. The test repeats the race
/// six times.
fn a_signal_right_after_the_start_is_not_lost(fixture: &Fixture) {
    let codes: Vec<_> = (0..6)
        .map(|_| {
            let mut running = start(fixture, "echo ready; sleep 3");
            running.signal(Signal::TERM);
            running.finish().code
        })
        .collect();
    assert_eq!(codes, [Some(143); 6], "0: the signal was lost; 1: it ended the client, not the guest");
    assert_nothing_left(fixture);
}

fn a_killed_client_leaves_nothing(fixture: &Fixture) {
    let mark = format!(
        "sleep 3{}",
        fixture.project.display().to_string().bytes().map(|b| (b % 10).to_string()).collect::<String>()
    );
    let mut running = start(fixture, &format!("echo ready; {mark}"));
    eventually("the guest runs", || is_running(&mark));
    let [client] = running.children()[..] else { panic!("one client expected") };
    signal(client, Signal::KILL);
    assert_eq!(running.finish().code, Some(137));
    assert_nothing_left(fixture);
    eventually("the guest is gone", || !is_running(&mark));
}

/// Files in the guest's home and temp directory are removed, even if the guest took away all
/// permissions.
fn locked_directories_do_not_keep_the_session(fixture: &Fixture) {
    let script =
        "mkdir -p ~/a/b /tmp/a/b; touch ~/a/b/c /tmp/a/b/c; chmod 000 ~/a/b ~/a /tmp/a/b /tmp/a; ln -s / ~/link";
    fixture.bash(script).success();
    assert_nothing_left(fixture);
}

/// The image's user has another uid than the host's user.
fn files_of_the_images_user_do_not_keep_the_session(fixture: &Fixture) {
    let mut command = fixture.run_image("localhost/sandpen-node");
    command.args(["--user", "image"]);
    command
        .args(["--", "bash", "-c", "for d in /.sandpen /tmp ~; do mkdir -p $d/a/b && touch $d/a/b/c; done; true"])
        .finish()
        .success();
    assert_nothing_left(fixture);
}
