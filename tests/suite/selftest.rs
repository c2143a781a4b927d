//! `sandpen selftest`: every promise holds on every engine, and every probe can fail.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::cli::world::World;
use crate::for_every_engine;
use crate::seatbelt::world::World as SeatbeltWorld;
use crate::ssh::rig::Agent;
use crate::support::{Engine, IMAGE, Pen, Ran, RunToEnd, binary};

for_every_engine!(every_promise_holds, what_the_user_opens_is_not_promised, the_agent_is_there_exactly_if_forwarded);

/// The probes of a sandbox that has a kernel around it.
const PROBES: &[&str] = &[
    "home",
    "temp",
    "credentials",
    "system",
    "engines",
    "ssh agent",
    "capabilities",
    "new privileges",
    "system calls",
    "terminal",
    "namespaces",
    "processes",
    "network",
    "pids",
    "memory",
];

fn selftest(pen: &Pen, arguments: &[&str]) -> Command {
    let mut command = pen.sandpen();
    command.args(["selftest", "--format", "json", "--engine", pen.engine.flag()]);
    if pen.engine.is_container() {
        command.args(["--image", IMAGE]);
    }
    command.args(arguments);
    command
}

#[track_caller]
fn report(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[track_caller]
fn state(report: &Value, name: &str) -> (String, String) {
    let probes = report["probes"].as_array().expect("probes");
    let probe = probes.iter().find(|probe| probe["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"));
    let text = |key: &str| probe[key].as_str().expect("text").to_owned();
    assert!(!text("promised").is_empty() && !text("seen").is_empty(), "{probe:#}");
    (text("state"), text("seen"))
}

/// Asserts that exactly these failed.
#[track_caller]
fn assert_failed(ran: &Ran, names: &[&str]) {
    let report = report(ran);
    let probes = report["probes"].as_array().expect("probes").iter();
    let failed: Vec<&str> =
        probes.filter(|probe| probe["state"] == "failed").filter_map(|probe| probe["name"].as_str()).collect();
    assert_eq!(failed, names, "{report:#}\n{}", ran.stderr);
    assert_eq!((ran.code, &report["held"]), (Some(i32::from(!names.is_empty())), &Value::Bool(names.is_empty())));
}

/// Nothing of it stays: no session, no container, no canary.
#[track_caller]
fn assert_clean(pen: &Pen) {
    assert_eq!((pen.sessions(), pen.containers()), (Vec::<PathBuf>::new(), Vec::<String>::new()));
    let entries = |directory: &PathBuf| fs::read_dir(directory).expect("directory").flatten().map(|entry| entry.path());
    let left: Vec<PathBuf> =
        entries(&pen.home).filter(|path| path.display().to_string().contains("selftest")).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

fn every_promise_holds(pen: &Pen) {
    pen.host_command("git").args(["init", "--quiet"]).ran().ok();
    pen.write(".ssh/id_ed25519", "not really a key");
    let asked: &[&[&str]] =
        &[&[], &["--network", "off", "--memory", "256m", "--pids", "60"], &["--allow-host", "example.org"]];
    for arguments in asked {
        let ran = selftest(pen, arguments).ran();
        assert_failed(&ran, &[]);
        let report = report(&ran);
        assert_eq!(report["engine"], pen.engine.flag());
        for name in PROBES.iter().chain(&["hooks"]) {
            state(&report, name);
        }
        assert_eq!(state(&report, "hooks"), ("held".into(), "no hook planted".into()));
        assert_eq!(state(&report, "credentials"), ("held".into(), "1 file tried, none readable".into()));
    }
    let limits = report(&selftest(pen, asked[1]).ran());
    let can_limit = |name: &str| !pen.engine.is_rootless() || name == "pids" && pen.engine == Engine::Native;
    for name in ["pids", "memory"] {
        let expected = if can_limit(name) { "held" } else { "not-promised" };
        assert_eq!(state(&limits, name).0, expected, "{limits:#}");
    }
    assert_clean(pen);
}

fn what_the_user_opens_is_not_promised(pen: &Pen) {
    let mount = format!("{}:/elsewhere", pen.home.display());
    let same = pen.home.display().to_string();
    for (mount, seen) in [(mount, "no access"), (same, "read a planted file")] {
        let ran = selftest(pen, &["--mount", &mount]).ran();
        assert_failed(&ran, &[]);
        assert_eq!(state(&report(&ran), "home"), ("not-promised".into(), seen.into()), "{mount}");
    }
    pen.host_command("git").args(["init", "--quiet"]).ran().ok();
    let ran = selftest(pen, &["--guard", "off"]).ran();
    assert_failed(&ran, &[]);
    assert_eq!(state(&report(&ran), "hooks"), ("not-promised".into(), "planted a hook".into()));
    let ran = selftest(pen, &["--tmp", "host"]).ran();
    assert_failed(&ran, &[]);
    let both = "read a planted file and wrote another";
    assert_eq!(state(&report(&ran), "temp"), ("not-promised".into(), both.into()));
    assert_clean(pen);
}

fn the_agent_is_there_exactly_if_forwarded(pen: &Pen) {
    let agent = Agent::with_key(pen);
    let run = |mode: &str| {
        let mut command = selftest(pen, &["--ssh-agent", mode]);
        command.env("SSH_AUTH_SOCK", &agent.socket).ran()
    };
    let (on, off) = (run("on"), run("off"));
    assert_failed(&on, &[]);
    assert_eq!(state(&report(&on), "ssh agent").1, "an agent answers at /ssh-agent with 1 key");
    assert_failed(&off, &[]);
    assert_eq!(state(&report(&off), "ssh agent").1, "no agent answers");
}

/// What the user's own flags take away is found out.
#[test]
fn every_wall_that_a_flag_takes_down_is_missed() {
    Pen::on(Engine::Docker, |pen| {
        let agent = Agent::with_key(pen);
        let socket = agent.socket.display().to_string();
        for (arguments, failed) in [
            (vec!["--engine-flag=--cap-add=NET_RAW".to_owned()], "capabilities"),
            (vec!["--engine-flag=--network=host".to_owned()], "loopback"),
            (vec!["--engine-flag=--pid=host".to_owned()], "processes"),
            (vec![format!("--engine-flag=--volume={socket}:/ssh-agent")], "ssh agent"),
            (vec!["--engine-flag=--volume=/var/run/docker.sock:/run/docker.sock".to_owned()], "engines"),
            (vec!["--pids=50".to_owned(), "--engine-flag=--pids-limit=-1".to_owned()], "pids"),
            (vec!["--memory=256m".to_owned(), "--engine-flag=--memory=1g".to_owned()], "memory"),
        ] {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = selftest(pen, &arguments).ran();
            assert_failed(&ran, &[failed]);
        }
        let ran = selftest(pen, &["--mount", "/var/run/docker.sock:/var/run/docker.sock:rw"]).ran();
        assert_failed(&ran, &[]);
        assert_eq!(state(&report(&ran), "engines").0, "not-promised");
    });
}

/// An "engine" that only starts the command: not one of the probes may be content.
#[test]
fn without_any_walls_every_probe_fails() {
    let world = World::new();
    fs::create_dir_all(world.project.join(".git/hooks")).expect("a repository");
    world.write(".netrc", "secret");
    let program = binary().display().to_string();
    world.program(
        "docker",
        &format!(
            "#!/bin/sh\nPATH=/usr/bin:/bin\n[ \"$1\" = run ] || exit 0\nwhile [ \"$1\" != guest ]; do [ \"$1\" = --cidfile ] && pen=${{2%/*}}; shift; done\n\
             exec '{program}' probe \"$(printf %s \"$5\" | sed \"s|/.sandpen/probe|$pen/probe|\")\"\n"
        ),
    );
    let mut command =
        world.sandpen(["selftest", "--format", "json", "--network", "off", "--memory", "64m", "--pids", "50"]);
    let ran = command.ran();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = report(&ran);
    // The daemon's socket is this test's own and accepts; no agent is there to be reached.
    for name in PROBES.iter().chain(&["hooks"]).filter(|name| **name != "ssh agent") {
        assert_eq!(state(&report, name).0, "failed", "{name}: {report:#}");
    }
    assert_eq!(report["held"], Value::Bool(false));
    let text = world.ran(&mut world.sandpen(["selftest", "--network", "off"]));
    assert!(text.stdout.contains("\nNOT SAFE: ") && text.stdout.contains("  FAILED  home "), "{}", text.stdout);
}

/// One that starts nothing, and says that all is well.
#[test]
fn a_probe_that_cannot_run_has_failed() {
    let world = World::new();
    let ran = world.ran(&mut world.sandpen(["selftest", "--format", "json", "--memory", "64m"]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = report(&ran);
    for name in PROBES {
        assert_eq!(state(&report, name).0, "failed", "{name}: {report:#}");
    }
    // And one that does not start at all.
    world.uninstall("docker");
    let ran = world.ran(&mut world.sandpen(["selftest"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    let last = "sandpen: error: the sandbox did not start, so no probe could run\n";
    assert!(
        ran.stderr.starts_with("sandpen: error: Docker is not installed") && ran.stderr.ends_with(last),
        "{}",
        ran.stderr
    );
    // A wrong option is a wrong option.
    world.refused(&mut world.sandpen(["selftest", "--memory", "lots"]));
}

/// The stand-in for `sandbox-exec` enforces nothing, and the probe finds that out.
#[test]
fn seatbelt_is_probed_for_what_it_promises() {
    let world = SeatbeltWorld::new();
    let ran = world.sandpen("selftest").args(["--format", "json", "--network", "off"]).ran();
    let report = report(&ran);
    assert_eq!((ran.code, &report["engine"]), (Some(1), &Value::from("sandbox-exec")), "{ran:?}");
    for name in ["home", "network"] {
        assert_eq!(state(&report, name).0, "failed", "{name}: {report:#}");
    }
    for name in ["capabilities", "system calls", "processes", "pids", "memory"] {
        assert_eq!(state(&report, name).0, "not-promised", "{name}: {report:#}");
    }
}
