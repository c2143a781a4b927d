//! Tests `sandpen log`: what a sandbox asked of the outside is recorded, and stays after its end.

use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use crate::for_every_engine;
use crate::support::{Engine, Fixture, RunToEnd, Running};

for_every_engine!(
    start_decisions_and_end_are_recorded,
    a_followed_record_ends_with_its_sandbox,
    commits_that_come_out_are_recorded,
);

/// Returns gate, verdict, object and reason of every event.
fn events(fixture: &Fixture, arguments: &[&str]) -> Vec<[String; 4]> {
    let finished = fixture.sandpen(["log", "--format", "json"]).args(arguments).finish();
    let event = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).expect("an event");
        assert!(event["time"].as_str().is_some_and(|time| time.len() == 20 && time.ends_with('Z')), "{event}");
        ["gate", "verdict", "what", "reason"].map(|key| event[key].as_str().expect("a text").to_owned())
    };
    finished.success().lines().map(event).collect()
}

fn start_decisions_and_end_are_recorded(fixture: &Fixture) {
    let script = "exec 3<>/dev/tcp/127.0.0.1/8877; printf 'CONNECT evil.example:443 HTTP/1.1\\r\\nHost: evil.example:443\\r\\n\\r\\n' >&3; head -1 <&3 >/dev/null; exit 3";
    let options = ["--name", "recorded", "--allow-host", "example.org", "--", "bash", "-c", script];
    assert_eq!(fixture.run().args(options).finish().code, Some(3));
    let found = events(fixture, &[]);
    let start: Vec<&str> = found[0].iter().map(String::as_str).take(3).collect();
    assert_eq!(start, ["sandbox", "done", "started"]);
    assert!(found[0][3].starts_with("bash -c "), "{found:?}");
    let [gate, verdict, what, reason] = &found[1];
    assert_eq!([gate, verdict, what], ["network", "refused", "evil.example:443"]);
    assert!(reason.contains("not allowed"), "{reason}");
    assert_eq!(found[2], ["sandbox", "done", "ended", "exit code 3"]);
    assert_eq!(found.len(), 3);
    // By its id, a part of it and the container's name.
    for id in ["recorded", "recor", "sandpen-recorded"] {
        assert_eq!(events(fixture, &[id]), found);
    }
    let text = fixture.sandpen(["log", "recorded"]).finish();
    let last = text.success().lines().last().expect("a line");
    assert!(last.starts_with("20") && last.ends_with("  sandbox     done     ended (exit code 3)"), "{last}");
    let file = fixture.home.join(".local/state/sandpen/log/recorded.jsonl");
    assert_eq!(file.metadata().expect("the record").mode() & 0o777, 0o600);
    fixture.sandpen(["prune"]).finish().success();
    assert!(file.exists(), "a young record stays");
}

fn a_followed_record_ends_with_its_sandbox(fixture: &Fixture) {
    let mut command = fixture.run();
    command.args(["--name", "followed", "--", "bash", "-c", "echo ready; read; exit 4"]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    assert_eq!(running.line(), "ready");
    let mut follower = Running::start(&mut fixture.sandpen(["log", "--follow", "followed"]));
    assert!(follower.line().contains("started"));
    running.write("\n");
    assert_eq!(running.finish().code, Some(4));
    assert!(follower.line().contains("ended (exit code 4)"));
    follower.finish().success();
}

fn commits_that_come_out_are_recorded(fixture: &Fixture) {
    fixture.host_command("git").args(["init", "-q", "-b", "main"]).arg(&fixture.project).finish().success();
    let script = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x";
    fixture.run().args(["--name", "commits", "--", "bash", "-c", script]).finish().success();
    let found = events(fixture, &["commits"]);
    let brought = ["repository", "done", "main", "brought out"].map(ToOwned::to_owned);
    assert!(found.contains(&brought), "{found:?}");
}

#[test]
fn an_unknown_id_is_an_error_that_lists_the_known_ids() {
    Fixture::on(Engine::Native, |fixture| {
        let finished = fixture.sandpen(["log"]).finish();
        assert!(
            finished.failure(44).contains("there is no record of a sandbox of this directory"),
            "{}",
            finished.stderr
        );
        fixture.run().args(["--name", "known", "--", "true"]).finish().success();
        let finished = fixture.sandpen(["log", "knwon"]).finish();
        assert_eq!(
            finished.failure(44),
            "sandpen: error: there is no record of a sandbox `knwon`\nhint: did you mean `known`?\nhint: there are: known\n"
        );
        // The sandboxes of another directory are found by their ids only.
        let mut elsewhere = fixture.sandpen(["log"]);
        assert_eq!(elsewhere.current_dir(fixture.outside("elsewhere")).finish().code, Some(44));
        let mut elsewhere = fixture.sandpen(["log", "known"]);
        elsewhere.current_dir(fixture.outside("elsewhere")).finish().success();
    });
}

#[test]
fn what_becomes_of_a_copy_is_recorded() {
    Fixture::on(Engine::Native, |fixture| {
        fixture.write("project/file", "one\n");
        let mut command = fixture.run();
        command.args(["--name", "copied", "--workspace", "copy", "--", "sh", "-c", "echo two > file; echo n > new"]);
        command.finish().success();
        let run = |arguments: &[&str]| fixture.sandpen(arguments).finish();
        run(&["apply", "copied"]).success();
        run(&["undo"]).success();
        fixture.write("project/file", "three\n");
        run(&["apply", "copied"]).failure(1);
        run(&["discard", "copied"]).success();
        let found = events(fixture, &["copied"]);
        let of_copy: Vec<&[String; 4]> = found.iter().filter(|event| event[0] == "workspace").collect();
        let parts: Vec<[&str; 2]> = of_copy.iter().map(|event| [event[1].as_str(), event[2].as_str()]).collect();
        assert_eq!(parts, [["done", "apply"], ["done", "undo"], ["refused", "apply"], ["done", "discard"]]);
        assert_eq!(of_copy[0][3], "2 files: file, new");
    });
}
