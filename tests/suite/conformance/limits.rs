//! Limits hold where the engine can enforce them; where it cannot, that is said, and an error under `--strict`.

use crate::support::{Pen, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(the_pids_limit_holds, the_memory_limit_holds,);
for_every_container_engine!(cpus_are_a_promise_or_a_downgrade,);

/// Whether the engine promises to enforce what is asked for; if not, checks that it says so everywhere.
fn is_enforced(pen: &Pen, arguments: &[&str], asked: &str) -> bool {
    let explained = pen.explain(&[arguments, &["--", "true"]].concat());
    let downgrades = explained["downgrades"].as_array().expect("downgrades");
    let strict = pen.run().args(arguments).args(["--strict", "--", "echo", "ran"]).ran();
    if downgrades.is_empty() {
        assert_eq!(strict.ok(), "ran");
        return true;
    }
    assert!(pen.engine.is_rootless(), "a rootful engine can enforce limits: {downgrades:?}");
    assert_eq!(downgrades.len(), 1, "{downgrades:?}");
    for key in ["asked", "got", "reason"] {
        assert!(downgrades[0][key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {downgrades:?}");
    }
    assert!(downgrades[0]["asked"].as_str().is_some_and(|text| text.starts_with(asked)), "{downgrades:?}");
    assert_eq!((strict.code, strict.stdout.as_str()), (Some(44), ""), "{}", strict.stderr);
    assert!(strict.stderr.contains(asked) && strict.stderr.contains("hint: "), "{}", strict.stderr);
    let ran = pen.run().args(arguments).args(["--", "echo", "ran"]).ran();
    assert_eq!(ran.ok(), "ran");
    assert!(ran.stderr.contains("sandpen: warning: ") && ran.stderr.contains(asked), "{}", ran.stderr);
    false
}

fn the_pids_limit_holds(pen: &Pen) {
    let arguments = ["--pids", "20"];
    if !is_enforced(pen, &arguments, "pids 20") {
        return;
    }
    // At most sixty sleepers, whatever happens; they end with the sandbox.
    let script = "for (1..60) { my $p = fork; last unless defined $p; if (!$p) { sleep 60; exit } $n++ } print $n";
    let ran = pen.run().args(arguments).args(["--", "perl", "-e", script]).ran();
    let forked: u32 = ran.ok().parse().expect("a number");
    assert!((5..20).contains(&forked), "{forked} processes under a limit of 20");
}

fn the_memory_limit_holds(pen: &Pen) {
    let arguments = ["--memory", "64m"];
    if !is_enforced(pen, &arguments, "memory 64m") {
        return;
    }
    // Four times as much: with swap, engines allow the double.
    let script = "$| = 1; print 'started'; my $n = 256; my $x = 'x' x ($n << 20); print 'survived'";
    let ran = pen.run().args(arguments).args(["--", "perl", "-e", script]).ran();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(137), "started"), "{}", ran.stderr);
    let reason =
        "sandpen: killed for using more memory than its limit of 64m (flag --memory); raise it with `--memory`";
    assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    // A 137 of the guest's own is not explained away.
    let ran = pen.run().args(arguments).args(["--", "sh", "-c", "kill -9 $$"]).ran();
    assert_eq!((ran.code, ran.stderr.contains("memory than its limit")), (Some(137), false), "{}", ran.stderr);
}

fn cpus_are_a_promise_or_a_downgrade(pen: &Pen) {
    if is_enforced(pen, &["--cpus", "0.5"], "cpus 0.5") {
        let script = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>&-; true";
        let ran = pen.run().args(["--cpus", "0.5", "--", "bash", "-c", script]).ran();
        assert!(ran.ok().starts_with("50000"), "{}", ran.stdout);
    }
}
