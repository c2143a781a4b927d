//! Both sides change the same repository at once: no link of the guest is followed, and nothing of
//! the user's is lost. A stopped launcher exchanges nothing, so that the order of events is fixed.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use super::attack;
use super::nested::evil;
use crate::for_docker_and_native;
use crate::git::exchange::{allow_step, assert_whole, await_step, messages, prepare, start};
use crate::git::{git, repository};
use crate::support::{Fixture, RunToEnd};

for_docker_and_native!(
    nothing_is_written_through_a_link_above_a_private_directory,
    nothing_is_read_through_a_link_above_a_private_directory,
    a_gitlink_stays_inside_while_another_sandbox_runs,
    worktrees_of_the_same_name_are_both_kept,
    files_and_directories_in_the_index_do_not_replace_each_other,
);

/// Creates the worktree `wt` and the submodule `sub`, both on a branch with the name `main`.
fn add_worktree_and_submodule(fixture: &Fixture, main: &Path) {
    let library = repository(fixture, &fixture.outside("library"));
    git(fixture, main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "sub"]).success();
    git(fixture, main, &["worktree", "add", "--quiet", "-b", "wt", "wt"]).success();
    fixture.write(main.join(".gitignore"), ".steps\nwt\n");
    git(fixture, main, &["commit", "--quiet", "--all", "--message", "submodule"]).success();
}

/// Copies a directory to another place on the host, owned by the user, and returns the new path.
fn copy(fixture: &Fixture, from: &Path, name: &str) -> std::path::PathBuf {
    let to = fixture.outside(name);
    fixture.host_command("cp").arg("-a").arg(from.join(".")).arg(&to).finish().success();
    to
}

/// Lists all files below a directory with their contents.
fn contents(directory: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read(&path).expect("file")));
        }
    }
    found.sort();
    found
}

/// A branch that moves inside shows that an exchange took place; the second one shows that the first
/// exchange is over.
const AWAIT_TWO_EXCHANGES: &str = "until_true '[ \"$(git log -1 --format=%s a)\" = one ]'; reach one
    until_true '[ \"$(git log -1 --format=%s b)\" = two ]'";

/// Moves `a`, and `b` when the guest has seen it.
fn exchange_twice(fixture: &Fixture, main: &Path) {
    for (branch, subject) in [("a", "one"), ("b", "two")] {
        let tree = format!("{branch}^{{tree}}");
        let commit = git(fixture, main, &["commit-tree", "-p", branch, "-m", subject, &tree]).success().to_owned();
        git(fixture, main, &["update-ref", &format!("refs/heads/{branch}"), &commit]).success();
        if subject == "one" {
            await_step(main, "one");
        }
    }
}

/// The victims look as the private directories did, so the exchange would take them for these.
fn nothing_is_written_through_a_link_above_a_private_directory(fixture: &Fixture) {
    let main = prepare(fixture);
    add_worktree_and_submodule(fixture, &main);
    let victims = ["worktrees", "modules"].map(|name| copy(fixture, &main.join(".git").join(name), name));
    let before = victims.each_ref().map(|victim| contents(victim));
    let script = format!(
        "mv .git/worktrees .git/moved-1; ln -s {} .git/worktrees
        mv .git/modules .git/moved-2; ln -s {} .git/modules; reach linked; {AWAIT_TWO_EXCHANGES}",
        victims[0].display(),
        victims[1].display()
    );
    let mut running = start(fixture, &main, "links", &script);
    await_step(&main, "linked");
    fixture.write(main.join("wt/by-user"), "x\n");
    git(fixture, main.join("wt"), &["switch", "--quiet", "--create", "other"]).success();
    git(fixture, main.join("wt"), &["add", "by-user"]).success();
    for directory in ["wt", "sub"] {
        let commit = ["commit", "--quiet", "--allow-empty", "--message", "by the user"];
        git(fixture, main.join(directory), &commit).success();
    }
    exchange_twice(fixture, &main);
    running.finish().success();
    let written: Vec<_> = victims.iter().zip(before).filter(|(victim, before)| contents(victim) != *before).collect();
    let written: Vec<_> = written.iter().map(|(victim, _)| victim.display()).collect();
    assert!(written.is_empty(), "written through a link: {written:?}");
}

/// The victim has a staged file, which must not appear in the host's index of the worktree.
fn nothing_is_read_through_a_link_above_a_private_directory(fixture: &Fixture) {
    let main = prepare(fixture);
    add_worktree_and_submodule(fixture, &main);
    let worktree = main.join("wt");
    fixture.write(worktree.join("secret"), "x\n");
    git(fixture, &worktree, &["add", "secret"]).success();
    let victim = copy(fixture, &main.join(".git/worktrees"), "victim");
    git(fixture, &worktree, &["rm", "--quiet", "--force", "secret"]).success();
    let script =
        format!("rm -r .git/worktrees; ln -s {} .git/worktrees; reach linked; {AWAIT_TWO_EXCHANGES}", victim.display());
    let mut running = start(fixture, &main, "links", &script);
    await_step(&main, "linked");
    exchange_twice(fixture, &main);
    running.finish().success();
    assert_eq!(git(fixture, &worktree, &["diff", "--cached", "--name-only"]).success(), "");
}

/// `git status` enters the repository that a gitlink names, and the other guest can still plant
/// settings in it.
fn a_gitlink_stays_inside_while_another_sandbox_runs(fixture: &Fixture) {
    let main = prepare(fixture);
    let evil = evil(fixture);
    let other =
        format!("{evil}reach other; await planted; git -C sub config core.fsmonitor \"$EVIL\"; reach evil; await end");
    let mut other = start(fixture, &main, "other", &other);
    await_step(&main, "other");
    let make = "git init --quiet $sub; git -C $sub commit --quiet --allow-empty -m made; git add $sub 2> /dev/null";
    let mut first = start(fixture, &main, "first", &format!("sub=sub; {make}"));
    let stderr = messages(&mut first);
    let staged = || git(fixture, &main, &["ls-files", "--stage", "sub", "alone"]).success().to_owned();
    assert_eq!(staged(), "");
    assert!(stderr.contains("`sub` is not staged outside"), "{stderr}");
    allow_step(fixture, &main, "planted");
    await_step(&main, "evil");
    git(fixture, &main, &["status"]).success();
    attack::assert_nothing_ran(fixture, "git status beside the other sandbox");
    allow_step(fixture, &main, "end");
    messages(&mut other);
    for directory in [&main, &main.join("sub")] {
        git(fixture, directory, &["status"]).success();
        attack::assert_nothing_ran(fixture, "git status after both sandboxes");
    }
    // Without another sandbox the entry comes out.
    let mut alone = start(fixture, &main, "alone", &format!("sub=alone; {make}"));
    messages(&mut alone);
    assert!(staged().starts_with("160000 "), "{}", staged());
}

/// Git derives the name in `.git/worktrees` from the last part of the path.
fn worktrees_of_the_same_name_are_both_kept(fixture: &Fixture) {
    let main = prepare(fixture);
    let script = "reach ready; await go; mkdir in; git worktree add --quiet -b inside in/same; cd in/same
        echo x > by-guest; git add by-guest; cd ../..; reach added; await end";
    let mut running = start(fixture, &main, "race", script);
    await_step(&main, "ready");
    running.signal(Signal::STOP);
    allow_step(fixture, &main, "go");
    await_step(&main, "added");
    let host = fixture.outside("out").join("same");
    git(fixture, &main, &["worktree", "add", "--quiet", "-b", "outside", host.to_str().expect("text")]).success();
    fixture.write(host.join("by-user"), "x\n");
    git(fixture, &host, &["add", "by-user"]).success();
    allow_step(fixture, &main, "end");
    running.signal(Signal::CONT);
    messages(&mut running);
    for (directory, branch, staged) in
        [(host, "outside", "A  by-user"), (main.join("in/same"), "inside", "A  by-guest")]
    {
        let what = directory.display();
        let head = git(fixture, &directory, &["symbolic-ref", "--short", "HEAD"]);
        assert_eq!(head.success(), branch, "{what}");
        assert_eq!(git(fixture, &directory, &["status", "--porcelain"]).success(), staged, "{what}");
        let root = git(fixture, &directory, &["rev-parse", "--show-toplevel"]);
        assert_eq!(Path::new(root.success()), directory, "{what}");
        let listed = git(fixture, &main, &["worktree", "list", "--porcelain"]);
        assert!(listed.success().contains(&format!("worktree {what}\n")), "{what}: {}", listed.stdout);
    }
    assert_whole(fixture, &main);
}

/// Git removes entries below a file that is staged, and a file above an entry.
fn files_and_directories_in_the_index_do_not_replace_each_other(fixture: &Fixture) {
    let main = prepare(fixture);
    let script = "reach ready; await go; id=$(echo x | git hash-object -w --stdin)
        for path in one two/below plain; do git update-index --add --cacheinfo 100644,$id,$path; done; reach staged; await end";
    let mut running = start(fixture, &main, "conflict", script);
    await_step(&main, "ready");
    running.signal(Signal::STOP);
    allow_step(fixture, &main, "go");
    await_step(&main, "staged");
    let id = git(fixture, &main, &["rev-parse", "HEAD:file"]).success().to_owned();
    for path in ["one/below", "two"] {
        git(fixture, &main, &["update-index", "--add", "--cacheinfo", &format!("100644,{id},{path}")]).success();
    }
    allow_step(fixture, &main, "end");
    running.signal(Signal::CONT);
    let stderr = messages(&mut running);
    let staged = git(fixture, &main, &["diff", "--cached", "--name-only"]);
    assert_eq!(staged.success(), "one/below\nplain\ntwo");
    for path in ["one", "two/below"] {
        assert!(stderr.contains(&format!("`{path}` was staged on the host meanwhile")), "{path}: {stderr}");
    }
    assert_whole(fixture, &main);
}
