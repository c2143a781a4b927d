//! After a sandbox, the host's Git reports what it would have reported without one.

mod twin;

use std::fs;

use super::{bash_in, git, repository};
use crate::for_every_engine;
use crate::support::{Engine, Fixture, RunToEnd};

use twin::Twin;

/// Defines one test on the native engine per function, for behaviour that no engine changes.
macro_rules! on_native {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn native() { crate::support::Fixture::on(crate::support::Engine::Native, super::$name) }
        }
    )+};
}

for_every_engine!(
    commits,
    a_merge_with_a_conflict_that_is_left,
    stashes,
    a_linked_worktree,
    a_submodule,
    an_included_repository,
    names_of_files,
);
on_native!(
    an_amended_commit,
    an_interactive_rebase,
    a_rebase_stopped_by_a_conflict,
    an_aborted_rebase,
    a_cherry_pick_with_a_conflict_that_is_left,
    a_cherry_pick_with_a_conflict_that_is_finished,
    reverts,
    a_revert_with_a_conflict_that_is_left,
    a_merge,
    a_merge_with_a_conflict_that_is_finished,
    a_stash_that_is_popped,
    one_of_two_stashes_is_dropped,
    a_stash_of_the_host_is_popped,
    a_bisection,
    the_message_of_a_squashed_merge,
    tags,
    notes,
    branches,
    a_detached_head,
    a_reset,
    staged_files,
    an_intended_file,
    a_file_removed_from_the_index,
    changed_modes,
    flags_of_index_entries,
    a_sparse_checkout_of_the_host,
    a_sparse_checkout_made_inside,
    a_split_index,
    a_large_index,
    a_shallow_clone,
    garbage_collection,
    a_reftable_repository,
    a_sha_256_repository,
    a_worktree_made_inside,
    a_submodule_initialised_inside,
    a_repository_in_the_working_tree,
    a_repository_made_inside,
    a_repository_made_inside_and_added,
    large_files,
    hooks,
    hooks_in_the_working_tree,
    a_bare_repository,
    a_subdirectory,
    ten_thousand_packed_refs,
    an_empty_repository,
    fetch_and_push,
    a_new_remote,
);

/// Creates `repo`, where merging `side` into `main` conflicts in `a`, and merging `clean` does not.
const REPO: &str = "git init --quiet repo; cd repo; commit a one; commit b one; git branch clean; git branch side
    commit a two; git switch --quiet side; commit a other; git switch --quiet clean; commit c clean; git switch --quiet main\n";

const CONFLICT: &str = "git merge side > /dev/null && exit 9; git status --short;";

fn commits(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .same_after("commit new first; mkdir d; commit d/file second; echo x >> a; git commit -qam third");
}

fn an_amended_commit(fixture: &Fixture) {
    Twin::new(fixture, REPO).same_after("echo more >> a; tick; git commit --quiet --all --amend --message amended");
}

fn an_interactive_rebase(fixture: &Fixture) {
    let script = r#"commit d one; commit e one; commit f one
        GIT_SEQUENCE_EDITOR="sed -i -e '2s/pick/squash/' -e '3s/pick/drop/'" git rebase --quiet --interactive HEAD~3"#;
    Twin::new(fixture, REPO).same_after(script);
}

fn a_rebase_stopped_by_a_conflict(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .then_outside("echo both > a; git add a; git rebase --continue")
        .same_after("git switch --quiet side; commit g one; git rebase --quiet main && exit 9; true");
}

fn an_aborted_rebase(fixture: &Fixture) {
    let script = "git switch --quiet side; git rebase --quiet main && exit 9; git rebase --abort";
    Twin::new(fixture, REPO).same_after(script);
}

fn a_cherry_pick_with_a_conflict_that_is_left(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .then_outside("echo both > a; git add a; git cherry-pick --continue")
        .same_after("git cherry-pick side && exit 9; true");
}

fn a_cherry_pick_with_a_conflict_that_is_finished(fixture: &Fixture) {
    let script = "git cherry-pick side && exit 9; echo both > a; git add a; git cherry-pick --continue";
    Twin::new(fixture, REPO).same_after(script);
}

fn reverts(fixture: &Fixture) {
    Twin::new(fixture, REPO).same_after("git revert --no-edit HEAD; tick; git revert --no-commit HEAD");
}

fn a_revert_with_a_conflict_that_is_left(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .then_outside("git revert --abort")
        .same_after("commit a three; git revert --no-edit HEAD~1 && exit 9; true");
}

fn a_merge(fixture: &Fixture) {
    Twin::new(fixture, REPO).same_after("git merge --quiet clean; tick; git merge --quiet --no-ff -m again main~1");
}

fn a_merge_with_a_conflict_that_is_left(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .then_outside("echo both > a; git add a; git commit --quiet --no-edit")
        .same_after(CONFLICT);
}

fn a_merge_with_a_conflict_that_is_finished(fixture: &Fixture) {
    let script = format!("{CONFLICT} echo both > a; git add a; git commit --quiet --no-edit");
    Twin::new(fixture, REPO).same_after(&script);
}

fn stashes(fixture: &Fixture) {
    let script = "echo x > a; git stash push --quiet; tick; echo y > b; echo z > new
        git stash push --quiet --include-untracked --message second";
    Twin::new(fixture, REPO).then_outside("git stash pop --quiet; git stash drop --quiet").same_after(script);
}

fn a_stash_that_is_popped(fixture: &Fixture) {
    let script = "echo x > a; echo y > b; git add b; git stash push --quiet; git stash pop --quiet --index";
    Twin::new(fixture, REPO).same_after(script);
}

fn one_of_two_stashes_is_dropped(fixture: &Fixture) {
    let script = "for n in 1 2 3; do tick; echo $n > a; git stash push --quiet --message $n; done; git stash drop --quiet stash@{1}";
    Twin::new(fixture, REPO).then_outside("git stash pop --quiet").same_after(script);
}

fn a_stash_of_the_host_is_popped(fixture: &Fixture) {
    let setup = format!("{REPO} for n in 1 2; do tick; echo $n > a; git stash push --quiet --message $n; done");
    Twin::new(fixture, &setup).same_after("git stash list; git stash pop --quiet");
}

fn a_bisection(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .then_outside("git bisect good; git bisect log; git bisect reset")
        .same_after("for n in 1 2 3 4 5; do commit a $n; done; git bisect start HEAD HEAD~4 > /dev/null");
}

fn the_message_of_a_squashed_merge(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .then_outside("tick; git commit --quiet --no-edit; git log -1 --format=%B")
        .same_after("git merge --quiet --squash clean");
}

fn tags(fixture: &Fixture) {
    let setup = format!("{REPO} git tag old; git tag moved");
    Twin::new(fixture, &setup).same_after(
        "git tag light; git tag -m text annotated; git tag -d old; git tag -f moved HEAD~1; git tag blob HEAD:a",
    );
}

fn notes(fixture: &Fixture) {
    let script = "git notes add -m one; git notes append -m two; git notes --ref=review add -m three HEAD~1";
    Twin::new(fixture, REPO).then_outside("git notes show").same_after(script);
}

fn branches(fixture: &Fixture) {
    let script = "git branch made; git branch -D clean; git branch -m side renamed; git branch --track tracking main
        git branch x; git branch -D x; git branch x/y; git switch --quiet -c switched; commit s one";
    Twin::new(fixture, REPO).same_after(script);
}

fn a_detached_head(fixture: &Fixture) {
    Twin::new(fixture, REPO).same_after("git checkout --quiet --detach HEAD~1; commit x one");
    let setup = format!("{REPO} git checkout --quiet --detach side");
    Twin::new(fixture, &setup).same_after("commit x one; git checkout --quiet main");
}

fn a_reset(fixture: &Fixture) {
    Twin::new(fixture, REPO).same_after("git reset --quiet --hard HEAD~1; git reset --quiet --soft HEAD~1");
}

fn staged_files(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .then_outside("git commit --quiet --message outside")
        .same_after("echo new > new; echo staged > a; git add new a; echo unstaged > a; git rm --quiet b");
}

fn an_intended_file(fixture: &Fixture) {
    Twin::new(fixture, REPO).same_after("echo new > new; git add --intent-to-add new");
    let setup = format!("{REPO} echo new > new; git add --intent-to-add new");
    Twin::new(fixture, &setup).same_after("echo x > a; git add a");
}

fn a_file_removed_from_the_index(fixture: &Fixture) {
    Twin::new(fixture, REPO).same_after("git rm --quiet --cached a; git mv b moved");
}

fn changed_modes(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .same_after("chmod +x a b; git add a; ln -s a link; git add link; git update-index --chmod=+x b; chmod -x b");
}

fn flags_of_index_entries(fixture: &Fixture) {
    let setup = format!("{REPO} git update-index --skip-worktree b; rm b");
    Twin::new(fixture, &setup)
        .same_after("commit new one; git update-index --no-skip-worktree b; git checkout --quiet b");
}

const DIRECTORIES: &str =
    "git init --quiet repo; cd repo; mkdir one two; commit one/a x; commit two/a x; commit top x\n";

fn a_sparse_checkout_of_the_host(fixture: &Fixture) {
    let setup = format!("{DIRECTORIES} git sparse-checkout set one");
    Twin::new(fixture, &setup).same_after("commit one/b y; git rm --quiet --sparse --cached two/a");
}

/// The patterns and settings stay inside, and only the long status mentions them; the host's Git still
/// knows which files are left out.
fn a_sparse_checkout_made_inside(fixture: &Fixture) {
    Twin::new(fixture, DIRECTORIES)
        .without(&["status"])
        .with_messages()
        .same_after("git sparse-checkout set one; commit one/b y");
}

/// It does not come out, but what is committed is not staged for removal outside.
fn a_split_index(fixture: &Fixture) {
    Twin::new(fixture, REPO)
        .with_messages()
        .same_after("git update-index --split-index; commit new one; git rm --quiet b; git commit --quiet -m removed");
}

/// The guest gets a large index when it opens it.
fn a_large_index(fixture: &Fixture) {
    let list = r#"id=$(git hash-object -w --stdin < /dev/null); mkdir many
        for number in $(seq 6000); do echo "100644 $id	many/a-file-with-a-long-name-$number-in-a-directory"; done > ../list
        git update-index --index-info < ../list; rm ../list; git checkout-index --all; git commit --quiet -m many"#;
    let setup = format!("{REPO} {list}");
    Twin::new(fixture, &setup).same_after("git ls-files | wc -l; commit x one; git rm -r --quiet many");
}

fn a_shallow_clone(fixture: &Fixture) {
    let setup = format!("({REPO}); mv repo source; git clone --quiet --depth 1 \"file://$PWD/source\" repo");
    Twin::new(fixture, &setup).same_after("commit x one; commit a three");
}

fn garbage_collection(fixture: &Fixture) {
    let script = "commit x one; git branch -D side; git gc --quiet --prune=now; git pack-refs --all; commit y one";
    Twin::new(fixture, REPO).same_after(script);
}

fn a_reftable_repository(fixture: &Fixture) {
    let setup = REPO.replace("git init", "git init --ref-format=reftable");
    let script =
        "commit x one; git branch made; git branch -D clean; git tag -m t t; echo x > a; git stash push --quiet";
    Twin::new(fixture, &setup).same_after(script);
}

fn a_sha_256_repository(fixture: &Fixture) {
    let setup = REPO.replace("git init", "git init --object-format=sha256");
    let script = "commit x one; git merge --quiet clean; git gc --quiet; echo x > a; git add a; git tag -m t t";
    Twin::new(fixture, &setup).same_after(script);
}

fn a_linked_worktree(fixture: &Fixture) {
    let setup = format!("{REPO} git worktree add --quiet ../tree side");
    let script = "commit x one; echo y > a; git add a; git switch --quiet -c other; git log -1 --format=%s main";
    Twin::new(fixture, &setup).at("tree").comparing(&["repo", "tree"]).same_after(script);
    // The working directory is the main working tree, and the linked one is in it.
    let setup = format!("{REPO} git worktree add --quiet linked side");
    let script = "commit x one; cd linked; commit y one; git merge main > /dev/null && exit 9; cd ..";
    Twin::new(fixture, &setup).comparing(&["repo", "repo/linked"]).same_after(script);
}

fn a_worktree_made_inside(fixture: &Fixture) {
    let script = "git worktree add --quiet -b next next; cd next; commit x one; cd ..; git worktree list | wc -l";
    Twin::new(fixture, REPO).comparing(&["repo", "repo/next"]).then_outside("cd next; commit y one").same_after(script);
}

/// Creates `super`, which contains `library` as the submodule `libs/one`.
const SUBMODULE: &str = "git init --quiet library; (cd library; commit lib one); git init --quiet super; cd super
    git submodule --quiet add ../library libs/one; git commit --quiet --message first; cd ..\n";

fn a_submodule(fixture: &Fixture) {
    let script = "cd libs/one; git switch --quiet -c work; commit lib two; echo x > lib; git add lib; cd ../..
        git add libs/one; tick; git commit --quiet --message bump";
    Twin::new(fixture, SUBMODULE).at("super").comparing(&["super", "super/libs/one"]).same_after(script);
    // The working directory is the submodule.
    let script = "commit lib three; git -C ../.. add libs/one; git -C ../.. commit --quiet --message bump";
    Twin::new(fixture, SUBMODULE).at("super/libs/one").comparing(&["super", "super/libs/one"]).same_after(script);
}

/// The settings of the submodule stay inside, so `git submodule status` differs.
fn a_submodule_initialised_inside(fixture: &Fixture) {
    let setup = format!("{SUBMODULE} git clone --quiet super repo");
    let url = "git -C libs/one remote set-url origin https://example.org/x";
    Twin::new(fixture, &setup)
        .options(&["--include-dir", "../library", "--include-dir", "../super"])
        .comparing(&["repo/libs/one"])
        .with_messages()
        .same_after(&format!("git submodule --quiet update --init; {url}; cd libs/one; commit x one"));
}

/// The repository is not a submodule, but a clone of the user's below the working directory.
fn a_repository_in_the_working_tree(fixture: &Fixture) {
    let nested = "git init --quiet nested; (cd nested; commit x one; echo y > x; git stash push --quiet; git update-ref refs/custom/x HEAD)";
    let script = "cd nested; commit x two; git switch --quiet -c other; echo z > x; git add x; cd ..";
    Twin::new(fixture, &format!("{REPO}{nested}")).comparing(&["repo", "repo/nested"]).same_after(script);
    let setup = format!("mkdir repo; cd repo; {nested}");
    Twin::new(fixture, &setup).comparing(&["repo/nested"]).same_after(&format!("{script}; cd nested"));
}

fn a_repository_made_inside(fixture: &Fixture) {
    let script = "git init --quiet made; cd made; commit x one; git branch side; echo y > y; git add y; cd ..
        git clone --quiet . cloned; cd cloned; git remote set-url origin https://example.org/x; commit z one; cd ..";
    Twin::new(fixture, REPO).comparing(&["repo", "repo/made", "repo/cloned"]).same_after(script);
}

fn a_repository_made_inside_and_added(fixture: &Fixture) {
    let script =
        "git init --quiet made; cd made; commit x one; cd ..; git add made 2> /dev/null; git commit --quiet -m gitlink";
    Twin::new(fixture, REPO).comparing(&["repo", "repo/made"]).same_after(script);
}

/// Without git-lfs on the host there is nothing to compare with, and sandpen's filter writes the
/// pointer.
fn large_files(fixture: &Fixture) {
    let lfs = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\t\
        process = git-lfs filter-process\n\trequired = true\n";
    if fixture.host_command("git").args(["lfs", "version"]).finish().code == Some(0) {
        let setup = format!("git lfs install > /dev/null; {REPO} git lfs track '*.big' > /dev/null; commit x.big one");
        return Twin::new(fixture, &setup)
            .then_outside("rm *.big; git checkout --quiet -- .; cat *.big; git lfs fsck")
            .same_after("commit y.big two; cat x.big");
    }
    let main = repository(fixture, &fixture.project.join("main"));
    fixture.write(".gitconfig", &format!("[user]\n\tname = N\n\temail = n@x\n{lfs}"));
    fixture.write("project/main/.gitattributes", "*.big filter=lfs\n");
    bash_in(fixture, &main, &[], "printf hello > b.big && git add . && git commit --quiet -m big").success();
    let oid = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 5");
    assert_eq!(git(fixture, &main, &["show", "HEAD:b.big"]).success(), pointer);
    let object = main.join(".git/lfs/objects/2c/f2").join(oid);
    assert_eq!(fs::read_to_string(object).expect("the object comes out"), "hello");
}

fn hooks(fixture: &Fixture) {
    let setup = format!(
        "{REPO} printf '#!/bin/sh\\necho pre-commit >> log\\n' > .git/hooks/pre-commit
        printf '#!/bin/sh\\necho changed >> \"$1\"\\n' > .git/hooks/commit-msg
        printf '#!/bin/sh\\necho \"$3\" >> log\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/*"
    );
    Twin::new(fixture, &setup).same_after("commit x one; git switch --quiet side; cat log");
}

fn hooks_in_the_working_tree(fixture: &Fixture) {
    let setup = format!(
        "{REPO} mkdir tools; printf '#!/bin/sh\\ntest ! -e forbidden\\n' > tools/pre-commit; chmod +x tools/pre-commit
        git add tools; git commit --quiet -m hooks; git config core.hooksPath tools"
    );
    Twin::new(fixture, &setup).same_after("commit x one; touch forbidden; commit y one && exit 9; true");
}

fn an_included_repository(fixture: &Fixture) {
    let setup = format!("({REPO}); git init --quiet other; cd other; commit x one");
    Twin::new(fixture, &setup)
        .options(&["--include-dir", "../other"])
        .comparing(&["repo", "other"])
        .same_after("commit x one; cd ../other; commit y two; git tag t; echo z > x; git add x");
}

fn a_bare_repository(fixture: &Fixture) {
    let setup = format!("({REPO}); git clone --quiet --bare repo bare.git");
    let script = "git branch new; git tag -m t t; git branch -D side
        git update-ref refs/heads/main $(git commit-tree -p main -m bare 'main^{tree}')";
    Twin::new(fixture, &setup).at("bare.git").comparing(&["bare.git"]).same_after(script);
}

fn a_subdirectory(fixture: &Fixture) {
    let setup = format!("{REPO} mkdir -p sub/deep; commit sub/deep/file one");
    Twin::new(fixture, &setup).at("repo/sub/deep").same_after("commit new one; echo x > ../../a; git add -A");
}

fn ten_thousand_packed_refs(fixture: &Fixture) {
    let setup = format!(
        "{REPO} head=$(git rev-parse HEAD); seq 10000 | sed \"s|.*|create refs/heads/many/& $head|\" | git update-ref --stdin
        git pack-refs --all"
    );
    let script = "git branch -D many/5000 > /dev/null; git branch -f many/1 side; git branch many/10001; commit x one";
    Twin::new(fixture, &setup).same_after(script);
}

fn an_empty_repository(fixture: &Fixture) {
    Twin::new(fixture, "git init --quiet repo").same_after("git add -A; commit x one; git branch other");
    Twin::new(fixture, "git init --quiet repo").same_after("echo x > staged; git add staged; git log --all");
}

fn names_of_files(fixture: &Fixture) {
    let script = r#"for name in $'new\nline' '"quoted"' "it's" 'grün' '-dash' ' blank ' $'tab\t' '*' 'back\slash' $'\xff\xfe'; do
            printf x > "./$name"; done
        git add -A; git commit --quiet -m names; printf y > ./-dash; git add ./-dash; printf y > ./grün; git rm --quiet --cached '"quoted"'"#;
    Twin::new(fixture, REPO).same_after(script);
}

fn fetch_and_push(fixture: &Fixture) {
    let setup = format!(
        "({REPO}); git clone --quiet --bare repo remote.git; mv repo source; git clone --quiet remote.git repo
        cd source; commit news one; git push --quiet ../remote.git main"
    );
    Twin::new(fixture, &setup)
        .options(&["--include-dir", "../remote.git"])
        .comparing(&["repo", "remote.git"])
        .same_after("git fetch --quiet; git merge --quiet --ff-only; git switch --quiet -c topic; commit x one; git push --quiet -u origin topic");
}

fn a_new_remote(fixture: &Fixture) {
    let script = "git remote add upstream https://example.org/x.git; git config branch.main.remote upstream
        git config branch.main.merge refs/heads/main";
    Twin::new(fixture, REPO).same_after(script);
}

/// The comparison finds any difference, and only differences.
#[test]
fn a_difference_is_found() {
    Fixture::on(Engine::Native, |fixture| {
        let compare = |difference: &str| {
            let script = format!("touch x; echo y >> b; if [ -n \"$SANDBOX\" ]; then {difference}; fi > /dev/null");
            let twin = std::panic::AssertUnwindSafe(Twin::new(fixture, REPO));
            std::panic::catch_unwind(|| twin.same_after(&script))
        };
        compare("true").expect("the halves are the same");
        for difference in ["git branch x", "echo x > a", "git add -N x", "git stash", "git tag x", "chmod +x a"] {
            let panic = compare(difference).expect_err(difference);
            let message = panic.downcast_ref::<String>().expect("a message");
            assert!(message.starts_with("without (-) and with (+) a sandbox"), "{difference}: {message}");
        }
    });
}
