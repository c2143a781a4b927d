//! While a sandbox runs, commits come out and changes of the host's refs come in; nothing is lost
//! when both sides move the same ref, or when sandpen is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::refused::{Snapshot, leftovers};
use super::{git, last_subject, repository};
use crate::for_every_engine;
use crate::support::{Engine, Finished, Fixture, RunToEnd, Running, eventually, holds_within};

for_every_engine!(
    a_commit_appears_outside_while_the_sandbox_runs,
    commits_of_the_host_appear_inside,
    a_branch_that_both_sides_moved_keeps_the_hosts_commit,
    a_commit_survives_the_kill_of_sandpen,
    the_users_work_after_a_kill_is_kept,
);

/// The guest and the test wait for each other by files in this ignored directory.
const PRELUDE: &str = r#"set -e
reach() { touch .steps/$1; }
await() { for i in $(seq 600); do [ -e .steps/$1 ] && return; sleep 0.1; done; echo "no $1" >&2; exit 9; }
until_true() { for i in $(seq 150); do eval "$1" && return; sleep 0.1; done; echo "never: $1" >&2; git status >&2; exit 9; }
commit() { git commit --quiet --allow-empty --message "$1"; }
# Makes a commit on a branch that is not checked out.
commit_on() { git update-ref refs/heads/$1 $(git commit-tree -p $1 -m "$2" "$1^{tree}"); }
"#;

/// Creates a repository with a file and the branches `main`, `a` and `b`.
pub(super) fn prepare(fixture: &Fixture) -> PathBuf {
    fixture.write(".gitconfig", "[user]\n\tname = Guest\n\temail = guest@example.org\n");
    let main = repository(fixture, &fixture.project.join("main"));
    fixture.write("project/main/.gitignore", ".steps\n");
    fixture.write("project/main/file", "one\n");
    fixture.write("project/main/.steps/.keep", "");
    git(fixture, &main, &["add", "."]).success();
    git(fixture, &main, &["commit", "--quiet", "--message", "files"]).success();
    git(fixture, &main, &["branch", "a"]).success();
    git(fixture, &main, &["branch", "b"]).success();
    main
}

/// Starts a sandbox with this id in the repository.
pub(super) fn start(fixture: &Fixture, directory: &Path, id: &str, script: &str) -> Running {
    let mut command = fixture.run();
    command.current_dir(directory).args(["--name", id, "--", "bash", "-c", &format!("{PRELUDE}{script}")]);
    Running::start(&mut command)
}

#[track_caller]
pub(super) fn await_step(directory: &Path, step: &str) {
    eventually(step, || directory.join(".steps").join(step).exists());
}

pub(super) fn allow_step(fixture: &Fixture, directory: &Path, step: &str) {
    fixture.write(directory.join(".steps").join(step), "");
}

/// Returns the ids and names of the refs that match a pattern.
pub(super) fn refs(fixture: &Fixture, directory: &Path, pattern: &str) -> Vec<String> {
    let list = git(fixture, directory, &["for-each-ref", "--format=%(refname) %(subject)", pattern]);
    list.success().lines().map(str::to_owned).collect()
}

/// Asserts that the repository is whole and that no lock is left.
#[track_caller]
pub(super) fn assert_whole(fixture: &Fixture, directory: &Path) {
    let fsck = git(fixture, directory, &["fsck", "--no-dangling", "--strict"]);
    assert_eq!((fsck.success(), fsck.stderr.as_str()), ("", ""));
    assert_eq!(leftovers(&directory.join(".git")), Vec::<PathBuf>::new());
}

/// Ends a sandbox whose script is over, and returns sandpen's messages.
#[track_caller]
pub(super) fn messages(running: &mut Running) -> String {
    let finished = running.finish();
    finished.success();
    finished.stderr
}

fn a_commit_appears_outside_while_the_sandbox_runs(fixture: &Fixture) {
    let main = prepare(fixture);
    let before = Snapshot::of(&main.join(".git"));
    let script =
        "echo two > file; git commit --quiet --all --message inside; git branch made; reach committed; await end";
    let mut running = start(fixture, &main, "live", script);
    await_step(&main, "committed");
    eventually("the commit is outside", || last_subject(fixture, &main) == "inside");
    eventually("the branch is outside", || refs(fixture, &main, "refs/heads/made") == ["refs/heads/made inside"]);
    eventually("the index is up to date", || git(fixture, &main, &["status", "--porcelain"]).stdout.is_empty());
    assert_whole(fixture, &main);
    before.assert_only_commits_came_out("the running sandbox");
    allow_step(fixture, &main, "end");
    assert_eq!(messages(&mut running), "");
    assert_eq!(last_subject(fixture, &main), "inside");
    before.assert_only_commits_came_out("the sandbox");
}

fn commits_of_the_host_appear_inside(fixture: &Fixture) {
    let main = prepare(fixture);
    let script = r#"reach ready
        until_true '[ "$(git log -1 --format=%s)" = outside ] && [ -z "$(git status --porcelain)" ]'
        until_true 'git rev-parse --quiet --verify fresh > /dev/null'; git cat-file -p fresh:file
        reach seen; until_true '[ "$(git symbolic-ref --short HEAD)" = a ] && [ -z "$(git status --porcelain)" ]'
        commit on-a; git log -1 --format=%s main"#;
    let mut running = start(fixture, &main, "inbound", script);
    await_step(&main, "ready");
    fixture.write("project/main/file", "outside\n");
    git(fixture, &main, &["commit", "--quiet", "--all", "--message", "outside"]).success();
    git(fixture, &main, &["branch", "fresh"]).success();
    await_step(&main, "seen");
    git(fixture, &main, &["switch", "--quiet", "a"]).success();
    let finished = running.finish();
    assert_eq!((finished.success(), finished.stderr.as_str()), ("outside\noutside", ""));
    assert_eq!(
        refs(fixture, &main, "refs/heads"),
        ["refs/heads/a on-a", "refs/heads/b files", "refs/heads/fresh outside", "refs/heads/main outside"]
    );
    assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "");
    assert_whole(fixture, &main);
}

/// A stopped launcher exchanges nothing, so both sides commit without the other's commit.
fn a_branch_that_both_sides_moved_keeps_the_hosts_commit(fixture: &Fixture) {
    let main = prepare(fixture);
    let mut running = start(fixture, &main, "both", "reach ready; await go; commit inside; reach committed; await end");
    await_step(&main, "ready");
    running.signal(Signal::STOP);
    allow_step(fixture, &main, "go");
    await_step(&main, "committed");
    git(fixture, &main, &["commit", "--quiet", "--allow-empty", "--message", "outside"]).success();
    allow_step(fixture, &main, "end");
    running.signal(Signal::CONT);
    let stderr = messages(&mut running);
    assert_eq!(last_subject(fixture, &main), "outside");
    let kept = refs(fixture, &main, "refs/sandpen/both");
    assert!(kept.len() == 1 && kept[0].ends_with(" inside"), "{kept:?}");
    let name = kept[0].trim_end_matches(" inside");
    let named: Vec<&str> = stderr.lines().filter(|line| line.starts_with("sandpen: ") && line.contains(name)).collect();
    assert_eq!(named.len(), 1, "{name} is not named once: {stderr}");
    assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "");
    assert_whole(fixture, &main);
}

#[test]
fn a_file_that_the_user_stages_meanwhile_stays_staged() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = "reach ready; await go; echo x > inside; git add inside; git commit --quiet -m inside; echo y > more; git add more";
        let mut running = start(fixture, &main, "staged", script);
        await_step(&main, "ready");
        running.signal(Signal::STOP);
        fixture.write("project/main/by-user", "x\n");
        git(fixture, &main, &["add", "by-user"]).success();
        allow_step(fixture, &main, "go");
        eventually("the guest stages its file", || main.join("more").exists());
        running.signal(Signal::CONT);
        assert_eq!(messages(&mut running), "");
        assert_eq!(last_subject(fixture, &main), "inside");
        assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "A  by-user\nA  more");
        let files = git(fixture, &main, &["show", "--format=", "--name-only", "HEAD"]);
        assert_eq!(files.success(), "inside", "the user's file is not part of the guest's commit");
    });
}

#[test]
fn two_sandboxes_commit_on_different_branches() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = |own: &str, other: &str| {
            format!(
                "reach {own}; await go; commit_on {own} by-{own}
                until_true '[ \"$(git log -1 --format=%s {other})\" = by-{other} ]'"
            )
        };
        let mut first = start(fixture, &main, "first", &script("a", "b"));
        let mut second = start(fixture, &main, "second", &script("b", "a"));
        await_step(&main, "a");
        await_step(&main, "b");
        allow_step(fixture, &main, "go");
        assert_eq!((messages(&mut first), messages(&mut second)), (String::new(), String::new()));
        let expected = ["refs/heads/a by-a", "refs/heads/b by-b", "refs/heads/main files"];
        assert_eq!(refs(fixture, &main, "refs"), expected);
        assert_whole(fixture, &main);
    });
}

#[test]
fn two_sandboxes_commit_on_the_same_branch() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = |id: &str| format!("reach {id}; await go; commit_on a by-{id}; reach {id}-done; await end");
        let mut sandboxes = ["one", "two"].map(|id| start(fixture, &main, id, &script(id)));
        for (id, sandbox) in ["one", "two"].iter().zip(&sandboxes) {
            await_step(&main, id);
            sandbox.signal(Signal::STOP);
        }
        allow_step(fixture, &main, "go");
        for (id, sandbox) in ["one", "two"].iter().zip(&sandboxes) {
            await_step(&main, &format!("{id}-done"));
            sandbox.signal(Signal::CONT);
        }
        allow_step(fixture, &main, "end");
        let stderr = sandboxes.each_mut().map(messages).concat();
        let mut subjects = refs(fixture, &main, "refs/heads/a");
        let kept = refs(fixture, &main, "refs/sandpen");
        assert!(kept.len() == 1 && stderr.contains(kept[0].split(' ').next().expect("a name")), "{kept:?} {stderr}");
        subjects.extend(kept);
        let subjects: Vec<&str> = subjects.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        assert!(subjects == ["by-one", "by-two"] || subjects == ["by-two", "by-one"], "{subjects:?}");
        assert_whole(fixture, &main);
    });
}

/// A ref that is missing may belong to a repository that the guest is removing.
#[test]
fn a_deleted_branch_disappears_outside_at_the_end() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = "git branch --quiet -D a; git branch a/below; git branch made; reach made; await end";
        let mut running = start(fixture, &main, "deleting", script);
        await_step(&main, "made");
        eventually("the new branch is outside", || !refs(fixture, &main, "refs/heads/made").is_empty());
        assert_eq!(refs(fixture, &main, "refs/heads/a"), ["refs/heads/a files"]);
        allow_step(fixture, &main, "end");
        assert_eq!(messages(&mut running), "");
        assert_eq!(refs(fixture, &main, "refs/heads/a"), ["refs/heads/a/below files"]);
        assert_eq!(refs(fixture, &main, "refs/sandpen"), Vec::<String>::new());
        assert_whole(fixture, &main);
    });
}

/// Runs `sandpen ps` until it reports something, because an engine's client may outlive its
/// launcher for a moment.
#[track_caller]
pub(super) fn next_command(fixture: &Fixture) -> Finished {
    let mut finished = fixture.sandpen(["ps"]).current_dir("/").finish();
    eventually("the next command reports", || {
        if finished.stderr.is_empty() {
            finished = fixture.sandpen(["ps"]).current_dir("/").finish();
        }
        !finished.stderr.is_empty()
    });
    finished
}

/// The launcher is stopped before the commit, so only the next command can bring it out.
fn a_commit_survives_the_kill_of_sandpen(fixture: &Fixture) {
    let main = prepare(fixture);
    let before = Snapshot::of(&main.join(".git"));
    let script = "reach ready; await go; echo two > file; git commit --quiet --all -m inside; git branch made; reach committed; sleep 60";
    let mut running = start(fixture, &main, "killed", script);
    await_step(&main, "ready");
    running.signal(Signal::STOP);
    allow_step(fixture, &main, "go");
    await_step(&main, "committed");
    running.signal(Signal::KILL);
    running.finish();
    assert_eq!(leftovers(&main.join(".git")), Vec::<PathBuf>::new());
    let finished = next_command(fixture);
    let lines: Vec<&str> = finished.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("sandpen: ") && lines[0].contains("killed"), "{lines:?}");
    assert_eq!(refs(fixture, &main, "refs/heads/main"), ["refs/heads/main inside"]);
    assert_eq!(refs(fixture, &main, "refs/heads/made"), ["refs/heads/made inside"]);
    assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "");
    assert_whole(fixture, &main);
    before.assert_only_commits_came_out("the killed sandbox");
    assert_eq!(fixture.sandpen(["ps"]).finish().stderr, "", "it is brought out once");
}

/// What the guest did not bring out yet must not replace what the user does before the next command.
fn the_users_work_after_a_kill_is_kept(fixture: &Fixture) {
    let main = prepare(fixture);
    let script =
        "reach ready; await go; echo two > file; git commit --quiet --all -m inside; reach committed; sleep 60";
    let mut running = start(fixture, &main, "killed", script);
    await_step(&main, "ready");
    running.signal(Signal::STOP);
    allow_step(fixture, &main, "go");
    await_step(&main, "committed");
    running.signal(Signal::KILL);
    running.finish();
    fixture.write(main.join("mine"), "text\n");
    git(fixture, &main, &["add", "mine"]).success();
    git(fixture, &main, &["commit", "--quiet", "--message", "user"]).success();
    fixture.write(main.join("staged"), "text\n");
    git(fixture, &main, &["add", "staged"]).success();
    let stderr = next_command(fixture).stderr;
    assert!(stderr.contains("refs/sandpen/killed/heads/main"), "{stderr}");
    assert_eq!(refs(fixture, &main, "refs/heads/main"), ["refs/heads/main user"]);
    assert_eq!(refs(fixture, &main, "refs/sandpen"), ["refs/sandpen/killed/heads/main inside"]);
    assert_eq!(git(fixture, &main, &["diff", "--cached", "--name-only"]).success(), "staged");
    assert_whole(fixture, &main);
}

/// The guest commits without a pause, so the kill also hits an exchange that is under way.
#[test]
fn no_commit_is_lost_by_a_kill_at_any_moment() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        for (round, count) in [3, 17, 40].into_iter().enumerate() {
            let script = format!(
                "for n in $(seq 1000); do echo {round}-$n > file; git commit --quiet --all -m {round}-$n; echo $n > .steps/count-{round}; done"
            );
            let mut running = start(fixture, &main, &format!("round-{round}"), &script);
            let file = main.join(format!(".steps/count-{round}"));
            let made = || fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            eventually("the guest commits", || made() >= count);
            running.signal(Signal::KILL);
            running.finish();
            // The guest ends with its launcher, so the number no longer changes.
            eventually("the guest ends", || {
                let now = made();
                !holds_within(Duration::from_millis(300), || made() != now)
            });
            let expected = made();
            fixture.run().current_dir(&main).args(["--", "true"]).finish().success();
            let subject = last_subject(fixture, &main);
            let found: i32 = subject.split('-').nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
            assert!(subject.starts_with(&format!("{round}-")) && found >= expected, "{subject}, made {expected}");
            assert_eq!(refs(fixture, &main, "refs/sandpen"), Vec::<String>::new());
            assert_whole(fixture, &main);
            git(fixture, &main, &["checkout", "--force", "--quiet", "main"]).success();
        }
    });
}

#[test]
fn a_killed_sandbox_that_changed_nothing_is_not_reported() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let before = git(fixture, &main, &["for-each-ref"]).success().to_owned();
        let mut running = start(fixture, &main, "idle", "reach ready; sleep 60");
        await_step(&main, "ready");
        running.signal(Signal::KILL);
        running.finish();
        let finished = fixture.run().current_dir(&main).args(["--", "true"]).finish();
        assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
        assert_eq!(git(fixture, &main, &["for-each-ref"]).success(), before);
    });
}
