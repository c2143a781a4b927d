//! Links that a guest puts above a path, in the way of a `.git` file or among objects lead Git and
//! sandpen nowhere.

use std::fs;
use std::path::Path;

use super::attack;
use super::nested::{EVIL_REPOSITORY, evil};
use crate::for_docker_and_native;
use crate::git::exchange::{allow_step, await_step, messages, prepare, start};
use crate::git::{bash_in, git, last_subject, repository};
use crate::support::{Fixture, eventually};

for_docker_and_native!(
    a_submodule_is_not_filled_through_a_link_of_another_guest,
    a_git_file_leads_nowhere_through_a_link,
    a_git_directory_among_the_refs_of_a_clone_is_not_used,
    links_among_the_objects_of_a_clone_are_removed,
    names_that_are_not_text_do_not_prevent_a_launch,
);

#[track_caller]
fn assert_status_runs_nothing(fixture: &Fixture, directory: &Path) {
    git(fixture, directory, &["status"]);
    attack::assert_nothing_ran(fixture, &directory.display().to_string());
}

fn a_submodule_is_not_filled_through_a_link_of_another_guest(fixture: &Fixture) {
    let main = prepare(fixture);
    let victim = fixture.outside("victim");
    let head = git(fixture, &main, &["rev-parse", "HEAD"]).success().to_owned();
    let entry = format!("160000,{head},vendor/sub");
    git(fixture, &main, &["update-index", "--add", "--cacheinfo", &entry]).success();
    git(fixture, &main, &["commit", "--quiet", "--message", "submodule"]).success();
    fs::create_dir_all(main.join("vendor/sub")).expect("directory");
    for directory in ["vendor", "vendor/sub"] {
        fixture.give_to_user(main.join(directory));
    }
    let script = "echo x > vendor/sub/planted; git rm --quiet --cached vendor/sub; reach written; await first-end";
    let mut first = start(fixture, &main, "first", script);
    await_step(&main, "written");
    eventually("the submodule is no longer in the index", || {
        git(fixture, &main, &["ls-files", "vendor"]).success().is_empty()
    });
    let script = format!("mv vendor moved; ln -s {} vendor; reach linked; await second-end", victim.display());
    let mut second = start(fixture, &main, "second", &script);
    await_step(&main, "linked");
    allow_step(fixture, &main, "first-end");
    let stderr = messages(&mut first);
    assert!(fs::read_dir(&victim).expect("directory").next().is_none(), "written through a link: {stderr}");
    assert!(stderr.contains("what was made inside is kept in"), "{stderr}");
    allow_step(fixture, &main, "second-end");
    messages(&mut second);
    let kept = fixture.home.join(".local/state/sandpen/set-aside/first/sub/planted");
    assert_eq!(fs::read_to_string(kept).expect("the file is kept"), "x\n");
}

/// The kernel resolves `..` after a link from its target.
fn a_git_file_leads_nowhere_through_a_link(fixture: &Fixture) {
    for (name, text) in [
        ("relative", "l/../../.git"),
        ("upwards", "../sub/l/../../.git"),
        ("absolute", "$PWD/sub/l/../../.git"),
        ("within", "$PWD/.git/l/../../.git"),
    ] {
        let main = attack::prepare(fixture, name);
        let script = format!(
            "{}{EVIL_REPOSITORY}git init --quiet --bare b.git; mkdir -p b.git/objects/p/q; evil b.git/objects
            mkdir sub; ln -s ../b.git/objects/p/q sub/l; ln -s ../b.git/objects/p/q .git/l; echo \"gitdir: {text}\" > sub/.git",
            evil(fixture)
        );
        bash_in(fixture, &main, &[], &script).success();
        assert!(main.join("sub/.git").symlink_metadata().is_err(), "{name}");
        assert_status_runs_nothing(fixture, &main.join("sub"));
        git(fixture, &main, &["add", "--all"]);
        attack::assert_nothing_ran(fixture, name);
    }
}

fn a_git_directory_among_the_refs_of_a_clone_is_not_used(fixture: &Fixture) {
    for place in ["refs", "refs/heads/deep", "logs", "objects/aa", "objects/pack"] {
        let main = attack::prepare(fixture, "hidden");
        let clone = repository(fixture, &main.join("clone"));
        let script = format!(
            "{}mkdir -p sub clone/.git/{place}/objects clone/.git/{place}/refs; cd clone/.git/{place}
            echo 'ref: refs/heads/main' > HEAD; git config --file config core.repositoryFormatVersion 0
            git config --file config core.worktree {}; git config --file config core.fsmonitor \"$EVIL\"",
            evil(fixture),
            main.join("sub").display()
        );
        let finished = bash_in(fixture, &main, &[], &script);
        finished.success();
        let hidden = clone.join(".git").join(place);
        assert!(hidden.exists() && !hidden.join("HEAD").exists(), "{place}: {}", finished.stderr);
        assert_status_runs_nothing(fixture, &hidden);
        assert_eq!(last_subject(fixture, &clone), "first", "{place}: {}", finished.stderr);
    }
}

/// `git gc` would remove the packs of another repository.
fn links_among_the_objects_of_a_clone_are_removed(fixture: &Fixture) {
    let main = attack::prepare(fixture, "objects");
    let clone = repository(fixture, &main.join("clone"));
    let other = repository(fixture, &fixture.outside("other")).join(".git/objects");
    let script = format!(
        "cd clone/.git/objects; rmdir pack; ln -s {0}/pack pack; mkdir -p info; rmdir info; ln -s {0}/info info; ln -s {0} ff
        git init --quiet --bare ../../../b.git; cd ../../../b.git/objects; rmdir pack; ln -s {0}/pack pack",
        other.display()
    );
    let finished = bash_in(fixture, &main, &[], &script);
    finished.success();
    for name in ["pack", "info", "ff"] {
        let link = clone.join(".git/objects").join(name);
        assert!(!link.is_symlink(), "{name} leads to {}: {}", other.display(), finished.stderr);
    }
    assert!(!main.join("b.git/HEAD").exists(), "Git would use the bare repository: {}", finished.stderr);
    assert_eq!(last_subject(fixture, &clone), "first");
}

fn names_that_are_not_text_do_not_prevent_a_launch(fixture: &Fixture) {
    let main = attack::prepare(fixture, "names");
    let script = "git init --quiet --bare $'b\\377.git'; git init --quiet $'c\\377'
        ln -s $'\\377' $'c\\377/.git/hooks/x'; git -C $'c\\377' commit --quiet --allow-empty --message inside";
    bash_in(fixture, &main, &[], script).success();
    for _ in 0..2 {
        let again = bash_in(fixture, &main, &[], "ls -d [bc]* | wc -l");
        assert_eq!(again.success(), "2", "{}", again.stderr);
    }
}
