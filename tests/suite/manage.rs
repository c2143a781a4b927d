//! Tests `ps`, `exec`, `stop` and `prune` on every engine, and the cleanup after a killed launcher.

use crate::support::{Engine, Fixture, IMAGE, RunToEnd, Running, eventually, is_running, sandpen_without_home, signal};
use crate::{for_every_container_engine, for_every_engine};

for_every_container_engine!(
    a_kept_container_stays_until_prune,
    a_kept_container_of_a_killed_launcher_stays_too,
    a_container_that_never_ran_is_not_kept,
    a_container_of_another_that_has_the_name_is_left_alone,
);
for_every_engine!(
    a_name_belongs_to_one_running_sandbox,
    a_killed_launchers_name_is_free_again,
    the_memory_of_a_sandbox_is_that_of_its_processes,
    a_running_sandbox_is_listed_entered_and_stopped,
    attack_24_exec_has_the_same_restrictions,
    an_unknown_id_is_an_error_that_lists_the_known_ids,
    prune_removes_what_a_killed_launcher_left,
    the_next_launch_removes_what_a_killed_launcher_left,
    a_second_sigterm_ends_a_guest_that_ignores_the_first,
    a_guest_that_ignores_sigterm_is_killed_after_a_grace_period,
);

fn start(fixture: &Fixture) -> Running {
    let mut running = Running::start(fixture.run().args(["--", "bash", "-c", "echo ready; exec sleep 300"]));
    assert_eq!(running.line(), "ready");
    running
}

/// Returns the ids of the running sandboxes.
fn ids(fixture: &Fixture) -> Vec<String> {
    let list = fixture.sandpen(["ps", "--format", "json"]).finish().json();
    let list = list.as_array().expect("a list");
    for sandbox in list {
        for key in ["id", "engine", "command", "directory", "age", "state", "memory"] {
            assert!(sandbox.get(key).is_some(), "{key} in {sandbox}");
        }
        assert_eq!(sandbox["engine"], fixture.engine().flag());
        assert_eq!(sandbox["directory"], fixture.project.display().to_string());
    }
    list.iter().map(|sandbox| sandbox["id"].as_str().expect("an id").to_owned()).collect()
}

fn a_running_sandbox_is_listed_entered_and_stopped(fixture: &Fixture) {
    let mut running = start(fixture);
    let listed = ids(fixture);
    assert_eq!(listed.len(), 1);
    let table = fixture.sandpen(["ps"]).finish();
    assert!(table.success().lines().count() == 2 && table.stdout.contains(&listed[0]), "{}", table.stdout);
    let finished = fixture.sandpen(["exec", &listed[0], "--", "sh", "-c", "echo $SANDBOX; pwd; exit 5"]).finish();
    assert_eq!(
        (finished.code, finished.stdout),
        (Some(5), format!("sandpen-{}\n{}\n", listed[0], fixture.project.display())),
        "{}",
        finished.stderr
    );
    let stopped = fixture.sandpen(["stop", &listed[0]]).finish();
    stopped.success();
    assert_eq!(running.finish().code, Some(143));
    assert!(ids(fixture).is_empty());
    assert!(fixture.sessions().is_empty());
}

fn attack_24_exec_has_the_same_restrictions(fixture: &Fixture) {
    let running = start(fixture);
    let id = ids(fixture).remove(0);
    let script = r#"grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\t ' ' ';
        unshare -Ur true 2>/dev/null && echo 'a user namespace'; touch /usr/x 2>/dev/null && [ -e /usr/x ] && echo 'wrote' ; cat /etc/shadow 2>/dev/null; true"#;
    let first = fixture.bash(script);
    let finished = fixture.sandpen(["exec", &id, "--", "bash", "-c", script]).finish();
    assert_eq!(finished.success(), first.success());
    assert!(finished.stdout.contains("NoNewPrivs: 1") && finished.stdout.contains("Seccomp: 2"), "{}", finished.stdout);
    drop(running);
}

fn an_unknown_id_is_an_error_that_lists_the_known_ids(fixture: &Fixture) {
    for command in [&["stop", "nothing"][..], &["exec", "nothing", "--", "true"]] {
        let finished = fixture.sandpen(command).finish();
        finished.failure(44);
        assert!(finished.stderr.contains("no running sandbox is named `nothing`"), "{}", finished.stderr);
    }
    let running = start(fixture);
    let id = ids(fixture).remove(0);
    let finished = fixture.sandpen(["stop", "nothing"]).finish();
    assert!(finished.code == Some(44) && finished.stderr.contains(&id), "{}", finished.stderr);
    drop(running);
}

fn killed(fixture: &Fixture) {
    let mut running = start(fixture);
    signal(running.pid(), rustix::process::Signal::KILL);
    running.finish();
    eventually("the container is gone", || fixture.containers().is_empty());
    let [session] = &fixture.sessions()[..] else { panic!("a killed launcher cannot clean up") };
    let container = format!("sandpen-{}", session.file_name().expect("an id").display());
    eventually("no client of the engine is left", || !is_running(&container));
}

fn prune_removes_what_a_killed_launcher_left(fixture: &Fixture) {
    killed(fixture);
    let live = start(fixture);
    let finished = fixture.sandpen(["prune"]).finish();
    finished.success();
    // The running sandbox also removes stale sessions, and may have done so first.
    eventually("only the live one stays", || fixture.sessions().len() == 1);
    assert_eq!(ids(fixture).len(), 1);
    drop(live);
}

fn the_next_launch_removes_what_a_killed_launcher_left(fixture: &Fixture) {
    killed(fixture);
    fixture.run().args(["--", "true"]).finish().success();
    assert!(fixture.sessions().is_empty(), "{:?}", fixture.sessions());
}

fn stubborn(fixture: &Fixture) -> Running {
    let mut running = Running::start(fixture.run().args([
        "--",
        "bash",
        "-c",
        "trap 'echo ignored' TERM; echo ready; while :; do sleep 0.2; done",
    ]));
    assert_eq!(running.line(), "ready");
    running
}

fn a_second_sigterm_ends_a_guest_that_ignores_the_first(fixture: &Fixture) {
    let mut running = stubborn(fixture);
    let first = std::time::Instant::now();
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.line(), "ignored");
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.finish().code, Some(137));
    assert!(first.elapsed().as_secs() < 10, "the second signal did not end the grace period");
    eventually("nothing is left", || fixture.containers().is_empty() && fixture.sessions().is_empty());
}

fn a_guest_that_ignores_sigterm_is_killed_after_a_grace_period(fixture: &Fixture) {
    let mut running = stubborn(fixture);
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.finish().code, Some(137));
    eventually("nothing is left", || fixture.containers().is_empty() && fixture.sessions().is_empty());
}

/// Returns the entry of the only sandbox that `ps` lists.
fn only(fixture: &Fixture) -> serde_json::Value {
    let list = fixture.sandpen(["ps", "--format", "json"]).finish().json();
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    list[0].clone()
}

fn start_named(fixture: &Fixture, script: &str) -> Running {
    let mut running = Running::start(fixture.run().args(["--name", "review-2", "--", "bash", "-c", script]));
    assert_eq!(running.line(), "ready");
    running
}

fn a_name_belongs_to_one_running_sandbox(fixture: &Fixture) {
    let mut running = start_named(fixture, "echo ready; echo $SANDBOX; exec sleep 300");
    assert_eq!(running.line(), "sandpen-review-2");
    assert_eq!(only(fixture)["id"], "review-2");
    assert_eq!(fixture.sandpen(["ps", "--quiet"]).finish().success(), "review-2");
    if fixture.engine().is_container() {
        assert_eq!(fixture.containers(), ["sandpen-review-2"]);
    }
    let second = fixture.run().args(["--name", "review-2", "--", "true"]).finish();
    second.failure(44);
    assert!(second.stderr.contains("a sandbox named `review-2` already exists"), "{}", second.stderr);
    assert!(second.stderr.contains("hint: ") && second.stderr.contains("sandpen stop review-2"), "{}", second.stderr);
    assert_eq!(fixture.sandpen(["exec", "review-2", "--", "echo", "inside"]).finish().success(), "inside");
    fixture.sandpen(["stop", "review-2"]).finish().success();
    assert_eq!(running.finish().code, Some(143));
    // The name is free at once, even for the same project.
    assert_eq!(fixture.run().args(["--name", "review-2", "--", "echo", "again"]).finish().success(), "again");
    assert!(fixture.sessions().is_empty() && fixture.containers().is_empty());
}

fn a_killed_launchers_name_is_free_again(fixture: &Fixture) {
    let mut running = start_named(fixture, "echo ready; exec sleep 300");
    signal(running.pid(), rustix::process::Signal::KILL);
    running.finish();
    // The new launch does not wait, so the old container may still be ending.
    let again = fixture.run().args(["--name", "review-2", "--", "echo", "again"]).finish();
    assert_eq!(again.success(), "again", "{}", again.stderr);
    eventually("nothing is left", || fixture.sessions().is_empty() && fixture.containers().is_empty());
}

#[test]
fn an_invalid_sandbox_name_is_a_usage_error() {
    for name in ["A", "a b", "../x", "-x", "x_y"] {
        let finished = sandpen_without_home(std::path::Path::new("/usr"))
            .args(["run", &format!("--name={name}"), "--", "true"])
            .finish();
        finished.failure(2);
        assert!(
            finished.stderr.contains("is not a name for a sandbox") && finished.stderr.contains("hint: "),
            "{}",
            finished.stderr
        );
    }
}

fn a_kept_container_stays_until_prune(fixture: &Fixture) {
    let script = "echo made > /var/tmp/inside 2>/dev/null || echo made > ~/inside; exit 3";
    let finished =
        fixture.run().args(["--keep", "--name", "kept", "--env", "A=b", "--", "bash", "-c", script]).finish();
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(3), ""));
    assert_eq!(fixture.containers(), ["sandpen-kept"]);
    let listed = only(fixture);
    assert_eq!((&listed["id"], &listed["state"], &listed["exit_code"]), (&"kept".into(), &"ended".into(), &3.into()));
    assert_eq!((&listed["memory"], &listed["pid"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    assert!(fixture.sandpen(["ps"]).finish().success().contains("ended (3)"));
    assert_eq!(fixture.sandpen(["ps", "-q"]).finish().success(), "", "`ps -q` lists only running sandboxes");
    // Other launches neither fail nor remove it; only its name is taken.
    fixture.run().args(["--", "true"]).finish().success();
    assert_eq!(fixture.run().args(["--name", "kept", "--", "true"]).finish().code, Some(44));
    let finished = fixture.sandpen(["exec", "kept", "--", "true"]).finish();
    assert!(finished.code == Some(44) && finished.stderr.contains("has ended"), "{}", finished.stderr);
    let finished = fixture.sandpen(["stop", "kept"]).finish();
    assert!(finished.code == Some(0) && finished.stderr.contains("`sandpen prune` removes it"), "{}", finished.stderr);
    assert_eq!((fixture.containers().len(), fixture.sessions().len()), (1, 1));
    let finished = fixture.sandpen(["prune"]).finish();
    assert!(finished.code == Some(0) && finished.stderr.contains("1 kept sandbox removed"), "{}", finished.stderr);
    assert_eq!((fixture.containers().len(), fixture.sessions().len()), (0, 0));
}

fn a_container_of_another_that_has_the_name_is_left_alone(fixture: &Fixture) {
    let name = "sandpen-taken-by-another";
    let other = ["run", "--detach", "--name", name, "--network", "none", IMAGE, "sleep", "300"];
    fixture.client().args(other).finish().success();
    let finished = fixture.run().args(["--name", "taken-by-another", "--", "true"]).finish();
    let state = fixture.client().args(["inspect", "--format", "{{.State.Status}}", name]).finish();
    fixture.client().args(["rm", "--force", name]).finish().success();
    assert_eq!(finished.code, Some(44), "{}", finished.stderr);
    assert_eq!(state.stdout.trim(), "running", "{}", state.stderr);
}

fn a_kept_container_of_a_killed_launcher_stays_too(fixture: &Fixture) {
    let mut running = Running::start(fixture.run().args(["--keep", "--", "bash", "-c", "echo ready; exec sleep 300"]));
    assert_eq!(running.line(), "ready");
    signal(running.pid(), rustix::process::Signal::KILL);
    running.finish();
    eventually("it has ended", || {
        let state =
            fixture.client().args(["inspect", "--format", "{{.State.Status}}", &fixture.containers()[0]]).finish();
        state.stdout.trim() == "exited"
    });
    fixture.run().args(["--", "true"]).finish().success();
    let listed = only(fixture);
    assert_eq!((&listed["state"], &listed["exit_code"]), (&"ended".into(), &serde_json::Value::Null));
    fixture.sandpen(["prune"]).finish().success();
    assert_eq!((fixture.containers().len(), fixture.sessions().len()), (0, 0));
}

fn a_container_that_never_ran_is_not_kept(fixture: &Fixture) {
    let finished = fixture.run().args(["--keep", "--engine-flag", "--no-such-flag", "--", "true"]).finish();
    finished.failure(44);
    assert_eq!((fixture.containers().len(), fixture.sessions().len()), (0, 0));
}

#[test]
fn native_keeps_nothing_and_says_so() {
    Fixture::on(Engine::Native, |fixture| {
        let finished = fixture.run().args(["--keep", "--", "true"]).finish();
        assert!(finished.code == Some(0) && finished.stderr.contains("nothing is kept"), "{}", finished.stderr);
        assert!(fixture.sessions().is_empty());
        let finished = fixture.run().args(["--keep", "--strict", "--", "true"]).finish();
        assert!(finished.code == Some(44) && finished.stderr.contains("hint: "), "{}", finished.stderr);
    });
}

fn the_memory_of_a_sandbox_is_that_of_its_processes(fixture: &Fixture) {
    let script = "my $x = 'x' x (64 << 20); $| = 1; print \"ready\\n\"; sleep 300";
    let mut running = Running::start(fixture.run().args(["--", "perl", "-e", script]));
    assert_eq!(running.line(), "ready");
    let memory = only(fixture)["memory"].as_u64().expect("a number of bytes");
    assert!((64 << 20..400 << 20).contains(&memory), "{memory}");
    running.signal(rustix::process::Signal::TERM);
    running.finish();
}

/// Docker creates a directory for each bind source that is missing, such as the lock of a killed
/// launcher whose session was removed.
#[test]
fn a_session_that_an_engine_made_up_is_removed() {
    Fixture::on(Engine::NativeRoot, |fixture| {
        for name in ["owner", "status", "home"] {
            std::fs::create_dir_all(fixture.home.join(".local/state/sandpen/sessions/0123456789ab").join(name))
                .expect("made");
        }
        fixture.sandpen(["prune"]).finish().success();
        assert!(fixture.sessions().is_empty(), "{:?}", fixture.sessions());
    });
}
