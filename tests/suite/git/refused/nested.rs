//! Repositories that a guest made in the working tree run no code on the host, wherever they are
//! hidden.

use std::fs;
use std::path::Path;

use super::Snapshot;
use super::attack::{self, Attack};
use crate::for_docker_and_native;
use crate::git::{bash_in, git, last_subject, repository};
use crate::support::{Fixture, Running, eventually, holds_within};

for_docker_and_native!(
    a_gitlink_to_a_new_repository_runs_nothing,
    a_gitlink_in_a_split_index_runs_nothing,
    hidden_repositories_run_nothing,
    pointers_of_the_guest_lead_nowhere,
    repositories_of_the_user_in_the_working_tree_stay_whole,
);

/// Makes a repository at `$1` whose settings and hooks leave a trace.
pub const EVIL_REPOSITORY: &str = "evil() { git init --quiet \"$1\"; git -C \"$1\" commit --quiet --allow-empty -m evil
    git -C \"$1\" config core.fsmonitor \"$EVIL\"; printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > \"$1/.git/hooks/post-checkout\"; chmod +x \"$1/.git/hooks/post-checkout\"; }\n";

/// Sets `$EVIL` to a shell command that leaves a trace on the host.
pub fn evil(fixture: &Fixture) -> String {
    format!("EVIL='touch {}/executed'\n", fixture.root.display())
}

/// `git status` enters the repository that a gitlink names, also while the sandbox runs.
fn a_gitlink_to_a_new_repository_runs_nothing(fixture: &Fixture) {
    use_gitlink(fixture, "");
}

/// The host's index follows HEAD there, but to no new gitlink.
fn a_gitlink_in_a_split_index_runs_nothing(fixture: &Fixture) {
    use_gitlink(fixture, "git update-index --split-index");
}

fn use_gitlink(fixture: &Fixture, before: &str) {
    let main = attack::prepare(fixture, "running");
    let evil = evil(fixture);
    let script = format!(
        "{evil}{EVIL_REPOSITORY}set -e; {before}\nevil sub; git add sub 2> /dev/null; git commit --quiet -m gitlink; git branch other main~1
        touch committed; for i in $(seq 300); do [ -e end ] && exit; sleep 0.1; done; exit 9"
    );
    let mut command = fixture.run();
    let mut running = Running::start(command.current_dir(&main).args(["--", "bash", "-c", &script]));
    eventually("the guest commits", || main.join("committed").exists());
    // The other branch shows that an exchange has taken place since the commit.
    eventually("an exchange takes place", || git(fixture, &main, &["rev-parse", "--verify", "other"]).code == Some(0));
    holds_within(std::time::Duration::from_secs(1), || {
        git(fixture, &main, &["status"]).success();
        attack::assert_nothing_ran(fixture, "git status beside a running sandbox");
        false
    });
    fixture.write(main.join("end"), "");
    running.finish().success();
    for arguments in
        [&["status"][..], &["diff"], &["submodule", "status"], &["add", "--all"], &["checkout", "--force", "old"]]
    {
        git(fixture, &main, arguments);
        git(fixture, main.join("sub"), arguments);
        attack::assert_nothing_ran(fixture, &format!("git {arguments:?}"));
    }
}

fn hidden_repositories_run_nothing(fixture: &Fixture) {
    let deep = "d/".repeat(205);
    for (number, place) in
        ["plain/evil", ".git/x/evil", &format!("{deep}evil"), "closed/evil", "sub"].iter().enumerate()
    {
        let script = format!(
            "{EVIL_REPOSITORY}mkdir -p $(dirname '{place}'); evil '{place}'
            mkdir -p sub; [ -e sub/.git ] || echo \"gitdir: $PWD/{place}/.git\" > sub/.git
            git update-index --add --cacheinfo 160000,$(git -C '{place}' rev-parse HEAD),sub
            [ ! -d closed ] || chmod 0311 closed"
        );
        let name = format!("hidden-{number}");
        Attack::new(fixture, &name, &script).says("").run();
        let main = attack::directory(fixture, &name);
        for directory in [main.join("sub"), main.join(place)] {
            if directory.exists() {
                git(fixture, &directory, &["status"]);
                git(fixture, &directory, &["checkout", "--quiet", "-b", "x"]);
            }
        }
        attack::assert_nothing_ran(fixture, place);
    }
    // Bare repositories, and the two halves of one, are not below a `.git`.
    let script = format!("{EVIL_REPOSITORY}evil x; mv x/.git bare; rm -r x; git -C bare config core.bare true");
    Attack::new(fixture, "bare", &script).says("").run();
    let script = "mkdir -p a/objects a/refs b c; printf '[core]\\n\\tfsmonitor = %s\\n' \"$EVIL\" > a/config
        echo 'ref: refs/heads/x' > b/HEAD; echo ../a > b/commondir; echo 'gitdir: ../b' > c/.git";
    Attack::new(fixture, "halves", script).says("").run();
    for name in ["bare", "halves"] {
        for place in ["bare", "a", "b", "c"] {
            let directory = attack::directory(fixture, name).join(place);
            if directory.exists() {
                git(fixture, &directory, &["status"]);
            }
        }
        attack::assert_nothing_ran(fixture, name);
    }
}

fn pointers_of_the_guest_lead_nowhere(fixture: &Fixture) {
    let foreign = repository(fixture, &fixture.outside("foreign"));
    let git_dir = foreign.join(".git");
    for (name, make) in [
        ("file", format!("echo 'gitdir: {}' > sub/.git", git_dir.display())),
        ("link", format!("ln -s {} sub/.git", git_dir.display())),
        // Git takes the second blank for the beginning of a relative path.
        (
            "blank",
            format!(
                "mkdir -p 'sub/ {0}'; rmdir 'sub/ {0}'; ln -s {0} 'sub/ {0}'; echo 'gitdir:  {0}' > sub/.git",
                git_dir.display()
            ),
        ),
    ] {
        Attack::new(fixture, name, &format!("mkdir sub; {make}")).says("sub/.git").run();
        let pointer = attack::directory(fixture, name).join("sub/.git");
        assert!(pointer.symlink_metadata().is_err(), "{name}: the pointer is left");
    }
}

/// Creates a repository with settings, a hook, a ref of another tool, and a commit that only the
/// reflog knows.
fn repository_with_history(fixture: &Fixture, directory: &Path) -> String {
    repository(fixture, directory);
    git(fixture, directory, &["config", "user.email", "own@example.org"]).success();
    git(fixture, directory, &["config", "alias.st", "status"]).success();
    fixture.write_script(directory.join(".git/hooks/post-merge"), "#!/bin/sh\n");
    git(fixture, directory, &["update-ref", "refs/custom/x", "HEAD"]).success();
    git(fixture, directory, &["commit", "--quiet", "--allow-empty", "--message", "undone"]).success();
    let undone = git(fixture, directory, &["rev-parse", "HEAD"]).success().to_owned();
    git(fixture, directory, &["reset", "--quiet", "--hard", "HEAD~1"]).success();
    undone
}

/// The user's clones below the working directory are not made anew, whatever the guest does there.
fn repositories_of_the_user_in_the_working_tree_stay_whole(fixture: &Fixture) {
    fixture.write(".gitconfig", "[user]\n\tname = Me\n\temail = me@example.org\n");
    let plain = fixture.project.join("plain");
    fixture.write("project/plain/file", "");
    let above = repository(fixture, &fixture.project.join("above"));
    let commit = "git commit --quiet --allow-empty --message inside";
    for (directory, options) in [(&plain, &[][..]), (&above, &[]), (&above, &["--git", "shared"])] {
        for (number, script) in ["touch file", "git status", commit, "rm -rf .git/hooks"].iter().enumerate() {
            let what = format!("`{script}` below {} with {options:?}", directory.display());
            let nested = directory.join(format!("nested-{number}-{}", options.len()));
            let undone = repository_with_history(fixture, &nested);
            // The text of the last commit is data, which the guest may write.
            let message = nested.join(".git/COMMIT_EDITMSG");
            fs::remove_file(&message).expect("remove");
            let before = Snapshot::of(&nested.join(".git"));
            let finished = bash_in(fixture, directory, options, &format!("cd {}; {script}", nested.display()));
            let _ = fs::remove_file(&message);
            assert_eq!(finished.code, Some(0), "{what}: {finished:#?}");
            before.assert_only_commits_came_out(&what);
            let reflog = git(fixture, &nested, &["reflog", "--format=%H"]);
            assert!(reflog.success().contains(&undone), "{what}: the reflog is lost: {finished:#?}");
            git(fixture, &nested, &["rev-parse", "--verify", "refs/custom/x"]).success();
            let expected = if *script == commit { "inside" } else { "first" };
            assert_eq!(last_subject(fixture, &nested), expected, "{what}");
        }
    }
}
