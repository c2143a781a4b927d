//! Limits are enforced if the engine can; otherwise there is a warning, or an error with
//! `--strict`.

use std::process::{Command, Stdio};

use crate::support::{Engine, Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(the_pids_limit_holds, the_memory_limit_holds,);
for_native_image!(the_pids_limit_holds);
for_every_container_engine!(cpus_are_a_promise_or_a_downgrade,);

/// Returns whether the plan promises the limit. If not, checks the downgrade, the warning and the
/// error.
fn is_enforced(fixture: &Fixture, arguments: &[&str], asked: &str) -> bool {
    let explained = fixture.explain(&[arguments, &["--", "true"]].concat());
    let downgrades = explained["downgrades"].as_array().expect("downgrades");
    let strict = fixture.run().args(arguments).args(["--strict", "--", "echo", "ran"]).finish();
    if downgrades.is_empty() {
        assert_eq!(strict.success(), "ran");
        return true;
    }
    assert!(fixture.engine().is_rootless(), "a rootful engine can enforce limits: {downgrades:?}");
    assert_eq!(downgrades.len(), 1, "{downgrades:?}");
    for key in ["asked", "got", "reason"] {
        assert!(downgrades[0][key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {downgrades:?}");
    }
    assert!(downgrades[0]["asked"].as_str().is_some_and(|text| text.starts_with(asked)), "{downgrades:?}");
    assert_eq!((strict.code, strict.stdout.as_str()), (Some(44), ""), "{}", strict.stderr);
    assert!(strict.stderr.contains(asked) && strict.stderr.contains("hint: "), "{}", strict.stderr);
    let finished = fixture.run().args(arguments).args(["--", "echo", "ran"]).finish();
    assert_eq!(finished.success(), "ran");
    assert!(finished.stderr.contains("sandpen: warning: ") && finished.stderr.contains(asked), "{}", finished.stderr);
    false
}

fn the_pids_limit_holds(fixture: &Fixture) {
    let arguments = ["--pids", "20"];
    if !is_enforced(fixture, &arguments, "pids 20") {
        return;
    }
    // There are at most sixty processes even if the limit fails; they end with the sandbox.
    let script = "for (1..60) { my $p = fork; last unless defined $p; if (!$p) { sleep 60; exit } $n++ } print $n";
    let finished = fixture.run().args(arguments).args(["--", "perl", "-e", script]).finish();
    let forked: u32 = finished.success().parse().expect("a number");
    assert!((5..20).contains(&forked), "{forked} processes were started under a limit of 20");
}

fn the_memory_limit_holds(fixture: &Fixture) {
    let arguments = ["--memory", "64m"];
    if !is_enforced(fixture, &arguments, "memory 64m") {
        return;
    }
    // The script uses four times the limit, because with swap, engines allow twice the limit.
    let script = "$| = 1; print 'started'; my $n = 256; my $x = 'x' x ($n << 20); print 'survived'";
    let finished = fixture.run().args(arguments).args(["--", "perl", "-e", script]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(137), "started"), "{}", finished.stderr);
    let reason =
        "sandpen: killed for using more memory than its limit of 64m (flag --memory); raise it with `--memory`";
    assert!(finished.stderr.contains(reason), "{}", finished.stderr);
    // If the guest itself exits with 137, sandpen does not report the memory limit.
    let finished = fixture.run().args(arguments).args(["--", "sh", "-c", "kill -9 $$"]).finish();
    assert_eq!(
        (finished.code, finished.stderr.contains("memory than its limit")),
        (Some(137), false),
        "{}",
        finished.stderr
    );
}

/// Hides the control groups behind plain directories, in which creating a directory does not create
/// a control group.
fn with_hidden_control_groups(command: &Command) -> Command {
    let script = "cd /sys/fs && mount -t tmpfs none cgroup && mkdir -m 777 cgroup/cpu cgroup/memory cgroup/pids &&
        cd \"$0\" && exec \"$@\"";
    let directory = command.get_current_dir().expect("a directory");
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", script]).arg(directory).arg(command.get_program()).args(command.get_args());
    hidden.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    hidden.stdin(Stdio::null());
    hidden
}

fn a_limit_that_fails_at_launch_is_an_error_with_strict(fixture: &Fixture) {
    let run = |options: &[&str]| {
        with_hidden_control_groups(fixture.run().args(options).args(["--", "touch", "started"])).finish()
    };
    let started = fixture.project.join("started");
    let strict = run(&["--memory", "64m", "--strict"]);
    assert!(strict.failure(44).contains("memory 64m (flag --memory) cannot be enforced"), "{}", strict.stderr);
    assert!(strict.stderr.contains("cannot create a control group"), "{}", strict.stderr);
    assert!(!started.exists(), "the guest was started");
    assert!(fixture.sessions().is_empty(), "{:?}", fixture.sessions());
    let warned = run(&["--memory", "64m"]);
    warned.success();
    assert!(warned.stderr.contains("sandpen: warning: memory 64m (flag --memory): no limit"), "{}", warned.stderr);
    assert!(started.exists());
    // The default limit of processes is best effort, so `--strict` does not fail.
    run(&["--strict"]).success();
}

#[test]
fn a_limit_that_fails_at_launch_is_an_error_with_strict_native() {
    Fixture::on(Engine::Native, a_limit_that_fails_at_launch_is_an_error_with_strict);
}

#[test]
fn a_limit_that_fails_at_launch_is_an_error_with_strict_native_root() {
    Fixture::on(Engine::NativeRoot, a_limit_that_fails_at_launch_is_an_error_with_strict);
}

fn cpus_are_a_promise_or_a_downgrade(fixture: &Fixture) {
    if is_enforced(fixture, &["--cpus", "0.5"], "cpus 0.5") {
        let script = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>&-; true";
        let finished = fixture.run().args(["--cpus", "0.5", "--", "bash", "-c", script]).finish();
        assert!(finished.success().starts_with("50000"), "{}", finished.stdout);
    }
}
