//! Git on the host enters a repository at the path of every gitlink in its index, so the guest can
//! make none there, however the index is stored.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::attack;
use super::nested::{EVIL_REPOSITORY, evil};
use crate::for_docker_and_native;
use crate::git::exchange::{allow_step, await_step, messages, prepare, start};
use crate::git::{bash_in, git, last_subject};
use crate::support::{Fixture, RunToEnd};

for_docker_and_native!(
    submodules_of_a_split_index_are_covered,
    hundreds_of_submodules_are_covered,
    a_repository_whose_index_is_broken_is_not_used,
);

/// Adds gitlinks to the index of the host.
fn add_gitlinks(fixture: &Fixture, main: &Path, paths: &[String]) {
    let head = git(fixture, main, &["rev-parse", "HEAD"]).success().to_owned();
    let mut list = String::new();
    for path in paths {
        writeln!(list, "160000 {head}\t{path}").expect("text");
    }
    let list = fixture.write(main.join(".steps/list"), &list);
    let script = format!("git update-index --index-info < {}", list.display());
    fixture.host_command("sh").current_dir(main).args(["-c", &script]).finish().success();
}

/// Lets a guest make a repository at a path, and uses Git beside the running sandbox.
#[track_caller]
fn assert_covered(fixture: &Fixture, main: &Path, path: &str) {
    let script = format!("{}{EVIL_REPOSITORY}evil {path}; reach made; await end", evil(fixture));
    let mut running = start(fixture, main, path, &script);
    await_step(main, "made");
    for arguments in [&["status"][..], &["diff"], &["submodule", "status"]] {
        git(fixture, main, arguments);
        attack::assert_nothing_ran(fixture, &format!("git {arguments:?} beside the sandbox"));
    }
    allow_step(fixture, main, "end");
    let stderr = messages(&mut running);
    git(fixture, main, &["status"]).success();
    assert_eq!(last_subject(fixture, &main.join(path)), "evil", "{stderr}");
    git(fixture, main.join(path), &["status"]).success();
    attack::assert_nothing_ran(fixture, "git status after the sandbox");
}

fn submodules_of_a_split_index_are_covered(fixture: &Fixture) {
    let main = prepare(fixture);
    add_gitlinks(fixture, &main, &["sub".to_owned()]);
    git(fixture, &main, &["commit", "--quiet", "--message", "submodule"]).success();
    git(fixture, &main, &["update-index", "--split-index"]).success();
    git(fixture, &main, &["status"]).success();
    assert_covered(fixture, &main, "sub");
}

fn hundreds_of_submodules_are_covered(fixture: &Fixture) {
    let main = prepare(fixture);
    let paths: Vec<String> = (100..400).map(|number| format!("sub{number}")).collect();
    add_gitlinks(fixture, &main, &paths);
    git(fixture, &main, &["commit", "--quiet", "--message", "submodules"]).success();
    assert_covered(fixture, &main, "sub399");
}

fn a_repository_whose_index_is_broken_is_not_used(fixture: &Fixture) {
    let main = prepare(fixture);
    fs::write(main.join(".git/index"), "broken").expect("write");
    let finished = bash_in(fixture, &main, &[], "git log; echo started");
    assert_eq!(finished.success(), "started", "{}", finished.stderr);
    let index = main.join(".git/index");
    let expected = format!("Git does not work inside: `{}` cannot be read", index.display());
    assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
}
