//! `sandpen selftest` finds every promise kept on every engine, and every probe can fail.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::for_every_engine;
use crate::support::{Engine, Finished, Fixture, RunToEnd, binary, is_root_or_skip};

for_every_engine!(every_promise_holds, selftest_promises_nothing_about_what_the_user_opened);
for_every_engine!(with_agent: the_agent_is_reachable_only_if_forwarded);

/// Engines that use the kernel's isolation have these probes.
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

fn selftest(fixture: &Fixture, arguments: &[&str]) -> Command {
    let mut command = fixture.command("selftest");
    command.args(["--format", "json"]);
    command.args(arguments);
    command
}

#[track_caller]
fn report(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{finished:?}"))
}

#[track_caller]
fn state(report: &Value, name: &str) -> (String, String) {
    let probes = report["probes"].as_array().expect("probes");
    let probe = probes.iter().find(|probe| probe["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"));
    let text = |key: &str| probe[key].as_str().expect("text").to_owned();
    assert!(!text("promised").is_empty() && !text("seen").is_empty(), "{probe:#}");
    (text("state"), text("seen"))
}

/// Asserts that exactly these probes failed.
#[track_caller]
fn assert_failed(finished: &Finished, names: &[&str]) {
    let report = report(finished);
    let probes = report["probes"].as_array().expect("probes").iter();
    let failed: Vec<&str> =
        probes.filter(|probe| probe["state"] == "failed").filter_map(|probe| probe["name"].as_str()).collect();
    assert_eq!(failed, names, "{report:#}\n{}", finished.stderr);
    assert_eq!((finished.code, &report["held"]), (Some(i32::from(!names.is_empty())), &Value::Bool(names.is_empty())));
}

/// Asserts that no session, no container and no planted file remains.
#[track_caller]
fn assert_clean(fixture: &Fixture) {
    assert_eq!((fixture.sessions(), fixture.containers()), (Vec::<PathBuf>::new(), Vec::<String>::new()));
    let entries = |directory: &PathBuf| fs::read_dir(directory).expect("directory").flatten().map(|entry| entry.path());
    let left: Vec<PathBuf> =
        entries(&fixture.home).filter(|path| path.display().to_string().contains("selftest")).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

fn every_promise_holds(fixture: &Fixture) {
    fixture.host_command("git").args(["init", "--quiet"]).finish().success();
    fixture.write(".ssh/id_ed25519", "not really a key");
    let asked: &[&[&str]] =
        &[&[], &["--network", "off", "--memory", "256m", "--pids", "60"], &["--allow-host", "example.org"]];
    for arguments in asked {
        let finished = selftest(fixture, arguments).finish();
        assert_failed(&finished, &[]);
        let report = report(&finished);
        assert_eq!(report["engine"], fixture.engine().flag());
        for name in PROBES.iter().chain(&["hooks"]) {
            state(&report, name);
        }
        assert_eq!(state(&report, "hooks"), ("held".into(), "no hook planted".into()));
        let (keys, searched) = state(&report, "keys");
        let has_answer = searched.contains(", an answer of ") && searched.contains(" bytes that repeats it");
        assert_eq!((keys.as_str(), has_answer), ("held", arguments.is_empty()), "{searched}");
        assert_eq!(state(&report, "credentials"), ("held".into(), "1 file tried, none readable".into()));
    }
    let limits = report(&selftest(fixture, asked[1]).finish());
    let can_limit =
        |name: &str| !fixture.engine().is_rootless() || name == "pids" && fixture.engine() == Engine::Native;
    for name in ["pids", "memory"] {
        let expected = if can_limit(name) { "held" } else { "not-promised" };
        assert_eq!(state(&limits, name).0, expected, "{limits:#}");
    }
    assert_clean(fixture);
}

fn selftest_promises_nothing_about_what_the_user_opened(fixture: &Fixture) {
    let mount = format!("{}:/elsewhere", fixture.home.display());
    let same = fixture.home.display().to_string();
    for (mount, seen) in [(mount, "no access"), (same, "read a planted file")] {
        let finished = selftest(fixture, &["--mount", &mount]).finish();
        assert_failed(&finished, &[]);
        assert_eq!(state(&report(&finished), "home"), ("not-promised".into(), seen.into()), "{mount}");
    }
    fixture.host_command("git").args(["init", "--quiet"]).finish().success();
    let finished = selftest(fixture, &["--git", "shared"]).finish();
    assert_failed(&finished, &[]);
    assert_eq!(state(&report(&finished), "hooks"), ("held".into(), "no hook planted".into()));
    let finished = selftest(fixture, &["--tmp", "host"]).finish();
    assert_failed(&finished, &[]);
    let both = "read a planted file and wrote another";
    assert_eq!(state(&report(&finished), "temp"), ("not-promised".into(), both.into()));
    assert_clean(fixture);
}

fn the_agent_is_reachable_only_if_forwarded(fixture: &Fixture) {
    let run = |mode: &str| selftest(fixture, &["--ssh-agent", mode]).finish();
    let (on, off) = (run("on"), run("off"));
    assert_failed(&on, &[]);
    assert_eq!(state(&report(&on), "ssh agent").1, "an agent answers at /ssh-agent with 1 key");
    assert_failed(&off, &[]);
    assert_eq!(state(&report(&off), "ssh agent").1, "no agent answers");
}

#[test]
fn selftest_detects_every_protection_that_a_flag_removes() {
    if !is_root_or_skip("sandpen as root on Docker") {
        return;
    }
    Fixture::on_prepared(Engine::Docker, Fixture::with_agent, |fixture| {
        let socket = fixture.agent().socket.display().to_string();
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
            let finished = selftest(fixture, &arguments).env("SANDPEN_SSH_AGENT", "off").finish();
            assert_failed(&finished, &[failed]);
        }
        let finished = selftest(fixture, &["--mount", "/var/run/docker.sock:/var/run/docker.sock:rw"])
            .env("SANDPEN_SSH_AGENT", "off")
            .finish();
        assert_failed(&finished, &[]);
        assert_eq!(state(&report(&finished), "engines").0, "not-promised");
    });
}

/// This engine starts the command without isolation, so every probe must fail.
#[test]
fn without_a_sandbox_every_probe_fails() {
    if !is_root_or_skip("sandpen as root on Docker") {
        return;
    }
    let fixture = Fixture::new().with_recording_docker();
    fs::create_dir_all(fixture.project.join(".git/hooks")).expect("a repository");
    fixture.write(".netrc", "secret");
    let program = binary().display().to_string();
    fixture.install(
        "docker",
        &format!(
            "#!/bin/sh\nPATH=/usr/bin:/bin\n[ \"$1\" = run ] || exit 0\nwhile [ \"$1\" != guest ]; do [ \"$1\" = --cidfile ] && pen=${{2%/*}}; shift; done\n\
             exec '{program}' probe \"$(printf %s \"$5\" | sed \"s|/.sandpen/probe|$pen/probe|\")\"\n"
        ),
    );
    let mut command =
        fixture.sandpen(["selftest", "--format", "json", "--network", "off", "--memory", "64m", "--pids", "50"]);
    let finished = command.finish();
    finished.failure(1);
    let report = report(&finished);
    // The daemon's socket belongs to this test and accepts connections; no agent runs.
    for name in PROBES.iter().chain(&["hooks"]).filter(|name| **name != "ssh agent") {
        assert_eq!(state(&report, name).0, "failed", "{name}: {report:#}");
    }
    assert_eq!(report["held"], Value::Bool(false));
    let text = fixture.finish(&mut fixture.sandpen(["selftest", "--network", "off"]));
    assert!(text.stdout.contains("\nNOT SAFE: ") && text.stdout.contains("  FAILED  home "), "{}", text.stdout);
}

/// This engine starts nothing and reports success.
#[test]
fn a_probe_that_cannot_run_has_failed() {
    if !is_root_or_skip("sandpen as root on Docker") {
        return;
    }
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen(["selftest", "--format", "json", "--memory", "64m"]));
    finished.failure(1);
    let report = report(&finished);
    for name in PROBES {
        assert_eq!(state(&report, name).0, "failed", "{name}: {report:#}");
    }
    // Without an engine the sandbox does not start at all.
    fixture.uninstall("docker");
    let finished = fixture.finish(&mut fixture.sandpen(["selftest"]));
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""), "{finished:?}");
    let last = "sandpen: error: the sandbox did not start, so no probe could run\n";
    assert!(
        finished.stderr.starts_with("sandpen: error: Docker is not installed") && finished.stderr.ends_with(last),
        "{}",
        finished.stderr
    );
    // An invalid option is a usage error, not a failed probe.
    fixture.usage_error(&mut fixture.sandpen(["selftest", "--memory", "lots"]));
}

/// The stand-in for `sandbox-exec` enforces nothing, and the probes detect that.
#[test]
fn seatbelt_is_probed_for_what_it_promises() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let finished = fixture.command("selftest").args(["--format", "json", "--network", "off"]).finish();
    let report = report(&finished);
    assert_eq!((finished.code, &report["engine"]), (Some(1), &Value::from("sandbox-exec")), "{finished:?}");
    for name in ["home", "network"] {
        assert_eq!(state(&report, name).0, "failed", "{name}: {report:#}");
    }
    for name in ["capabilities", "system calls", "processes", "pids", "memory"] {
        assert_eq!(state(&report, name).0, "not-promised", "{name}: {report:#}");
    }
}
