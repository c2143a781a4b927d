//! Tests that what a guest in a pod changes comes back into a copy of the workspace, on which `diff`,
//! `apply`, `undo` and `discard` work.

use std::process::{Child, Stdio};

use super::pods_of;
use crate::for_kubernetes;
use crate::support::{Fixture, RunToEnd, TIMEOUT, holds_within};

for_kubernetes!(
    changes_wait_in_a_copy_and_can_be_applied_and_undone,
    without_changes_nothing_is_kept,
    commits_come_back_below_refs_sandpen,
    a_killed_launcher_loses_nothing,
    what_a_copy_holds_is_listed_and_discarded,
);

const CHANGE: &str = "echo new >new; echo two >>kept; rm gone; mkdir -p d/e; printf 'a\\0b' >d/e/bin; \
    chmod 755 kept; ln -s kept link";

fn with_files(fixture: &Fixture) {
    let prepare = "git init -q -b main . && git config user.name n && git config user.email e@x && echo one >kept \
        && echo g >gone && git add . && git commit -qm one";
    assert!(fixture.host_command("sh").args(["-c", prepare]).status().expect("git").success());
}

fn diff(fixture: &Fixture) -> String {
    fixture.sandpen(["diff", "--stat"]).finish().success().to_owned()
}

fn changes_wait_in_a_copy_and_can_be_applied_and_undone(fixture: &Fixture) {
    with_files(fixture);
    let finished = fixture.bash(CHANGE);
    finished.success();
    assert!(finished.stderr.contains("the changes wait in the copy"), "{}", finished.stderr);
    assert!(!fixture.project.join("new").exists(), "nothing is written unasked");
    let names = fixture.sandpen(["diff", "--name-only"]).finish();
    assert_eq!(names.success(), "d/e/bin\ngone\nkept\nlink\nnew", "{}", diff(fixture));
    fixture.sandpen(["apply"]).finish().success();
    let look = "cat new kept; stat -c %a kept; readlink link; test ! -e gone; wc -c <d/e/bin";
    let seen = fixture.host_command("sh").args(["-c", look]).output().expect("sh");
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "new\none\ntwo\n755\nkept\n3\n");
    fixture.sandpen(["undo"]).finish().success();
    assert!(fixture.project.join("gone").exists() && !fixture.project.join("new").exists());
}

fn without_changes_nothing_is_kept(fixture: &Fixture) {
    with_files(fixture);
    let finished = fixture.bash("cat kept; git status --short");
    assert_eq!(finished.success(), "one");
    assert!(!finished.stderr.contains("copy"), "{}", finished.stderr);
    assert_eq!(fixture.sandpen(["ps"]).finish().success().lines().count(), 1);
}

fn commits_come_back_below_refs_sandpen(fixture: &Fixture) {
    with_files(fixture);
    fixture
        .bash("echo two >>kept && git commit -qam two && git switch -qc other && git commit -q --allow-empty -m three")
        .success();
    let refs = "git for-each-ref --format='%(refname:lstrip=3) %(subject)' refs/sandpen; git log --format=%s main; \
        git status --short; git fsck 2>&1";
    let seen = fixture.host_command("sh").args(["-c", refs]).output().expect("git");
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "heads/main two\nheads/other three\none\n");
    let shown = fixture.sandpen(["diff"]).finish().success().to_owned();
    assert!(shown.contains("1 commit on `main`") && shown.contains("two"), "{shown}");
}

/// Starts a guest that prints a line after it has changed a file, and waits for that line.
fn running(fixture: &Fixture, script: &str) -> Child {
    let mut command = fixture.run();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).args(["--", "sh", "-c", script]);
    let mut child = command.spawn().expect("start");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
    assert_eq!(line, "up\n");
    child
}

fn a_killed_launcher_loses_nothing(fixture: &Fixture) {
    with_files(fixture);
    let mut child = running(fixture, "echo new >new; rm gone; echo up; trap 'echo late >late' TERM; sleep 600 & wait");
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_eq!(pods_of(fixture).len(), 1);
    // The keeper lets the guest end first.
    let shown = fixture.sandpen(["diff", "--name-only"]).finish();
    assert_eq!(shown.success(), "gone\nlate\nnew", "{}", shown.stderr);
    assert!(holds_within(TIMEOUT, || pods_of(fixture).is_empty()));
    assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
}

fn what_a_copy_holds_is_listed_and_discarded(fixture: &Fixture) {
    fixture.run().args(["--name", "work", "--", "sh", "-c", "echo x >file"]).finish().success();
    let listed = fixture.sandpen(["ps"]).finish().success().to_owned();
    assert!(listed.contains("work") && listed.contains("kubernetes") && listed.contains("kept"), "{listed}");
    fixture.sandpen(["discard", "work"]).finish().success();
    assert!(!fixture.sandpen(["ps"]).finish().success().contains("work"));
}
