//! Tests that `exec` ends what it started, however it ends, and that `exec --detach` leaves it.

use rustix::process::Signal;

use crate::for_every_engine;
use crate::support::pty::Pty;
use crate::support::{Fixture, RunToEnd, Running, eventually, signal};

for_every_engine!(
    no_process_of_an_ended_exec_survives,
    no_process_of_a_killed_exec_survives,
    no_process_of_an_exec_whose_terminal_hangs_up_survives,
    a_detached_command_runs_until_the_sandbox_ends,
);

/// Leaves processes in every way that job control does not reach; `$1` marks them. The last one
/// starts others as fast as it can.
const LEAVER: &str = r#"#!/bin/bash
sleep 300.$1 &
nohup sleep 300.$1 >/dev/null 2>&1 &
setsid sleep 300.$1 </dev/null >/dev/null 2>&1 &
(setsid bash -c "(setsid sleep 300.$1 &) & sleep 300.$1" </dev/null >/dev/null 2>&1 &)
(setsid bash -c "trap '' HUP TERM; while :; do sleep 300.$1 & sleep 0.01; kill \$!; done" </dev/null >/dev/null 2>&1 &)
echo started-$1
"#;

/// Starts a sandbox in which nothing runs that has a mark; returns its id as well.
fn start(fixture: &Fixture, last: &str) -> (Running, String) {
    fixture.write_script("project/leaver", &format!("{LEAVER}{last}\n"));
    let script = "echo ${SANDBOX#sandpen-}; exec sleep 300";
    let mut running = Running::start(fixture.run().args(["--", "bash", "-c", script]));
    let id = running.line();
    (running, id)
}

/// Returns how many processes inside have the mark on their command lines.
fn count(fixture: &Fixture, id: &str, mark: &str) -> usize {
    let script = format!("grep -l '300[.]{mark}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l");
    let finished = fixture.sandpen(["exec", id, "--", "bash", "-c", &script]).finish();
    // The shell that counts has the mark itself, in another form.
    finished.success().trim().parse().expect("a number")
}

fn no_process_of_an_ended_exec_survives(fixture: &Fixture) {
    let (_running, id) = start(fixture, "exit 3");
    for mark in ["71", "72"] {
        let finished = fixture.sandpen(["exec", &id, "--", "./leaver", mark]).finish();
        assert_eq!((finished.code, finished.stdout.trim()), (Some(3), format!("started-{mark}").as_str()));
        assert_eq!(count(fixture, &id, mark), 0, "the processes are gone when `exec` returns");
    }
}

fn no_process_of_a_killed_exec_survives(fixture: &Fixture) {
    let (_running, id) = start(fixture, "sleep 300.$1");
    for (mark, how) in [("73", Signal::KILL), ("74", Signal::TERM)] {
        let mut exec = Running::start(&mut fixture.sandpen(["exec", &id, "--", "./leaver", mark]));
        assert_eq!(exec.line(), format!("started-{mark}"));
        assert!(count(fixture, &id, mark) > 3, "its processes run");
        signal(exec.pid(), how);
        exec.finish();
        eventually("its processes are gone", || count(fixture, &id, mark) == 0);
    }
}

fn no_process_of_an_exec_whose_terminal_hangs_up_survives(fixture: &Fixture) {
    let (_running, id) = start(fixture, "sleep 300.$1");
    for (mark, is_leader) in [("75", true), ("76", false)] {
        let command = fixture.sandpen(["exec", &id, "--", "./leaver", mark]);
        let mut pty = if is_leader { Pty::leader(&command) } else { Pty::script("\"$@\"", &command) };
        pty.expect(&format!("started-{mark}"));
        assert!(count(fixture, &id, mark) > 3, "{mark}: its processes run");
        pty.hang_up();
        eventually(&format!("{mark}: its processes are gone"), || count(fixture, &id, mark) == 0);
    }
}

fn a_detached_command_runs_until_the_sandbox_ends(fixture: &Fixture) {
    let (mut running, id) = start(fixture, "");
    let script = "echo in-$(readlink /proc/self/fd/0)-$$ >detached; exec sleep 300.77";
    let finished = fixture.sandpen(["exec", "-d", &id, "--", "bash", "-c", script]).finish();
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    eventually("it runs", || count(fixture, &id, "77") == 1);
    let written = std::fs::read_to_string(fixture.project.join("detached")).expect("a file");
    assert!(written.starts_with("in-/dev/null-"), "{written}");
    let finished = fixture.sandpen(["exec", "--detach", &id, "--", "no-such-command"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(127), ""), "{}", finished.stderr);
    assert_eq!(count(fixture, &id, "77"), 1, "other commands do not end it");
    fixture.sandpen(["stop", &id]).finish().success();
    assert_eq!(running.finish().code, Some(143));
    eventually("it has ended with the sandbox", || !crate::support::is_running("300.77"));
}
