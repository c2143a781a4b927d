//! Commits and files that cannot come out of a sandbox are kept and named, never removed.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::exchange::{allow_step, await_step, messages, next_command, prepare, refs, start};
use super::{bash_in, git, last_subject, repository};
use crate::faults::Full;
use crate::for_docker_and_native;
use crate::support::{Fixture, Running, eventually, is_root_or_skip};

for_docker_and_native!(
    what_does_not_come_out_of_a_new_repository_is_kept,
    a_new_repository_survives_a_kill_at_the_end,
    a_new_repository_survives_a_full_workspace,
    a_commit_survives_a_full_disk,
    large_files_in_a_clone_are_kept,
    worktrees_with_odd_names_come_out,
    worktrees_of_two_sandboxes_with_one_name_come_out,
    the_head_of_a_worktree_that_does_not_come_out_is_kept,
    a_shallow_clone_comes_out,
    problems_are_printed_with_quiet,
);

/// Lists the entries of the directory for what did not come out.
fn set_aside(fixture: &Fixture) -> Vec<PathBuf> {
    let list = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    list(fixture.home.join(".local/state/sandpen/set-aside")).flat_map(list).collect()
}

#[track_caller]
fn assert_kept(fixture: &Fixture, commit: &str, stderr: &str) {
    let is_kept = |directory: &PathBuf| {
        let file = Path::new("objects").join(&commit[..2]).join(&commit[2..]);
        let modules = directory.join("modules/sub");
        let is_there = directory.join(&file).exists() || modules.join(&file).exists();
        is_there && stderr.contains(&directory.display().to_string())
    };
    assert!(set_aside(fixture).iter().any(is_kept), "{commit} is lost:\n{stderr}");
}

fn what_does_not_come_out_of_a_new_repository_is_kept(fixture: &Fixture) {
    let main = prepare(fixture);
    git(fixture, &main, &["clone", "--quiet", "--bare", ".", "lib.git"]).success();
    let new = "set -e; export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always
        commit() { git commit --quiet --allow-empty --message \"$1\"; }; git init --quiet $NAME; cd $NAME; commit one\n";
    for (name, script) in [
        ("ref", "commit x; git update-ref refs/pull/1 HEAD; git rev-parse HEAD; git reset --quiet --hard HEAD~1"),
        ("worktree", "git worktree add --quiet --detach ../detached; cd ../detached; commit x; git rev-parse HEAD"),
        ("module", "git submodule --quiet add $TOP/lib.git sub; commit sub; cd sub; commit x; git rev-parse HEAD"),
        ("rebase", "commit two; commit x; git rev-parse HEAD; ! git rebase --quiet --exec false HEAD~1 2> /dev/null"),
    ] {
        let script = format!("NAME={name}; TOP={}; {new}{script}", main.display());
        let finished = bash_in(fixture, &main, &[], &script);
        let commit = finished.success();
        let out = git(fixture, main.join(name), &["cat-file", "-e", commit]);
        if name != "rebase" || out.code != Some(0) {
            assert_kept(fixture, commit, &finished.stderr);
        }
        assert!(!git(fixture, main.join(name), &["log", "--oneline"]).success().is_empty(), "{name}");
    }
    // A repository that comes out completely leaves nothing.
    let before = set_aside(fixture).len();
    let script = format!("NAME=whole; {new}echo x > file; git add file; echo y > other; git stash --quiet");
    let finished = bash_in(fixture, &main, &[], &script);
    assert_eq!((finished.success(), finished.stderr.as_str(), set_aside(fixture).len()), ("", "", before));
}

fn a_new_repository_survives_a_kill_at_the_end(fixture: &Fixture) {
    let main = prepare(fixture);
    let slow = fixture.outside("slow");
    // The host's Git blocks when it makes the repository.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *'init --quiet'*) mkdir {}/begun 2> /dev/null && sleep 10 && exit 1;; esac\nexec /usr/bin/git \"$@\"\n",
        slow.display()
    );
    fixture.write_script(slow.join("git"), &script);
    let path = format!("{}:{}", slow.display(), std::env::var("PATH").expect("PATH"));
    let script = "/usr/bin/git init --quiet new; cd new; /usr/bin/git commit --quiet --allow-empty --message precious";
    let mut command = fixture.run();
    let mut running = Running::start(command.current_dir(&main).env("PATH", path).args(["--", "bash", "-c", script]));
    eventually("the host's Git starts", || slow.join("begun").exists());
    running.signal(Signal::KILL);
    running.finish();
    assert!(!main.join("new/.git").exists());
    let stderr = next_command(fixture).stderr;
    assert_eq!(last_subject(fixture, &main.join("new")), "precious", "{stderr}");
    assert_eq!(fixture.sessions().len(), 0, "{stderr}");
}

fn a_new_repository_survives_a_full_workspace(fixture: &Fixture) {
    if !is_root_or_skip("mounts that only root can make") {
        return;
    }
    fixture.write(".gitconfig", "[user]\n\tname = Guest\n\temail = guest@example.org\n");
    let main = fixture.project.join("main");
    fs::create_dir_all(&main).expect("directory");
    let _disk = Full::at(fixture, main.clone(), "size=16m,mode=755");
    repository(fixture, &main);
    // The host's Git stores few objects as files, which need more space than the guest's pack.
    let script = "set -e; git init --quiet new; cd new; head -c 600000 /dev/urandom > file
        for i in $(seq 20); do echo $i >> file; git add file; git commit --quiet --message $i; git gc --quiet --prune=now; done
        cd ..; cat /dev/zero > filler 2> /dev/null || true";
    let finished = bash_in(fixture, &main, &[], script);
    finished.success();
    assert!(finished.stderr.contains("No space left on device"), "{}", finished.stderr);
    assert!(finished.stderr.contains("hint: the next sandpen command tries again"), "{}", finished.stderr);
    assert_eq!(fixture.sessions().len(), 1);
    let left = fs::read_dir(main.join("new")).expect("directory").flatten().map(|entry| entry.file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["file"], "a part of the repository is left");
    fs::remove_file(main.join("filler")).expect("remove");
    let stderr = next_command(fixture).stderr;
    assert_eq!(last_subject(fixture, &main.join("new")), "20", "{stderr}");
    assert_eq!(fixture.sessions().len(), 0, "{stderr}");
}

fn a_commit_survives_a_full_disk(fixture: &Fixture) {
    if !is_root_or_skip("mounts that only root can make") {
        return;
    }
    fixture.write(".gitconfig", "[user]\n\tname = Guest\n\temail = guest@example.org\n");
    let main = fixture.project.join("main");
    fs::create_dir_all(&main).expect("directory");
    let _disk = Full::at(fixture, main.clone(), "size=16m,mode=755");
    repository(fixture, &main);
    let before = git(fixture, &main, &["rev-parse", "HEAD"]).success().to_owned();
    let script = "set -e; head -c 3000000 /dev/urandom > file; cat /dev/zero > filler 2> /dev/null || true
        git add file; git commit --quiet --message inside";
    let finished = bash_in(fixture, &main, &[], script);
    finished.success();
    assert!(finished.stderr.contains("No space left on device"), "{}", finished.stderr);
    assert!(finished.stderr.contains("hint: the next sandpen command tries again"), "{}", finished.stderr);
    assert_eq!(fixture.sessions().len(), 1);
    fs::remove_file(main.join("filler")).expect("remove");
    assert_eq!(git(fixture, &main, &["rev-parse", "HEAD"]).success(), before, "nothing is half-applied");
    git(fixture, &main, &["fsck", "--strict"]).success();
    let locks = fs::read_dir(main.join(".git")).expect("directory").flatten().map(|entry| entry.path());
    let locks: Vec<PathBuf> = locks.filter(|path| path.extension().is_some_and(|kind| kind == "lock")).collect();
    assert_eq!(locks, Vec::<PathBuf>::new());
    let stderr = next_command(fixture).stderr;
    assert_eq!(last_subject(fixture, &main), "inside", "{stderr}");
    assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "");
    assert_eq!(fixture.sessions().len(), 0, "{stderr}");
}

fn large_files_in_a_clone_are_kept(fixture: &Fixture) {
    let main = prepare(fixture);
    let clone = repository(fixture, &main.join("clone"));
    fixture.write(clone.join(".git/other/old"), "");
    let script = "cd clone/.git/other; head -c 2000000 /dev/zero > large; ln -s large link; mkfifo pipe; ln old hard";
    let finished = bash_in(fixture, &main, &[], script);
    finished.success();
    let kept = set_aside(fixture).into_iter().find(|kept| kept.join("other/large").exists());
    let kept = kept.unwrap_or_else(|| panic!("the file is lost: {}", finished.stderr));
    assert_eq!(fs::metadata(kept.join("other/large")).expect("file").len(), 2_000_000);
    assert_eq!(fs::read_link(kept.join("other/link")).expect("link"), Path::new("large"));
    assert!(finished.stderr.contains(&kept.display().to_string()), "{}", finished.stderr);
}

fn worktrees_with_odd_names_come_out(fixture: &Fixture) {
    let main = prepare(fixture);
    for (number, name) in ["fix#12", "a b", "ü", "-x"].iter().enumerate() {
        let script = format!(
            "set -e; git worktree add --quiet --detach './{name}' > /dev/null; cd './{name}'
            git commit --quiet --allow-empty --message {number}; echo x > staged; git add staged"
        );
        let finished = bash_in(fixture, &main, &[], &script);
        finished.success();
        let tree = main.join(name);
        assert_eq!(last_subject(fixture, &tree), number.to_string(), "{name}: {}", finished.stderr);
        assert_eq!(git(fixture, &tree, &["status", "--porcelain"]).success(), "A  staged", "{name}");
    }
    git(fixture, &main, &["fsck", "--strict"]).success();
}

fn worktrees_of_two_sandboxes_with_one_name_come_out(fixture: &Fixture) {
    let main = prepare(fixture);
    let script = |name: &str| {
        format!(
            "git worktree add --quiet --detach {name}/fix > /dev/null; cd {name}/fix; commit {name}; echo > staged
            git add staged; cd ../..; reach {name}; await end-{name}"
        )
    };
    let mut sandboxes = ["one", "two"].map(|name| start(fixture, &main, name, &script(name)));
    for (running, name) in sandboxes.iter_mut().zip(["one", "two"]) {
        for ready in ["one", "two"] {
            await_step(&main, ready);
        }
        allow_step(fixture, &main, &format!("end-{name}"));
        let stderr = messages(running);
        let tree = main.join(name).join("fix");
        assert_eq!(last_subject(fixture, &tree), name, "{stderr}");
        assert_eq!(git(fixture, &tree, &["status", "--porcelain"]).success(), "A  staged", "{name}");
    }
}

fn the_head_of_a_worktree_that_does_not_come_out_is_kept(fixture: &Fixture) {
    let main = prepare(fixture);
    let script =
        "git worktree add --quiet --detach /tmp/elsewhere; cd /tmp/elsewhere; commit elsewhere; cd - > /dev/null
        git worktree add --quiet --detach removed; cd removed; commit removed; cd ..; rm -r removed
        git worktree add --quiet -b branch /tmp/on-branch; cd /tmp/on-branch; commit on-branch";
    let stderr = messages(&mut start(fixture, &main, "trees", script));
    assert_eq!(
        refs(fixture, &main, "refs/sandpen"),
        ["refs/sandpen/trees/worktrees/elsewhere elsewhere", "refs/sandpen/trees/worktrees/removed removed"],
        "{stderr}"
    );
    assert_eq!(refs(fixture, &main, "refs/heads/branch"), ["refs/heads/branch on-branch"]);
    assert!(stderr.contains("`refs/sandpen/trees/worktrees/removed`"), "{stderr}");
    // The user's own worktrees are not named.
    git(fixture, &main, &["worktree", "add", "--quiet", "--detach", "../outside"]).success();
    let finished = bash_in(fixture, &main, &[], "true");
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
}

fn a_shallow_clone_comes_out(fixture: &Fixture) {
    let main = prepare(fixture);
    git(fixture, &main, &["clone", "--quiet", "--bare", ".", "lib.git"]).success();
    let script = "git clone --quiet --depth 1 file://$PWD/lib.git new; cd new
        git commit --quiet --allow-empty --message precious";
    let finished = bash_in(fixture, &main, &[], script);
    finished.success();
    let new = main.join("new");
    let log = git(fixture, &new, &["log", "--format=%s"]);
    assert_eq!(log.success(), "precious\nfiles", "{}", finished.stderr);
    git(fixture, &new, &["fsck", "--strict"]).success();
}

fn problems_are_printed_with_quiet(fixture: &Fixture) {
    let main = prepare(fixture);
    let finished = bash_in(fixture, &main, &["-q"], "echo garbage > .git/HEAD");
    finished.success();
    assert!(finished.stderr.contains("warning: HEAD is missing or broken inside"), "{}", finished.stderr);
}
