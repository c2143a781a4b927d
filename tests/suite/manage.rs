//! `ps`, `exec`, `stop`, `prune`, and what a killed launcher leaves: over every engine.

use crate::support::{Engine, Pen, RunToEnd, Running, eventually, plain, signal};
use crate::{for_every_container_engine, for_every_engine};

for_every_container_engine!(
    a_kept_container_stays_until_prune,
    a_kept_container_of_a_killed_launcher_stays_too,
    what_never_ran_is_not_kept,
);
for_every_engine!(
    a_name_is_the_users_and_one_sandboxs_at_a_time,
    a_killed_launchers_name_is_free_again,
    the_memory_of_a_sandbox_is_that_of_its_processes,
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
    // The live one sweeps, too, and may have been first.
    eventually("only the live one stays", || pen.sessions().len() == 1);
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

/// What `ps` says of the only sandbox there is.
fn only(pen: &Pen) -> serde_json::Value {
    let ran = pen.sandpen().args(["ps", "--format", "json"]).ran();
    let list: serde_json::Value = serde_json::from_str(ran.ok()).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    list[0].clone()
}

fn start_named(pen: &Pen, script: &str) -> Running {
    let mut running = Running::start(pen.run().args(["--name", "review-2", "--", "bash", "-c", script]));
    assert_eq!(running.line(), "ready");
    running
}

fn a_name_is_the_users_and_one_sandboxs_at_a_time(pen: &Pen) {
    let mut running = start_named(pen, "echo ready; echo $SANDBOX; exec sleep 300");
    assert_eq!(running.line(), "sandpen-review-2");
    assert_eq!(only(pen)["id"], "review-2");
    assert_eq!(pen.sandpen().args(["ps", "--quiet"]).ran().ok(), "review-2");
    if pen.engine.is_container() {
        assert_eq!(pen.containers(), ["sandpen-review-2"]);
    }
    let second = pen.run().args(["--name", "review-2", "--", "true"]).ran();
    assert_eq!(second.code, Some(44), "{}", second.stderr);
    assert!(second.stderr.contains("there is a sandbox `review-2` already"), "{}", second.stderr);
    assert!(second.stderr.contains("hint: ") && second.stderr.contains("sandpen stop review-2"), "{}", second.stderr);
    assert_eq!(pen.sandpen().args(["exec", "review-2", "--", "echo", "inside"]).ran().ok(), "inside");
    pen.sandpen().args(["stop", "review-2"]).ran().ok();
    assert_eq!(running.ran().code, Some(143));
    // Free at once, and not only for others.
    assert_eq!(pen.run().args(["--name", "review-2", "--", "echo", "again"]).ran().ok(), "again");
    assert!(pen.sessions().is_empty() && pen.containers().is_empty());
}

fn a_killed_launchers_name_is_free_again(pen: &Pen) {
    let mut running = start_named(pen, "echo ready; exec sleep 300");
    signal(running.pid(), rustix::process::Signal::KILL);
    running.ran();
    // At once: its container may still be ending.
    let again = pen.run().args(["--name", "review-2", "--", "echo", "again"]).ran();
    assert_eq!(again.ok(), "again", "{}", again.stderr);
    eventually("nothing is left", || pen.sessions().is_empty() && pen.containers().is_empty());
}

#[test]
fn a_name_that_is_none_is_2() {
    for name in ["A", "a b", "../x", "-x", "x_y"] {
        let ran = plain(std::path::Path::new("/usr")).args(["run", &format!("--name={name}"), "--", "true"]).ran();
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("is not a name for a sandbox") && ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
}

fn a_kept_container_stays_until_prune(pen: &Pen) {
    let script = "echo made > /var/tmp/inside 2>/dev/null || echo made > ~/inside; exit 3";
    let ran = pen.run().args(["--keep", "--name", "kept", "--env", "A=b", "--", "bash", "-c", script]).ran();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""));
    assert_eq!(pen.containers(), ["sandpen-kept"]);
    let listed = only(pen);
    assert_eq!((&listed["id"], &listed["state"], &listed["exit_code"]), (&"kept".into(), &"exited".into(), &3.into()));
    assert_eq!((&listed["memory"], &listed["pid"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    assert!(pen.sandpen().arg("ps").ran().ok().contains("exited (3)"));
    assert_eq!(pen.sandpen().args(["ps", "-q"]).ran().ok(), "", "it does not run");
    // It is not in the way of others, who do not sweep it up either; its own name is taken.
    pen.run().args(["--", "sleep", "0.3"]).ran().ok();
    assert_eq!(pen.run().args(["--name", "kept", "--", "true"]).ran().code, Some(44));
    let ran = pen.sandpen().args(["exec", "kept", "--", "true"]).ran();
    assert!(ran.code == Some(44) && ran.stderr.contains("has ended"), "{}", ran.stderr);
    let ran = pen.sandpen().args(["stop", "kept"]).ran();
    assert!(ran.code == Some(0) && ran.stderr.contains("`sandpen prune` removes it"), "{}", ran.stderr);
    assert_eq!((pen.containers().len(), pen.sessions().len()), (1, 1));
    let ran = pen.sandpen().arg("prune").ran();
    assert!(ran.code == Some(0) && ran.stderr.contains("1 kept sandbox removed"), "{}", ran.stderr);
    assert_eq!((pen.containers().len(), pen.sessions().len()), (0, 0));
}

fn a_kept_container_of_a_killed_launcher_stays_too(pen: &Pen) {
    let mut running = Running::start(pen.run().args(["--keep", "--", "bash", "-c", "echo ready; exec sleep 300"]));
    assert_eq!(running.line(), "ready");
    signal(running.pid(), rustix::process::Signal::KILL);
    running.ran();
    eventually("it has ended", || {
        let state = pen.client().args(["inspect", "--format", "{{.State.Status}}", &pen.containers()[0]]).ran();
        state.stdout.trim() == "exited"
    });
    pen.run().args(["--", "sleep", "0.3"]).ran().ok();
    let listed = only(pen);
    assert_eq!((&listed["state"], &listed["exit_code"]), (&"exited".into(), &serde_json::Value::Null));
    pen.sandpen().arg("prune").ran().ok();
    assert_eq!((pen.containers().len(), pen.sessions().len()), (0, 0));
}

fn what_never_ran_is_not_kept(pen: &Pen) {
    let ran = pen.run().args(["--keep", "--engine-flag", "--no-such-flag", "--", "true"]).ran();
    assert_eq!(ran.code, Some(44), "{}", ran.stderr);
    assert_eq!((pen.containers().len(), pen.sessions().len()), (0, 0));
}

#[test]
fn native_keeps_nothing_and_says_so() {
    Pen::on(Engine::Native, |pen| {
        let ran = pen.run().args(["--keep", "--", "true"]).ran();
        assert!(ran.code == Some(0) && ran.stderr.contains("nothing is kept"), "{}", ran.stderr);
        assert!(pen.sessions().is_empty());
        let ran = pen.run().args(["--keep", "--strict", "--", "true"]).ran();
        assert!(ran.code == Some(44) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    });
}

fn the_memory_of_a_sandbox_is_that_of_its_processes(pen: &Pen) {
    let script = "my $x = 'x' x (64 << 20); $| = 1; print \"ready\\n\"; sleep 300";
    let mut running = Running::start(pen.run().args(["--", "perl", "-e", script]));
    assert_eq!(running.line(), "ready");
    let memory = only(pen)["memory"].as_u64().expect("a number of bytes");
    assert!((64 << 20..400 << 20).contains(&memory), "{memory}");
    running.signal(rustix::process::Signal::TERM);
    running.ran();
}

/// Docker makes directories of what it does not find: also of a lock whose launcher was killed, and whose session was removed.
#[test]
fn a_session_that_an_engine_made_up_is_removed() {
    Pen::on(Engine::NativeRoot, |pen| {
        for name in ["owner", "status", "home"] {
            std::fs::create_dir_all(pen.home.join(".local/state/sandpen/sessions/0123456789ab").join(name))
                .expect("made");
        }
        pen.sandpen().arg("prune").ran().ok();
        assert!(pen.sessions().is_empty(), "{:?}", pen.sessions());
    });
}
