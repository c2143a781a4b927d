//! Tests subdirectories, linked worktrees, submodules and bare repositories.

use std::fs;

use super::{bash_in, git, last_subject, repository};
use crate::for_every_engine;
use crate::support::{Fixture, RunToEnd};

for_every_engine!(
    a_commit_in_a_linked_worktree_is_an_ordinary_commit,
    a_commit_in_a_submodule_is_an_ordinary_commit,
    a_commit_in_an_included_repository_is_an_ordinary_commit,
    a_bare_repository_works,
    sibling_worktrees_survive_prune_and_gc,
    a_worktree_made_inside_works_outside,
    attack_06_a_forged_git_file_pulls_nothing_in,
    attack_06_a_forged_commondir_pulls_nothing_in,
    attack_06_a_forged_submodule_pulls_nothing_in,
);

const COMMIT: &str = "git commit --quiet --allow-empty --message inside";

fn identify(fixture: &Fixture) {
    fixture.write(".gitconfig", "[user]\n\tname = Me\n\temail = me@example.org\n");
}

fn a_commit_in_a_linked_worktree_is_an_ordinary_commit(fixture: &Fixture) {
    identify(fixture);
    let main = repository(fixture, &fixture.outside("main"));
    let worktree = fixture.project.join("tree");
    git(fixture, &main, &["worktree", "add", "--quiet", worktree.to_str().expect("text")]).success();
    fs::create_dir(worktree.join("below")).expect("directory");
    std::os::unix::fs::chown(worktree.join("below"), Some(fixture.uid), Some(fixture.gid)).expect("chown");
    // Commits work from the root of the worktree and from a subdirectory.
    for directory in [worktree.clone(), worktree.join("below")] {
        let finished = bash_in(fixture, &directory, &[], COMMIT);
        assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    }
    assert_eq!(last_subject(fixture, &worktree), "inside");
    assert_eq!(git(fixture, &main, &["log", "--format=%ae", "-2", "tree"]).success(), "me@example.org\nme@example.org");
    git(fixture, &main, &["fsck", "--strict"]).success();
}

fn a_commit_in_a_submodule_is_an_ordinary_commit(fixture: &Fixture) {
    identify(fixture);
    let library = repository(fixture, &fixture.outside("library"));
    let main = repository(fixture, &fixture.project.join("super"));
    git(fixture, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "libs/one"]).success();
    let module = main.join("libs/one");
    let finished =
        bash_in(fixture, &module, &[], &format!("{COMMIT}; git -C ../.. add libs/one; git -C ../.. {}", &COMMIT[4..]));
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    assert_eq!((last_subject(fixture, &module), last_subject(fixture, &main)), ("inside".into(), "inside".into()));
    assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "");
}

fn a_commit_in_an_included_repository_is_an_ordinary_commit(fixture: &Fixture) {
    identify(fixture);
    let other = repository(fixture, &fixture.outside("other"));
    let path = other.to_str().expect("text");
    bash_in(fixture, &fixture.project, &["--include-dir", path], &format!("cd {path} && {COMMIT}")).success();
    assert_eq!(last_subject(fixture, &other), "inside");
    // The included repository is private as well.
    let script = format!("mkdir -p {path}/.git/hooks; touch {path}/.git/hooks/pre-commit");
    let finished = bash_in(fixture, &fixture.project, &["--include-dir", path], &script);
    finished.success();
    assert!(finished.stderr.contains("the hook `pre-commit` stays inside"), "{}", finished.stderr);
    assert!(!other.join(".git/hooks/pre-commit").exists());
}

fn a_bare_repository_works(fixture: &Fixture) {
    let source = repository(fixture, &fixture.outside("source"));
    git(fixture, &fixture.project, &["clone", "--quiet", "--bare", source.to_str().expect("text"), "bare.git"])
        .success();
    let bare = fixture.project.join("bare.git");
    assert_eq!(bash_in(fixture, &bare, &[], "git log -1 --format=%s; git branch new").success(), "first");
    assert_eq!(git(fixture, &bare, &["rev-parse", "--abbrev-ref", "new"]).success(), "new");
    let finished = bash_in(fixture, &bare, &[], "mkdir -p hooks; touch hooks/post-update");
    finished.success();
    assert!(finished.stderr.contains("the hook `post-update` stays inside"), "{}", finished.stderr);
    assert!(!bare.join("hooks/post-update").exists());
    assert_eq!(bash_in(fixture, &bare, &["--git", "shared"], "touch hooks/post-update").code, Some(1));
}

fn sibling_worktrees_survive_prune_and_gc(fixture: &Fixture) {
    identify(fixture);
    let main = repository(fixture, &fixture.project.join("main"));
    let sibling = fixture.outside("beside").join("tree");
    git(fixture, &main, &["worktree", "add", "--quiet", "--detach", sibling.to_str().expect("text")]).success();
    // Only the sibling's HEAD refers to this commit.
    git(fixture, &sibling, &["commit", "--quiet", "--allow-empty", "--message", "only here"]).success();
    let script = "git worktree prune --expire now; git -c gc.reflogExpireUnreachable=now gc --quiet --prune=now;
        mv .git/worktrees .git/away; rm -rf .git/worktrees/tree; true";
    bash_in(fixture, &main, &[], script).success();
    assert_eq!(last_subject(fixture, &sibling), "only here");
    git(fixture, &sibling, &["fsck"]).success();
    assert!(git(fixture, &main, &["worktree", "list"]).success().contains("beside/tree"));
    // A linked worktree does not damage its siblings either, and remains usable.
    let linked = fixture.project.join("linked");
    git(fixture, &main, &["worktree", "add", "--quiet", linked.to_str().expect("text")]).success();
    bash_in(fixture, &linked, &[], &format!("{script}; {COMMIT}")).success();
    assert_eq!(
        (last_subject(fixture, &sibling), last_subject(fixture, &linked)),
        ("only here".into(), "inside".into())
    );
}

fn a_worktree_made_inside_works_outside(fixture: &Fixture) {
    identify(fixture);
    let main = repository(fixture, &fixture.project.join("main"));
    let finished = bash_in(fixture, &main, &[], &format!("git worktree add --quiet ./next && cd next && {COMMIT}"));
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    assert_eq!(last_subject(fixture, &main.join("next")), "inside");
    // The new worktree also works inside, from the main working tree.
    bash_in(fixture, &main, &[], &format!("cd next && {COMMIT}")).success();
}

/// Returns whether a sandbox in `directory` can see the foreign repository.
fn shows(fixture: &Fixture, directory: &std::path::Path, foreign: &std::path::Path) -> bool {
    let finished = fixture.run().current_dir(directory).args(["--", "ls", foreign.to_str().expect("text")]).finish();
    assert!(
        finished.stderr.contains("sandpen: warning: the repository that contains the working directory is not mounted"),
        "{finished:?}"
    );
    finished.code == Some(0)
}

fn attack_06_a_forged_git_file_pulls_nothing_in(fixture: &Fixture) {
    let foreign = repository(fixture, &fixture.outside("foreign"));
    let tree = fixture.outside("its-tree").join("tree");
    git(fixture, &foreign, &["worktree", "add", "--quiet", tree.to_str().expect("text")]).success();
    let git_dir = foreign.join(".git");
    for target in [git_dir.clone(), git_dir.join("worktrees/tree")] {
        fixture.write("project/.git", &format!("gitdir: {}\n", target.display()));
        assert!(!shows(fixture, &fixture.project, &git_dir), "{target:?}");
    }
    fs::remove_file(fixture.project.join(".git")).expect("remove");
    std::os::unix::fs::symlink(&git_dir, fixture.project.join(".git")).expect("link");
    assert!(!shows(fixture, &fixture.project, &git_dir));
}

fn attack_06_a_forged_commondir_pulls_nothing_in(fixture: &Fixture) {
    let foreign = repository(fixture, &fixture.outside("foreign"));
    let git_dir = foreign.join(".git");
    // This directory of a worktree links back correctly, but names the foreign repository as its
    // own.
    fixture.write("project/fake/worktrees/x/commondir", &format!("{}\n", git_dir.display()));
    fixture.write("project/fake/worktrees/x/gitdir", &format!("{}/.git\n", fixture.project.display()));
    fixture.write("project/fake/worktrees/x/HEAD", "ref: refs/heads/main\n");
    fixture.write("project/.git", &format!("gitdir: {}/fake/worktrees/x\n", fixture.project.display()));
    assert!(!shows(fixture, &fixture.project, &git_dir));
}

fn attack_06_a_forged_submodule_pulls_nothing_in(fixture: &Fixture) {
    let outer = repository(fixture, &fixture.home.join("outer"));
    fixture.write("outer/secret", "hunter2");
    let library = repository(fixture, &fixture.outside("library"));
    git(fixture, &outer, &["submodule", "--quiet", "add", library.to_str().expect("text"), "real"]).success();
    // This directory claims to be that submodule.
    let forged = outer.join("forged");
    fixture.write("outer/forged/.git", "gitdir: ../.git/modules/real\n");
    assert!(!shows(fixture, &forged, &outer.join("secret")));
}
