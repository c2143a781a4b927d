//! Subdirectories, linked worktrees, submodules, bare repositories.

use std::fs;

use super::{bash_in, git, last_subject, repository};
use crate::for_every_engine;
use crate::support::{Pen, RunToEnd};

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

fn identify(pen: &Pen) {
    pen.write(".gitconfig", "[user]\n\tname = Me\n\temail = me@example.org\n");
}

fn a_commit_in_a_linked_worktree_is_an_ordinary_commit(pen: &Pen) {
    identify(pen);
    let main = repository(pen, &pen.outside("main"));
    let worktree = pen.project.join("tree");
    git(pen, &main, &["worktree", "add", "--quiet", worktree.to_str().expect("text")]).ok();
    fs::create_dir(worktree.join("below")).expect("directory");
    std::os::unix::fs::chown(worktree.join("below"), Some(pen.uid), Some(pen.gid)).expect("chown");
    // From its root, and from below.
    for directory in [worktree.clone(), worktree.join("below")] {
        let ran = bash_in(pen, &directory, &[], COMMIT);
        assert_eq!((ran.ok(), ran.stderr.as_str()), ("", ""));
    }
    assert_eq!(last_subject(pen, &worktree), "inside");
    assert_eq!(git(pen, &main, &["log", "--format=%ae", "-2", "tree"]).ok(), "me@example.org\nme@example.org");
    git(pen, &main, &["fsck", "--strict"]).ok();
}

fn a_commit_in_a_submodule_is_an_ordinary_commit(pen: &Pen) {
    identify(pen);
    let library = repository(pen, &pen.outside("library"));
    let main = repository(pen, &pen.project.join("super"));
    git(pen, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "libs/one"]).ok();
    let module = main.join("libs/one");
    let ran =
        bash_in(pen, &module, &[], &format!("{COMMIT}; git -C ../.. add libs/one; git -C ../.. {}", &COMMIT[4..]));
    assert_eq!((ran.ok(), ran.stderr.as_str()), ("", ""));
    assert_eq!((last_subject(pen, &module), last_subject(pen, &main)), ("inside".into(), "inside".into()));
    assert_eq!(git(pen, &main, &["status", "--porcelain"]).ok(), "");
}

fn a_commit_in_an_included_repository_is_an_ordinary_commit(pen: &Pen) {
    identify(pen);
    let other = repository(pen, &pen.outside("other"));
    let path = other.to_str().expect("text");
    bash_in(pen, &pen.project, &["--include-dir", path], &format!("cd {path} && {COMMIT}")).ok();
    assert_eq!(last_subject(pen, &other), "inside");
    // It is guarded as well.
    let ran = bash_in(pen, &pen.project, &["--include-dir", path], &format!("touch {path}/.git/hooks/pre-commit"));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
}

fn a_bare_repository_works(pen: &Pen) {
    let source = repository(pen, &pen.outside("source"));
    git(pen, &pen.project, &["clone", "--quiet", "--bare", source.to_str().expect("text"), "bare.git"]).ok();
    let bare = pen.project.join("bare.git");
    assert_eq!(bash_in(pen, &bare, &[], "git log -1 --format=%s; git branch new").ok(), "first");
    assert_eq!(git(pen, &bare, &["rev-parse", "--abbrev-ref", "new"]).ok(), "new");
    assert_eq!(bash_in(pen, &bare, &[], "touch hooks/post-update").code, Some(1));
}

fn sibling_worktrees_survive_prune_and_gc(pen: &Pen) {
    identify(pen);
    let main = repository(pen, &pen.project.join("main"));
    let sibling = pen.outside("beside").join("tree");
    git(pen, &main, &["worktree", "add", "--quiet", "--detach", sibling.to_str().expect("text")]).ok();
    // Only the sibling's HEAD holds this commit.
    git(pen, &sibling, &["commit", "--quiet", "--allow-empty", "--message", "only here"]).ok();
    let script = "git worktree prune --expire now; git -c gc.reflogExpireUnreachable=now gc --quiet --prune=now;
        mv .git/worktrees .git/away; rm -rf .git/worktrees/tree; true";
    bash_in(pen, &main, &[], script).ok();
    assert_eq!(last_subject(pen, &sibling), "only here");
    git(pen, &sibling, &["fsck"]).ok();
    assert!(git(pen, &main, &["worktree", "list"]).ok().contains("beside/tree"));
    // A linked worktree does not damage its siblings either, and stays usable itself.
    let linked = pen.project.join("linked");
    git(pen, &main, &["worktree", "add", "--quiet", linked.to_str().expect("text")]).ok();
    bash_in(pen, &linked, &[], &format!("{script}; {COMMIT}")).ok();
    assert_eq!((last_subject(pen, &sibling), last_subject(pen, &linked)), ("only here".into(), "inside".into()));
}

fn a_worktree_made_inside_works_outside(pen: &Pen) {
    identify(pen);
    let main = repository(pen, &pen.project.join("main"));
    let ran = bash_in(pen, &main, &[], &format!("git worktree add --quiet ./next && cd next && {COMMIT}"));
    assert_eq!((ran.ok(), ran.stderr.as_str()), ("", ""));
    assert_eq!(last_subject(pen, &main.join("next")), "inside");
    // And inside again, from the main working tree.
    bash_in(pen, &main, &[], &format!("cd next && {COMMIT}")).ok();
}

/// Runs there and returns whether anything of the foreign repository can be seen.
fn shows(pen: &Pen, directory: &std::path::Path, foreign: &std::path::Path) -> bool {
    let ran = pen.run().current_dir(directory).args(["--", "ls", foreign.to_str().expect("text")]).ran();
    assert!(
        ran.stderr.contains("sandpen: warning: the repository that contains the working directory is not mounted"),
        "{ran:?}"
    );
    ran.code == Some(0)
}

fn attack_06_a_forged_git_file_pulls_nothing_in(pen: &Pen) {
    let foreign = repository(pen, &pen.outside("foreign"));
    let tree = pen.outside("its-tree").join("tree");
    git(pen, &foreign, &["worktree", "add", "--quiet", tree.to_str().expect("text")]).ok();
    let git_dir = foreign.join(".git");
    for target in [git_dir.clone(), git_dir.join("worktrees/tree")] {
        pen.write("project/.git", &format!("gitdir: {}\n", target.display()));
        assert!(!shows(pen, &pen.project, &git_dir), "{target:?}");
    }
    fs::remove_file(pen.project.join(".git")).expect("remove");
    std::os::unix::fs::symlink(&git_dir, pen.project.join(".git")).expect("link");
    assert!(!shows(pen, &pen.project, &git_dir));
}

fn attack_06_a_forged_commondir_pulls_nothing_in(pen: &Pen) {
    let foreign = repository(pen, &pen.outside("foreign"));
    let git_dir = foreign.join(".git");
    // A worktree's directory that links back correctly, and names the foreign repository as its own.
    pen.write("project/fake/worktrees/x/commondir", &format!("{}\n", git_dir.display()));
    pen.write("project/fake/worktrees/x/gitdir", &format!("{}/.git\n", pen.project.display()));
    pen.write("project/fake/worktrees/x/HEAD", "ref: refs/heads/main\n");
    pen.write("project/.git", &format!("gitdir: {}/fake/worktrees/x\n", pen.project.display()));
    assert!(!shows(pen, &pen.project, &git_dir));
}

fn attack_06_a_forged_submodule_pulls_nothing_in(pen: &Pen) {
    let outer = repository(pen, &pen.home.join("outer"));
    pen.write("outer/secret", "hunter2");
    let library = repository(pen, &pen.outside("library"));
    git(pen, &outer, &["submodule", "--quiet", "add", library.to_str().expect("text"), "real"]).ok();
    // A directory in it that claims to be that submodule.
    let forged = outer.join("forged");
    pen.write("outer/forged/.git", "gitdir: ../.git/modules/real\n");
    assert!(!shows(pen, &forged, &outer.join("secret")));
}
