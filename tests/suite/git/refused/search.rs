//! Repositories that a guest made are found wherever they are: in directories with the names of
//! Git's own, in directories that an earlier search has seen, and where a submodule belongs.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use super::attack;
use super::nested::{EVIL_REPOSITORY, evil};
use crate::for_docker_and_native;
use crate::git::exchange::{allow_step, await_step, messages, prepare, start};
use crate::git::{bash_in, git, last_subject, repository};
use crate::support::{Fixture, eventually};

for_docker_and_native!(
    names_of_gits_own_directories_hide_no_repository,
    directories_that_were_searched_before_hide_no_repository,
    a_repository_of_a_killed_sandbox_is_found_by_the_next_one,
    repositories_of_another_sandbox_are_not_taken_for_the_users,
    the_list_of_searched_directories_is_out_of_reach,
    a_repository_in_the_place_of_a_submodule_runs_nothing,
);

/// Uses Git in a directory as a user does; planted code would run now.
#[track_caller]
fn use_git(fixture: &Fixture, directory: &Path) {
    if directory.exists() {
        for arguments in [&["status"][..], &["checkout", "--quiet", "-B", "used"]] {
            git(fixture, directory, arguments);
        }
        attack::assert_nothing_ran(fixture, &directory.display().to_string());
    }
}

fn names_of_gits_own_directories_hide_no_repository(fixture: &Fixture) {
    let main = attack::prepare(fixture, "names");
    git(fixture, &main, &["init", "--quiet", "--bare", "bare"]).success();
    let above = ["", "a/", "node_modules/", "bare/", "new/", "new/objects/"];
    let names = ["objects", "objects/aa", "refs", "hooks", "logs", "info", "modules", "worktrees", "lfs"];
    let places: Vec<String> =
        above.iter().flat_map(|above| names.iter().map(move |name| format!("{above}{name}/x"))).collect();
    let script = format!(
        "{}{EVIL_REPOSITORY}set -e; git init --quiet --bare new; for place in {}; do mkdir -p $place; evil $place; done",
        evil(fixture),
        places.join(" ")
    );
    bash_in(fixture, &main, &[], &script).success();
    for place in places {
        assert!(main.join(&place).exists(), "{place}");
        use_git(fixture, &main.join(place));
    }
}

/// Creates directories that a search has seen, and returns the repository that contains them.
fn with_searched_directories(fixture: &Fixture) -> std::path::PathBuf {
    let main = prepare(fixture);
    for name in ["seen/one", "seen/two", "seen/three", "seen/four"] {
        fixture.write(main.join(name).join("file"), "");
    }
    // A directory is on the list only if it changed some seconds before the search.
    eventually("the directories are on the list", || {
        bash_in(fixture, &main, &[], "true").success();
        let lists = lists(fixture);
        ["one", "two", "three", "four"].iter().all(|name| is_listed(&lists, name))
    });
    main
}

/// Tells whether a list has a record of this name (its length, the name, a device, an inode) whose
/// inode is not zero, so that the directory is not searched again.
fn is_listed(lists: &[u8], name: &str) -> bool {
    let start = [&u32::try_from(name.len()).expect("short").to_le_bytes()[..], name.as_bytes()].concat();
    let records = lists.windows(start.len() + 16).filter(|record| record.starts_with(&start));
    records.into_iter().any(|record| record.iter().skip(start.len() + 8).any(|byte| *byte != 0))
}

/// Returns the lists of searched directories.
fn lists(fixture: &Fixture) -> Vec<u8> {
    let lists = fs::read_dir(fixture.home.join(".local/state/sandpen/searched")).into_iter().flatten();
    lists.flat_map(|list| fs::read(list.expect("entry").path()).expect("list")).collect()
}

fn directories_that_were_searched_before_hide_no_repository(fixture: &Fixture) {
    let main = with_searched_directories(fixture);
    let evil = evil(fixture);
    let script = format!(
        "{evil}{EVIL_REPOSITORY}set -e; cp -a seen times; mkdir seen/three/below
        evil seen/one; evil seen/three/below/deep; evil new; mv seen/two old; mv new seen/two; mv seen/four/file .
        mkdir seen/four/.git; cp -a seen/one/.git/. seen/four/.git
        for name in one two three four; do touch -r times/$name seen/$name; done; touch -r times seen"
    );
    bash_in(fixture, &main, &[], &script).success();
    let places = ["one", "two", "three/below/deep", "four"].map(|place| main.join("seen").join(place));
    for place in &places {
        assert_eq!(last_subject(fixture, place), "evil");
        use_git(fixture, place);
    }
    // They are the user's by now, and searched before.
    let script = format!(
        "{evil}set -e; for place in one two three/below/deep four; do touch -r seen/$place time
        git -C seen/$place config core.fsmonitor \"$EVIL\"; touch -r time seen/$place seen/$place/.git; done"
    );
    bash_in(fixture, &main, &[], &script).success();
    for place in &places {
        use_git(fixture, place);
    }
}

fn a_repository_of_a_killed_sandbox_is_found_by_the_next_one(fixture: &Fixture) {
    let main = with_searched_directories(fixture);
    let script = format!(
        "{}{EVIL_REPOSITORY}cp -a seen times; evil seen/one; touch -r times/one seen/one; reach made; sleep 60",
        evil(fixture)
    );
    let mut running = start(fixture, &main, "killed", &script);
    await_step(&main, "made");
    running.signal(Signal::KILL);
    running.finish();
    // The engine's client may outlive its launcher for a moment.
    let config = main.join("seen/one/.git/config");
    eventually("the next sandbox finds it", || {
        bash_in(fixture, &main, &[], "true").success();
        fs::read_to_string(&config).is_ok_and(|text| !text.contains("fsmonitor"))
    });
    use_git(fixture, &main.join("seen/one"));
}

/// The second sandbox finds the first one's repositories when it starts, and ends after it.
fn repositories_of_another_sandbox_are_not_taken_for_the_users(fixture: &Fixture) {
    let main = prepare(fixture);
    repository(fixture, &main.join("clone"));
    let script = format!(
        "{}{EVIL_REPOSITORY}evil made; echo \"gitdir: $PWD/made/.git\" > x; mkdir pointer; mv x pointer/.git
        git -C clone config core.fsmonitor \"$EVIL\"; reach made; await first-end",
        evil(fixture)
    );
    let mut first = start(fixture, &main, "first", &script);
    await_step(&main, "made");
    let mut second = start(fixture, &main, "second", "reach second; await second-end");
    await_step(&main, "second");
    for (sandbox, id) in [(&mut first, "first"), (&mut second, "second")] {
        allow_step(fixture, &main, &format!("{id}-end"));
        messages(sandbox);
        for place in ["made", "clone", "pointer"] {
            use_git(fixture, &main.join(place));
        }
    }
}

/// A guest that writes the list could declare a directory as searched.
fn the_list_of_searched_directories_is_out_of_reach(fixture: &Fixture) {
    let main = with_searched_directories(fixture);
    let state = fixture.home.join(".local/state");
    let mount = format!("{}:{0}:rw", state.display());
    let include = state.join("sandpen/searched").display().to_string();
    let script = format!(
        "for list in {0}/sandpen/searched/* ~/.local/state/sandpen/searched/*; do [ ! -e $list ] || echo $list; done",
        state.display()
    );
    for (directory, options) in [
        (&main, &[][..]),
        (&main, &["--mount", &mount]),
        (&main, &["--include-dir", &include]),
        (&state, &[]),
        (&fixture.home, &[]),
    ] {
        let what = format!("{options:?} in {}", directory.display());
        let finished = bash_in(fixture, directory, options, &script);
        assert_eq!(finished.stdout, "", "{what}: the list is inside");
        let is_refused = finished.code == Some(2) && finished.stderr.contains("sandpen: error: ");
        assert!(finished.code == Some(0) || is_refused, "{what}: {finished:?}");
    }
}

/// `git status` and `git submodule update` enter a repository at the path of a gitlink, also while
/// the sandbox runs.
fn a_repository_in_the_place_of_a_submodule_runs_nothing(fixture: &Fixture) {
    let library = repository(fixture, &fixture.outside("library"));
    let main = prepare(fixture);
    git(fixture, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "sub"]).success();
    git(fixture, &main, &["commit", "--quiet", "--message", "submodule"]).success();
    for (id, plant) in [
        ("directory", "evil sub"),
        ("file", "evil x; echo \"gitdir: $PWD/x/.git\" > sub/.git"),
        ("link", "evil x; ln -s ../x/.git sub/.git"),
        ("renamed", "evil x; ! rmdir sub; ! mv sub y; ! mv -T x sub; evil sub"),
        ("initialised", "evil sub; echo x > sub/file"),
    ] {
        git(fixture, &main, &["submodule", "--quiet", "deinit", "--force", "sub"]).success();
        for rest in [".git/modules", "x"] {
            let _ = fs::remove_dir_all(main.join(rest));
        }
        let script =
            format!("{}{EVIL_REPOSITORY}{{ {plant}; }} 2> /dev/null; reach {id}; await {id}-end", evil(fixture));
        let mut running = start(fixture, &main, id, &script);
        await_step(&main, id);
        let git_in_main = |is_with_update: bool| {
            let update = &["submodule", "--quiet", "update", "--init"][..];
            let commands = [&["status"][..], &["diff"], &["submodule", "status"], &["add", "--update"]];
            for arguments in commands.into_iter().chain(is_with_update.then_some(update)) {
                git(fixture, &main, arguments);
                attack::assert_nothing_ran(fixture, &format!("{id}: git {arguments:?}"));
            }
        };
        git_in_main(id == "initialised");
        allow_step(fixture, &main, &format!("{id}-end"));
        let stderr = messages(&mut running);
        if id == "initialised" {
            assert!(stderr.contains("is no longer empty"), "{stderr}");
            assert_eq!(last_subject(fixture, &main.join("sub")), "first");
            assert_eq!(git(fixture, main.join("sub"), &["status", "--porcelain"]).success(), "");
        }
        git_in_main(true);
        use_git(fixture, &main.join("sub"));
        use_git(fixture, &main.join("x"));
        let _ = fs::remove_dir_all(main.join("sub"));
        git(fixture, &main, &["checkout", "--quiet", "--force", "main"]).success();
        git(fixture, &main, &["reset", "--quiet", "--hard"]).success();
    }
}
