//! `ps`, `exec`, `stop`, `prune`, and what a killed launcher leaves: over every engine.

use crate::for_every_engine;
use crate::support::{Pen, RunToEnd, Running, eventually, signal};

for_every_engine!(
    a_running_sandbox_is_listed_entered_and_stopped,
    attack_24_exec_has_the_same_walls,
    an_unknown_id_is_44_with_the_ids_there_are,
    prune_removes_what_a_killed_launcher_left,
    the_next_launch_removes_what_a_killed_launcher_left,
    a_second_sigterm_ends_a_guest_that_ignores_the_first,
    a_guest_that_ignores_sigterm_is_killed_after_a_grace_period,
);

fn start(pen: &Pen) -> Running {
    let mut running = Running::start(pen.run().args(["--", "bash", "-c", "echo ready; exec sleep 300"]));
    assert_eq!(running.line(), "ready");
    running
}

/// The ids of the sandboxes that run.
fn ids(pen: &Pen) -> Vec<String> {
    let ran = pen.sandpen().args(["ps", "--format", "json"]).ran();
    let list: serde_json::Value = serde_json::from_str(ran.ok()).expect("JSON");
    let list = list.as_array().expect("a list");
    for sandbox in list {
        for key in ["id", "engine", "command", "directory", "age", "state", "memory"] {
            assert!(sandbox.get(key).is_some(), "{key} in {sandbox}");
        }
        assert_eq!(sandbox["engine"], pen.engine.flag());
        assert_eq!(sandbox["directory"], pen.project.display().to_string());
    }
    list.iter().map(|sandbox| sandbox["id"].as_str().expect("an id").to_owned()).collect()
}

fn a_running_sandbox_is_listed_entered_and_stopped(pen: &Pen) {
    let mut running = start(pen);
    let listed = ids(pen);
    assert_eq!(listed.len(), 1);
    let table = pen.sandpen().arg("ps").ran();
    assert!(table.ok().lines().count() == 2 && table.stdout.contains(&listed[0]), "{}", table.stdout);
    let ran = pen.sandpen().args(["exec", &listed[0], "--", "sh", "-c", "echo $SANDBOX; pwd; exit 5"]).ran();
    assert_eq!(
        (ran.code, ran.stdout),
        (Some(5), format!("sandpen-{}\n{}\n", listed[0], pen.project.display())),
        "{}",
        ran.stderr
    );
    let stopped = pen.sandpen().args(["stop", &listed[0]]).ran();
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    assert_eq!(running.ran().code, Some(143));
    assert!(ids(pen).is_empty());
    assert!(pen.sessions().is_empty());
}

fn attack_24_exec_has_the_same_walls(pen: &Pen) {
    let running = start(pen);
    let id = ids(pen).remove(0);
    let script = r#"grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\t ' ' ';
        unshare -Ur true 2>/dev/null && echo 'a user namespace'; touch /usr/x 2>/dev/null && [ -e /usr/x ] && echo 'wrote' ; cat /etc/shadow 2>/dev/null; true"#;
    let first = pen.bash(script);
    let ran = pen.sandpen().args(["exec", &id, "--", "bash", "-c", script]).ran();
    assert_eq!(ran.ok(), first.ok());
    assert!(ran.stdout.contains("NoNewPrivs: 1") && ran.stdout.contains("Seccomp: 2"), "{}", ran.stdout);
    drop(running);
}

fn an_unknown_id_is_44_with_the_ids_there_are(pen: &Pen) {
    for command in [&["stop", "nothing"][..], &["exec", "nothing", "--", "true"]] {
        let ran = pen.sandpen().args(command).ran();
        assert_eq!(ran.code, Some(44), "{}", ran.stderr);
        assert!(ran.stderr.contains("no sandbox `nothing` runs"), "{}", ran.stderr);
    }
    let running = start(pen);
    let id = ids(pen).remove(0);
    let ran = pen.sandpen().args(["stop", "nothing"]).ran();
    assert!(ran.code == Some(44) && ran.stderr.contains(&id), "{}", ran.stderr);
    drop(running);
}

fn killed(pen: &Pen) {
    let mut running = start(pen);
    signal(running.pid(), rustix::process::Signal::KILL);
    running.ran();
    eventually("the container is gone", || pen.containers().is_empty());
    assert_eq!(pen.sessions().len(), 1, "a killed launcher cannot clean up");
}

fn prune_removes_what_a_killed_launcher_left(pen: &Pen) {
    killed(pen);
    let live = start(pen);
    let ran = pen.sandpen().arg("prune").ran();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(pen.sessions().len(), 1, "the live one stays");
    assert_eq!(ids(pen).len(), 1);
    drop(live);
}

fn the_next_launch_removes_what_a_killed_launcher_left(pen: &Pen) {
    killed(pen);
    let ran = pen.run().args(["--", "sleep", "0.5"]).ran();
    ran.ok();
    assert!(pen.sessions().is_empty(), "{:?}", pen.sessions());
}

fn stubborn(pen: &Pen) -> Running {
    let mut running =
        Running::start(pen.run().args(["--", "bash", "-c", "trap '' TERM; echo ready; while :; do sleep 0.2; done"]));
    assert_eq!(running.line(), "ready");
    running
}

fn a_second_sigterm_ends_a_guest_that_ignores_the_first(pen: &Pen) {
    let mut running = stubborn(pen);
    let begun = std::time::Instant::now();
    running.signal(rustix::process::Signal::TERM);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.ran().code, Some(137));
    assert!(begun.elapsed().as_secs() < 9, "it did not wait for the grace period");
    eventually("nothing is left", || pen.containers().is_empty() && pen.sessions().is_empty());
}

fn a_guest_that_ignores_sigterm_is_killed_after_a_grace_period(pen: &Pen) {
    let mut running = stubborn(pen);
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.ran().code, Some(137));
    eventually("nothing is left", || pen.containers().is_empty() && pen.sessions().is_empty());
}
