//! Attacks on the exchange itself: Git directories in odd places, links above private directories,
//! and files whose removal looks like a deletion.

use std::fs;

use super::Snapshot;
use super::attack;
use crate::for_docker_and_native;
use crate::git::{bash_in, git, repository};
use crate::support::Fixture;

for_docker_and_native!(
    a_directory_that_looks_like_a_repository_keeps_its_files,
    links_above_private_directories_are_not_followed,
    hidden_git_directories_run_nothing,
    a_repository_of_the_user_is_never_removed,
    a_stash_without_its_reflog_stays,
);

/// Names the settings that leave a trace.
fn evil(fixture: &Fixture) -> String {
    format!("touch {}/executed; false", fixture.root.display())
}

fn assert_nothing_ran(fixture: &Fixture, what: &str) {
    assert!(!fixture.root.join("executed").exists(), "executed on the host: {what}");
}

fn a_directory_that_looks_like_a_repository_keeps_its_files(fixture: &Fixture) {
    let main = attack::prepare(fixture, "root");
    fixture.write("project/root/lib/main.c", "code");
    let before = Snapshot::of(&main.join(".git"));
    let script = "for d in . lib; do mkdir -p $d/objects $d/refs/heads; echo 'ref: refs/heads/main' > $d/HEAD; done
        printf '[core]\n\tfsmonitor = x\n' > lib/config";
    bash_in(fixture, &main, &[], script).success();
    before.assert_only_commits_came_out("a HEAD in the working tree");
    assert_eq!(fs::read_to_string(main.join("lib/main.c")).expect("the file stays"), "code");
    git(fixture, &main, &["log", "-1"]).success();
    assert!(!main.join("lib/HEAD").exists(), "Git would use the settings in `lib`");
}

fn links_above_private_directories_are_not_followed(fixture: &Fixture) {
    let main = attack::prepare(fixture, "linked");
    let victim = repository(fixture, &fixture.outside("victim"));
    let before = Snapshot::of(&victim.join(".git"));
    let (above, name) = (victim.parent().expect("a parent").display(), victim.file_name().expect("a name").display());
    let script = format!(
        "rm -rf .git/modules; ln -s {above} .git/modules; mkdir s; printf 'gitdir: ../.git/modules/{name}/.git\\n' > s/.git"
    );
    bash_in(fixture, &main, &[], &script).success();
    before.assert_only_commits_came_out("a link at .git/modules");
}

fn hidden_git_directories_run_nothing(fixture: &Fixture) {
    let main = attack::prepare(fixture, "hidden");
    git(fixture, &main, &["init", "--quiet", "--bare", "m.git"]).success();
    let script = format!(
        "printf '[core]\\n\\tfsmonitor = %s\\n\\tbare = false\\n\\tworktree = .\\n' \"{0}\" > evil
        git -C m.git config core.fsmonitor \"{0}\"; git -C m.git config core.bare false; git -C m.git config core.worktree .
        mkdir src; cp .git/HEAD src; cp evil src/config; ln -s ../m.git/objects src/objects; ln -s ../m.git/refs src/refs
        mkdir c lib; cp -r m.git/. c; cp .git/HEAD lib; echo ../c > lib/commondir; cp evil lib/config.worktree; cp evil c/config
        git init --quiet closed; cp evil closed/.git/config; chmod 555 closed/.git closed
        git init --quiet m.git/deep; cp evil m.git/deep/.git/config",
        evil(fixture)
    );
    bash_in(fixture, &main, &[], &script);
    for directory in ["m.git", "src", "lib", "c", "closed", "m.git/deep", "."] {
        git(fixture, main.join(directory), &["status"]);
        assert_nothing_ran(fixture, directory);
    }
}

fn a_repository_of_the_user_is_never_removed(fixture: &Fixture) {
    let main = attack::prepare(fixture, "whole");
    let nested = repository(fixture, &main.join("nested"));
    git(fixture, &nested, &["update-ref", "refs/custom/x", "HEAD"]).success();
    fs::create_dir_all(nested.join(".git/svn")).expect("directory");
    fs::write(nested.join(".git/svn/x"), "kept").expect("write");
    let script = "cd nested/.git; rm description; mkdir description; mkdir closed; chmod 0 closed";
    bash_in(fixture, &main, &[], script).success();
    assert_eq!(fs::read_to_string(nested.join(".git/svn/x")).expect("the file stays"), "kept");
    git(fixture, &nested, &["rev-parse", "--verify", "refs/custom/x"]).success();
}

fn a_stash_without_its_reflog_stays(fixture: &Fixture) {
    let main = attack::prepare(fixture, "stash");
    for text in ["one", "two"] {
        fixture.write("project/stash/file", text);
        git(fixture, &main, &["stash", "push", "--quiet"]).success();
    }
    let before = git(fixture, &main, &["stash", "list"]).success().to_owned();
    assert_eq!(before.lines().count(), 2);
    for script in ["rm -rf .git/logs", "rm .git/logs/refs/stash; mkdir .git/logs/refs/stash"] {
        let commit = "git -c user.name=N -c user.email=n@x commit --quiet --allow-empty --message x";
        bash_in(fixture, &main, &[], &format!("{script}; {commit}"));
        assert_eq!(git(fixture, &main, &["stash", "list"]).success(), before, "{script}");
    }
}
