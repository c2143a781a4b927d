//! Tests how changes of a copy meet changes that the user made meanwhile.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;

use super::{copies, git, in_copy, prepare, sandpen, snapshot};
use crate::for_docker_and_native;
use crate::support::pty::Pty;
use crate::support::{Fixture, RunToEnd, Running};

for_docker_and_native!(
    other_lines_of_the_user_are_merged,
    the_same_lines_conflict_and_nothing_is_changed,
    what_the_user_made_or_removed_conflicts,
    an_edit_while_the_sandbox_runs_is_merged,
    some_files_are_applied_and_the_rest_waits,
    an_undo_keeps_later_edits,
    a_kill_loses_nothing,
    chosen_hunks_are_applied,
);

fn replace(fixture: &Fixture, from: &str, to: &str) {
    let path = fixture.project.join("file");
    let text = fs::read_to_string(&path).expect("file");
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).expect("file");
}

fn file(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.project.join("file")).expect("file")
}

fn other_lines_of_the_user_are_merged(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "merged", "sed -i s/^5$/five/ file");
    replace(fixture, "\n18\n", "\neighteen\n");
    assert_eq!(sandpen(fixture, &["diff", "--format", "json"]).json()["files"][0]["state"], "merges");
    sandpen(fixture, &["apply"]).success();
    let text = file(fixture);
    assert!(text.contains("\nfive\n") && text.contains("\neighteen\n"), "{text}");
    assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "", "nothing waits any more");
    // What the user has changed must not be lost by an undo and another apply.
    sandpen(fixture, &["undo"]).success();
    assert!(file(fixture).contains("\n5\n") && file(fixture).contains("\neighteen\n"));
    sandpen(fixture, &["apply"]).success();
    assert_eq!(file(fixture), text);
}

fn the_same_lines_conflict_and_nothing_is_changed(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "conflict", "sed -i s/^5$/five/ file; echo new > new");
    replace(fixture, "\n5\n", "\nFIVE\n");
    let before = snapshot(&fixture.project);
    let refused = sandpen(fixture, &["apply"]);
    assert!(refused.failure(1).contains("`file`: the same lines were changed here meanwhile"), "{}", refused.stderr);
    assert_eq!(snapshot(&fixture.project), before, "nothing is half applied");
    sandpen(fixture, &["apply", "--markers"]).success();
    let text = file(fixture);
    assert!(text.contains("<<<<<<<") && text.contains("\nFIVE\n") && text.contains("\nfive\n"), "{text}");
    assert!(fixture.project.join("new").exists());
}

fn what_the_user_made_or_removed_conflicts(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "both", "echo theirs > new; echo theirs > gone; rm dir/inner; rm dir/other; echo x > dir/third");
    fixture.write("project/new", "mine\n");
    fs::remove_file(fixture.project.join("gone")).expect("remove");
    fixture.write("project/dir/inner", "changed\n");
    let refused = sandpen(fixture, &["apply"]);
    for part in ["`new`: made here", "`gone`: removed here", "`dir/inner`: removed in the sandbox and changed here"] {
        assert!(refused.failure(1).contains(part), "{part}: {}", refused.stderr);
    }
    sandpen(fixture, &["apply", "dir/other", "dir/third"]).success();
    assert!(!fixture.project.join("dir/other").exists() && fixture.project.join("dir/third").exists());
    assert_eq!(fs::read_to_string(fixture.project.join("new")).expect("file"), "mine\n");
}

/// The kernel shows the guest what the user writes, until the guest changes the file itself.
fn an_edit_while_the_sandbox_runs_is_merged(fixture: &Fixture) {
    prepare(fixture);
    let mut command = fixture.run();
    // The launcher notes which files differ from the index soon after the start.
    let script = "sed -i s/^5$/five/ file; echo ready; read -r line; sleep 3; echo x > other";
    command.stdin(Stdio::piped());
    command.args(["--name", "live", "--workspace", "copy", "--", "bash", "-c", script]);
    let mut running = Running::start(&mut command);
    assert_eq!(running.line(), "ready");
    let record = fixture.home.join(".local/state/sandpen/copies/live/bases.json");
    crate::support::eventually("the scan", || record.exists());
    replace(fixture, "\n18\n", "\neighteen\n");
    running.write("go\n");
    assert_eq!(running.finish().code, Some(0));
    sandpen(fixture, &["apply"]).success();
    let text = file(fixture);
    assert!(text.contains("\nfive\n") && text.contains("\neighteen\n"), "{text}");
}

fn some_files_are_applied_and_the_rest_waits(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "some", "echo 1 > one; mkdir -p deep/er; echo 2 > deep/er/two; echo 3 > three; echo i > build/i");
    sandpen(fixture, &["apply", "some", "one", "deep"]).success();
    assert!(fixture.project.join("deep/er/two").exists() && !fixture.project.join("three").exists());
    assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "three");
    sandpen(fixture, &["apply", "some", "build/i"]).success();
    assert!(fixture.project.join("build/i").exists(), "an ignored file that is named is applied");
    assert!(sandpen(fixture, &["apply", "some", "nothing-like-it/"]).failure(1).contains("nothing-like-it"));
    assert!(sandpen(fixture, &["apply", "some", "../../other"]).failure(2).contains("not in the workspace"));
}

fn an_undo_keeps_later_edits(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "undone", "sed -i s/^5$/five/ file; echo new > new");
    sandpen(fixture, &["apply"]).success();
    replace(fixture, "\n18\n", "\neighteen\n");
    sandpen(fixture, &["undo"]).success();
    let text = file(fixture);
    assert!(text.contains("\n5\n") && text.contains("\neighteen\n"), "{text}");
    assert!(!fixture.project.join("new").exists());
    sandpen(fixture, &["apply"]).success();
    replace(fixture, "\nfive\n", "\nfünf\n");
    assert!(sandpen(fixture, &["undo"]).failure(1).contains("`file`: changed since"));
    assert!(file(fixture).contains("\nfünf\n"));
}

fn a_kill_loses_nothing(fixture: &Fixture) {
    prepare(fixture);
    let mut command = fixture.run();
    let script = "sed -i s/^5$/five/ file; git commit --quiet --all --message killed; echo ready; sleep 600";
    command.args(["--name", "killed", "--workspace", "copy", "--", "bash", "-c", script]);
    let mut running = Running::start(&mut command);
    assert_eq!(running.line(), "ready");
    assert!(sandpen(fixture, &["discard", "killed"]).failure(1).contains("is using"));
    let used = sandpen(fixture, &["run", "--workspace", "killed", "--", "true"]);
    assert!(used.failure(2).contains("is using"), "{}", used.stderr);
    running.signal(Signal::KILL);
    running.finish();
    assert_eq!(copies(fixture), ["killed"]);
    crate::support::eventually("the end of the guest", || {
        let mut command = fixture.run();
        command.args(["--workspace", "killed", "--", "git", "log", "--format=%s"]);
        command.finish().stdout.starts_with("killed\none")
    });
    replace(fixture, "\n18\n", "\neighteen\n");
    sandpen(fixture, &["apply"]);
    assert!(file(fixture).contains("\neighteen\n"), "what the user wrote stays");
    assert!(git(fixture, &["log", "--format=%s"]) == "one");
}

fn chosen_hunks_are_applied(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "hunks", "sed -i -e s/^2$/two/ -e s/^18$/eighteen/ file; echo new > new");
    let mut command = fixture.sandpen(["apply", "-p"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let mut terminal = Pty::start(&command);
    terminal.expect("(1/2) take this hunk?");
    terminal.send("n\n");
    terminal.expect("(2/2) take this hunk?");
    terminal.send("y\n");
    terminal.expect("(1/1) take this hunk?");
    terminal.send("q\n");
    terminal.expect("applied");
    let text = file(fixture);
    assert!(text.contains("\n2\n") && text.contains("\neighteen\n"), "{text}");
    assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "file\nnew");
    sandpen(fixture, &["apply"]).success();
    assert!(file(fixture).contains("\ntwo\n"));
}
