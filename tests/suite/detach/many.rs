//! Tests many detached sandboxes at once, and kills their launchers in each state.

use rustix::process::Signal;

use super::{assert_nothing_left, assert_pruned, attach, launchers, start, state};
use crate::for_every_engine;
use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, RunToEnd, Running, eventually, is_running, signal};

for_every_engine!(
    launchers_that_are_killed_in_each_state_leave_nothing,
    a_guest_that_does_not_stop_is_killed_and_its_end_stays,
);

/// Says that it is asked to end, and goes on.
const STUBBORN: &str = "#!/bin/bash
trap 'touch \"ending-$1\"' TERM
echo \"up-$1\"
while :; do sleep 0.1; done
";

fn a_guest_that_does_not_stop_is_killed_and_its_end_stays(fixture: &Fixture) {
    fixture.write_script("project/stubborn", STUBBORN);
    let id = fixture.run().args(["-d", "--", "./stubborn", "killed"]).finish().success().trim().to_owned();
    attach(fixture, &id, &["--read-only"]).expect("up-killed");
    let stopped = fixture.sandpen(["stop", "--time", "1", &id]).finish();
    stopped.success();
    assert!(stopped.stderr.contains("did not exit within 1 s, killing it"), "{}", stopped.stderr);
    assert_eq!(state(fixture, &id).as_deref(), Some("ended"));
    let shown = fixture.sandpen(["attach", &id]).finish();
    shown.failure(137);
    assert!(shown.stdout.contains("up-killed"), "{}", shown.stdout);
    assert_pruned(fixture);
}

#[test]
fn twenty_detached_sandboxes_run_at_once() {
    Fixture::on(Engine::Native, |fixture| {
        let ids: Vec<String> = (0..20).map(|_| start(fixture)).collect();
        for id in &ids {
            let mut pty = attach(fixture, id, &[]);
            pty.expect("painted-42");
            pty.send("end\r");
            pty.expect("[ended 7]");
        }
        assert_pruned(fixture);
    });
}

/// What a sandbox does when its launcher is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Starting,
    Detached,
    Attached,
    Watched,
    Ending,
}

const STATES: [When; 5] = [When::Starting, When::Detached, When::Attached, When::Watched, When::Ending];

struct Sandbox {
    when: When,
    mark: String,
    caller: Running,
}

fn launchers_that_are_killed_in_each_state_leave_nothing(fixture: &Fixture) {
    fixture.write_script("project/stubborn", STUBBORN);
    let count = if fixture.engine().is_container() { STATES.len() } else { 20 };
    let common = format!("4{}.", std::process::id());
    let mut sandboxes: Vec<Sandbox> = (0..count)
        .map(|number| {
            let (when, mark) = (STATES[number % STATES.len()], format!("{common}{number}"));
            let mut command = fixture.run();
            command.args(["--detach", "--", "./stubborn", &mark]);
            Sandbox { when, mark, caller: Running::start(&mut command) }
        })
        .collect();
    for Sandbox { caller, .. } in sandboxes.iter_mut().filter(|sandbox| sandbox.when == When::Starting) {
        // The caller may have left before; then its sandbox is killed with the detached ones.
        eventually("the launcher starts", || !caller.children().is_empty() || caller.has_exited());
        caller.children().into_iter().for_each(|launcher| signal(launcher, Signal::KILL));
    }
    let (mut terminals, mut stops): (Vec<Pty>, Vec<Running>) = Default::default();
    for Sandbox { when, mark, caller } in &mut sandboxes {
        if *when == When::Starting {
            continue;
        }
        let id = caller.line();
        match when {
            When::Attached | When::Watched => {
                let options: &[&str] = if *when == When::Watched { &["--read-only"] } else { &[] };
                let mut pty = attach(fixture, &id, options);
                pty.expect(&format!("up-{mark}"));
                terminals.push(pty);
            }
            When::Ending => {
                stops.push(Running::start(fixture.sandpen(["stop", &id]).args(["--time", "600"])));
                let ending = fixture.project.join(format!("ending-{mark}"));
                eventually("the guest is asked to end", || ending.exists());
            }
            _ => assert_eq!(state(fixture, &id).as_deref(), Some("detached")),
        }
    }
    let launchers = launchers(fixture);
    assert!(launchers.len() >= count - count / STATES.len(), "{launchers:?}");
    launchers.into_iter().for_each(|launcher| signal(launcher, Signal::KILL));
    for pty in &mut terminals {
        pty.expect("[ended 44]");
        assert!(!pty.is_raw());
    }
    for running in stops.into_iter().chain(sandboxes.into_iter().map(|sandbox| sandbox.caller)) {
        let mut running = running;
        running.finish();
    }
    eventually("no process is left", || !is_running(&common));
    assert_nothing_left(fixture);
}
