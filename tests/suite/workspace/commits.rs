//! Tests `apply --commits`: commits of a copy on a branch of the user.

use std::fs;

use super::{git, in_copy, prepare, sandpen, snapshot};
use crate::for_docker_and_native;
use crate::support::{Engine, Fixture, RunToEnd};

for_docker_and_native!(commits_come_onto_the_current_branch, attack_31_a_commit_that_leads_into_git_is_refused);

const TWO_COMMITS: &str = "set -e; sed -i s/^5$/five/ file; git commit --quiet --all --message 'Five'; \
                           git rm --quiet gone; echo n > new; git add new; git commit --quiet --message 'New and gone'; \
                           echo loose >> dir/inner";

fn commits_come_onto_the_current_branch(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "kept", TWO_COMMITS);
    // An edit of other lines meanwhile is merged, and stays uncommitted.
    let path = fixture.project.join("file");
    fs::write(&path, fs::read_to_string(&path).expect("file").replace("\n18\n", "\neighteen\n")).expect("file");
    let (before, refs) = (snapshot(&fixture.project), git(fixture, &["show-ref"]));
    let applied = sandpen(fixture, &["apply", "--commits"]);
    applied.success();
    assert!(applied.stderr.contains("2 commits taken") && !applied.stderr.contains("stay there"), "{}", applied.stderr);
    assert_eq!(git(fixture, &["log", "--format=%s %an"]), "New and gone Guest\nFive Guest\none Guest");
    assert_eq!(git(fixture, &["status", "--short"]), " M dir/inner\n M file");
    assert!(
        git(fixture, &["diff", "file"]).contains("+eighteen") && !git(fixture, &["diff", "file"]).contains("five\n-")
    );
    let waiting = sandpen(fixture, &["diff"]);
    assert_eq!(waiting.success(), "", "neither files nor commits wait");
    sandpen(fixture, &["undo"]).success();
    assert_eq!(git(fixture, &["show-ref"]), refs);
    assert_eq!(git(fixture, &["status", "--short"]), " M file");
    let paths = |files: &std::collections::BTreeMap<std::path::PathBuf, String>| -> Vec<(std::path::PathBuf, String)> {
        let of_work_tree = files.iter().filter(|(path, _)| !path.starts_with(fixture.project.join(".git")));
        of_work_tree.map(|(path, content)| (path.clone(), content.clone())).collect()
    };
    assert_eq!(paths(&snapshot(&fixture.project)), paths(&before));
    assert!(sandpen(fixture, &["diff"]).success().contains("2 commits on `main`"));
}

/// Git would write such a tree into its own directory.
fn attack_31_a_commit_that_leads_into_git_is_refused(fixture: &Fixture) {
    prepare(fixture);
    let script = "set -e; blob=$(echo evil | git hash-object -w --stdin); \
                  tree=$(printf '100644 blob %s\\t.git\\n' $blob | git mktree); \
                  git update-ref HEAD $(git commit-tree -p HEAD -m evil $tree)";
    in_copy(fixture, "evil", script);
    let refs = git(fixture, &["show-ref"]);
    for arguments in [&["apply", "--commits"][..], &["apply", "--commits=other"]] {
        let refused = sandpen(fixture, arguments);
        assert!(refused.failure(1).contains("hasDotgit"), "{}", refused.stderr);
        assert_eq!(git(fixture, &["show-ref"]), refs);
    }
}

fn on_native(test: impl FnOnce(&Fixture)) {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        test(fixture);
    });
}

#[test]
fn commits_come_as_a_branch_of_their_own() {
    on_native(|fixture| {
        in_copy(fixture, "kept", TWO_COMMITS);
        fixture.write("project/mine", "mine\n");
        git(fixture, &["add", "mine"]);
        git(fixture, &["commit", "--quiet", "--message", "mine"]);
        let before = git(fixture, &["status", "--short", "--branch"]);
        sandpen(fixture, &["apply", "kept", "--commits=agent/work"]).success();
        assert_eq!(git(fixture, &["log", "--format=%s", "agent/work"]), "New and gone\nFive\none");
        assert_eq!(git(fixture, &["status", "--short", "--branch"]), before, "nothing else changes");
        let again = sandpen(fixture, &["apply", "--commits=agent/work"]);
        assert!(again.failure(1).contains("exists already"), "{}", again.stderr);
        sandpen(fixture, &["undo"]).success();
        assert_eq!(git(fixture, &["branch", "--format=%(refname:short)"]), "main");
        for name in ["../x", "a..b", "-x", "x.lock", "a b"] {
            let refused = sandpen(fixture, &["apply", &format!("--commits={name}")]);
            assert!(refused.failure(1).contains("is not a name for a branch"), "{name}: {}", refused.stderr);
        }
        assert!(sandpen(fixture, &["apply", "--commits", "kept", "file"]).failure(2).contains("takes all commits"));
    });
}

#[test]
fn commits_do_not_come_over_other_commits_or_staged_changes() {
    on_native(|fixture| {
        in_copy(fixture, "kept", TWO_COMMITS);
        fixture.write("project/new", "staged\n");
        git(fixture, &["add", "new"]);
        fs::remove_file(fixture.project.join("new")).expect("remove");
        let before = snapshot(&fixture.project);
        let refused = sandpen(fixture, &["apply", "--commits"]);
        assert!(refused.failure(1).contains("changes are staged here"), "{}", refused.stderr);
        git(fixture, &["rm", "--quiet", "--cached", "new"]);
        assert!(before.keys().all(|path| path.symlink_metadata().is_ok()), "nothing was changed");
        git(fixture, &["commit", "--quiet", "--allow-empty", "--message", "mine"]);
        let refused = sandpen(fixture, &["apply", "--commits"]);
        assert!(refused.failure(1).contains("--commits=NAME"), "{}", refused.stderr);
        assert!(refused.stderr.contains("has commits here"), "{}", refused.stderr);
        assert!(fixture.project.join("gone").exists(), "no file was applied");
        // A branch that was moved since is not moved back.
        git(fixture, &["reset", "--quiet", "HEAD^"]);
        sandpen(fixture, &["apply", "--commits"]).success();
        git(fixture, &["commit", "--quiet", "--allow-empty", "--message", "later"]);
        let kept = sandpen(fixture, &["undo"]);
        assert!(kept.failure(1).contains("was moved since"), "{}", kept.stderr);
        assert!(fixture.project.join("new").exists());
    });
}

#[test]
fn commits_come_into_a_linked_worktree() {
    on_native(|fixture| {
        let linked = fixture.home.join("linked");
        git(fixture, &["worktree", "add", "--quiet", "-b", "side", linked.to_str().expect("UTF-8")]);
        fixture.give_to_user(&linked);
        let run = |arguments: &[&str]| fixture.sandpen(arguments).current_dir(&linked).finish();
        let git_there = |arguments: &[&str]| {
            fixture.host_command("git").current_dir(&linked).args(arguments).finish().success().to_owned()
        };
        let mut command = fixture.run();
        command.current_dir(&linked).args(["--name", "linked", "--workspace", "copy", "--", "bash", "-c", TWO_COMMITS]);
        command.finish().success();
        // Git has the version that both started from.
        let text = fs::read_to_string(linked.join("file")).expect("file").replace("\n18\n", "\neighteen\n");
        fs::write(linked.join("file"), text).expect("file");
        run(&["apply", "--commits"]).success();
        assert_eq!(git_there(&["log", "--format=%s"]), "New and gone\nFive\none");
        assert_eq!(git_there(&["status", "--short"]), " M dir/inner\n M file");
        assert_eq!(git(fixture, &["log", "--format=%s"]), "one", "the main working tree is on another branch");
        assert_eq!(git(fixture, &["status", "--short"]), "");
        run(&["undo"]).success();
        assert_eq!(git_there(&["log", "--format=%s"]), "one");
        assert_eq!(git_there(&["status", "--short"]), " M file");
    });
}
