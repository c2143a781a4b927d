//! A guest cannot plant code in a repository that the host would run: attacks 02–05, and the
//! reports of the guard.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;

use super::{bash_in, git, repository};
use crate::for_every_engine;
use crate::support::{Finished, Fixture, RunToEnd, Running, eventually};

for_every_engine!(
    attack_02_linked_hooks_lead_nowhere,
    attack_03_the_git_directory_cannot_be_swapped,
    attack_04_hooks_cannot_be_planted,
    attack_05_settings_that_run_code_are_set_aside,
    attack_05_what_a_killed_sandbox_left_is_set_aside_later,
    attack_05_the_strict_guard_makes_settings_read_only,
    attack_05_other_files_that_redirect_git_are_set_aside,
    repositories_made_inside_are_reviewed,
    a_large_workspace_is_reviewed_without_waiting_for_it,
    what_push_and_remote_add_write_stays,
    a_changed_value_is_put_back,
    an_unreadable_configuration_is_put_back,
    guard_off_does_nothing,
    files_that_tools_run_are_reported,
);

/// Runs Git on the host; planted code would create the file `executed`.
fn assert_nothing_runs(fixture: &Fixture, directory: &Path) {
    let trace = fixture.root.join("executed");
    for arguments in
        [&["status"][..], &["commit", "--allow-empty", "--quiet", "--message", "host"], &["st"], &["fetch", "."]]
    {
        git(fixture, directory, arguments);
    }
    assert!(!trace.exists(), "executed on the host: {:?}", fs::read_to_string(&trace));
}

/// Returns a shell command that creates the file `executed`.
fn evil(fixture: &Fixture) -> String {
    format!("touch {}/executed #", fixture.root.display())
}

fn attack_02_linked_hooks_lead_nowhere(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let outside = fixture.outside("hooks");
    fs::write(outside.join("secret"), "hunter2").expect("write");
    fs::remove_dir_all(main.join(".git/hooks")).expect("remove");
    symlink(&outside, main.join(".git/hooks")).expect("link");
    let finished =
        bash_in(fixture, &main, &[], &format!("cat .git/hooks/secret {}/secret; touch {0}/planted", outside.display()));
    assert!(!finished.stdout.contains("hunter2"), "{}", finished.stdout);
    assert!(!outside.join("planted").exists());
    // If the guest replaces the link by a directory with a hook, the guard restores the link.
    let planting = format!(
        "rm .git/hooks; mkdir .git/hooks; printf '#!/bin/sh\\n{}' > .git/hooks/pre-commit; chmod +x .git/hooks/*",
        evil(fixture)
    );
    let finished = bash_in(fixture, &main, &[], &planting);
    assert!(finished.stderr.contains("sandpen: set aside"), "{}", finished.stderr);
    assert_eq!(fs::read_link(main.join(".git/hooks")).expect("the guard restores the link"), outside);
    assert_nothing_runs(fixture, &main);
}

fn attack_03_the_git_directory_cannot_be_swapped(fixture: &Fixture) {
    let library = repository(fixture, &fixture.outside("library"));
    let main = repository(fixture, &fixture.project.join("main"));
    git(fixture, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "a/b"]).success();
    for directory in
        [".git", ".git/hooks", ".git/modules", ".git/modules/a", ".git/modules/a/b", ".git/modules/a/b/hooks"]
    {
        // `mv` would copy the directory if it cannot rename it.
        let finished =
            bash_in(fixture, &main, &[], &format!("perl -e 'exit !rename(\"{directory}\", \"{directory}.x\")'"));
        assert_eq!(finished.code, Some(1), "{directory}: {}", finished.stderr);
    }
}

fn attack_04_hooks_cannot_be_planted(fixture: &Fixture) {
    let library = repository(fixture, &fixture.outside("library"));
    let main = repository(fixture, &fixture.project.join("main"));
    git(fixture, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "a/b"]).success();
    let tree = fixture.project.join("tree");
    git(fixture, &main, &["worktree", "add", "--quiet", tree.to_str().expect("text")]).success();
    fs::remove_dir_all(main.join(".git/modules/a/b/hooks")).expect("remove");
    git(fixture, &main, &["config", "core.hooksPath", "tools/hooks"]).success();
    for place in [".git/hooks", ".git/modules/a/b/hooks", "tools/hooks", ".git/worktrees/tree/hooks"] {
        let script =
            format!("mkdir -p {place}; echo x > {place}/pre-commit || mv {place} y || rm -r {place} && mkdir {place}");
        let finished = bash_in(fixture, &main, &[], &script);
        assert_eq!(finished.code, Some(1), "{place}: {}", finished.stderr);
        assert!(!main.join(place).join("pre-commit").exists(), "{place}");
    }
    // The linked worktree cannot write to the shared hooks either.
    let shared = main.join(".git/hooks/pre-commit");
    assert_eq!(bash_in(fixture, &tree, &[], &format!("touch {}", shared.display())).code, Some(1));
}

const SETTINGS: &[&str] = &[
    "core.fsmonitor",
    "core.hooksPath",
    "core.sshCommand",
    "core.pager",
    "core.editor",
    "alias.st",
    "filter.x.clean",
    "diff.x.command",
    "diff.external",
    "merge.x.driver",
    "credential.helper",
    "credential.https://x.helper",
    "include.path",
    "includeIf.gitdir:/.path",
    "url.https://evil/.insteadOf",
    "gpg.program",
    "gpg.ssh.program",
    "remote.origin.uploadpack",
    "protocol.ext.allow",
    "something.unheard",
    // This key comes last: with it, Git no longer finds a repository here.
    "core.worktree",
];

fn plant(fixture: &Fixture) -> String {
    SETTINGS.iter().map(|key| format!("git config --file .git/config {key} '!{}' || exit 9\n", evil(fixture))).collect()
}

#[track_caller]
fn assert_set_aside(fixture: &Fixture, main: &Path, before: &str, finished: &Finished) {
    for key in SETTINGS {
        let shown = format!("{} = !touch", key.to_ascii_lowercase());
        assert!(finished.stderr.to_ascii_lowercase().contains(&shown), "{key} is not shown: {}", finished.stderr);
    }
    let config = fs::read_to_string(main.join(".git/config")).expect("config");
    assert!(!config.contains("touch"), "{config}");
    assert_eq!(git(fixture, main, &["config", "--local", "--list"]).success(), before);
    assert_nothing_runs(fixture, main);
    // The original is kept, and the command in the hint accepts it.
    let kept =
        finished.stderr.lines().find_map(|line| line.strip_prefix("hint: the original is kept in ")).expect("kept");
    assert!(fs::read_to_string(kept).expect("the kept file").contains("fsmonitor"));
    let accept = finished.stderr.lines().find_map(|line| line.strip_prefix("hint: to accept it: ")).expect("command");
    fixture.host_command("sh").args(["-c", accept]).finish().success();
    assert!(git(fixture, main, &["config", "--local", "core.fsmonitor"]).success().contains("touch"));
}

fn attack_05_settings_that_run_code_are_set_aside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = git(fixture, &main, &["config", "--local", "--list"]).success().to_owned();
    let finished = bash_in(fixture, &main, &["-q"], &plant(fixture));
    finished.success();
    assert_set_aside(fixture, &main, &before, &finished);
}

fn attack_05_what_a_killed_sandbox_left_is_set_aside_later(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = git(fixture, &main, &["config", "--local", "--list"]).success().to_owned();
    let mut command = fixture.run();
    command.current_dir(&main).args(["--", "bash", "-c", &format!("{}touch planted; sleep 60", plant(fixture))]);
    let mut running = Running::start(&mut command);
    eventually("the settings are planted", || main.join("planted").exists());
    running.signal(Signal::KILL);
    running.finish();
    assert!(fs::read_to_string(main.join(".git/config")).expect("config").contains("touch"));
    // The engine's client may outlive its launcher for a moment, and the session ends with the
    // client.
    let mut finished = fixture.sandpen(["ps"]).current_dir("/").finish();
    eventually("the next command reviews it", || {
        if finished.stderr.is_empty() {
            finished = fixture.sandpen(["ps"]).current_dir("/").finish();
        }
        !finished.stderr.is_empty()
    });
    assert_set_aside(fixture, &main, &before, &finished);
    assert_eq!(fixture.sandpen(["ps"]).finish().stderr, "");
}

fn attack_05_the_strict_guard_makes_settings_read_only(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let tree = fixture.project.join("tree");
    git(fixture, &main, &["worktree", "add", "--quiet", tree.to_str().expect("text")]).success();
    for script in [
        "git config core.fsmonitor evil",
        "echo '[core]' >> .git/config",
        "rm .git/config",
        "mv .git/config x",
        "ln -sf /etc/passwd .git/config",
        "echo x > .git/worktrees/tree/gitdir",
    ] {
        let finished = bash_in(fixture, &main, &["--guard", "strict"], script);
        assert!(finished.code != Some(0), "{script}");
    }
    // The strict guard does not prevent commits.
    bash_in(fixture, &main, &["--guard", "strict"], "git -c user.name=n -c user.email=e commit -q --allow-empty -m x")
        .success();
    // The strict guard refuses to start if it cannot protect a path.
    fs::remove_dir_all(main.join(".git/hooks")).expect("remove");
    symlink("../elsewhere", main.join(".git/hooks")).expect("link");
    let finished = bash_in(fixture, &main, &["--guard", "strict"], "true");
    assert!(finished.code == Some(44) && finished.stderr.contains(".git/hooks"), "{}", finished.stderr);
}

fn attack_05_other_files_that_redirect_git_are_set_aside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let foreign = repository(fixture, &fixture.outside("foreign"));
    let script = format!(
        "git config extensions.worktreeConfig true
        printf '[alias]\\n\\tst = !{evil}\\n' > .git/config.worktree
        echo {foreign} > .git/commondir
        mkdir -p .git/modules/new/objects .git/modules/new/refs; echo 'ref: refs/heads/x' > .git/modules/new/HEAD
        printf '[core]\\n\\tfsmonitor = {evil}\\n' > .git/modules/new/config
        mkdir sub; echo 'gitdir: {foreign}' > sub/.git
        mkdir link; ln -s {foreign} link/.git",
        evil = evil(fixture).replace('#', ";"),
        foreign = foreign.join(".git").display()
    );
    let finished = bash_in(fixture, &main, &[], &script);
    for file in [".git/config.worktree", ".git/commondir", ".git/modules/new/config", "sub/.git", "link/.git"] {
        let line = format!("redirect Git: {}", main.join(file).display());
        assert!(finished.stderr.contains(&line), "{file}: {}", finished.stderr);
    }
    for gone in [".git/commondir", "sub/.git", "link/.git"] {
        assert!(main.join(gone).symlink_metadata().is_err(), "{gone}");
    }
    assert_nothing_runs(fixture, &main);
}

fn repositories_made_inside_are_reviewed(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let script = format!(
        "set -e; for kind in '' --bare; do
            git init --quiet $kind deep/er/x$kind; cd deep/er/x$kind; git config core.fsmonitor '{0}'; git config user.name kept
            hooks=$(git rev-parse --git-path hooks); printf '#!/bin/sh\\n{0}\\n' > $hooks/pre-commit; chmod +x $hooks/pre-commit; cd -
        done",
        evil(fixture).replace('#', ";")
    );
    let finished = bash_in(fixture, &main, &[], &script);
    finished.success();
    for place in ["deep/er/x/.git", "deep/er/x--bare"] {
        for file in ["config", "hooks/pre-commit"] {
            let line = format!("redirect Git: {}", main.join(place).join(file).display());
            assert!(finished.stderr.contains(&line), "{place}/{file}: {}", finished.stderr);
        }
        assert!(!main.join(place).join("hooks/pre-commit").exists());
        assert_eq!(git(fixture, main.join(place), &["config", "--local", "user.name"]).success(), "kept");
    }
    assert_nothing_runs(fixture, &main.join("deep/er/x"));
    // Neither half of this repository looks like a repository.
    let script =
        "mkdir -p a/objects a/refs b; printf '[alias]\\n\\tx = !evil\\n' > a/config; echo 'ref: refs/heads/x' > b/HEAD
        echo ../a > b/commondir; mkdir c; echo 'gitdir: ../b' > c/.git; git -C c x 2>&1 | head -c 60";
    let finished = bash_in(fixture, &main, &[], script);
    assert!(finished.stdout.contains("evil"), "Git does not run the planted alias: {finished:?}");
    assert!(finished.stderr.contains("alias.x = !evil"), "{}", finished.stderr);
    // Repositories in other writable mounts are reviewed, too.
    let other = fixture.outside("other");
    let mount = format!("{}:/other:rw", other.display());
    let finished =
        bash_in(fixture, &main, &["--mount", &mount], "git init -q /other/r; git -C /other/r config alias.x '!evil'");
    assert!(finished.stderr.contains("alias.x = !evil"), "{}", finished.stderr);
    // The guard shortens its report if there are too many repositories.
    let script = "git init -q one; git -C one config alias.x '!evil'; mkdir many; for i in $(seq 300); do cp -r one many/$i; done";
    let finished = bash_in(fixture, &main, &[], script);
    assert!(
        finished.stderr.contains("more were set aside") && finished.stderr.lines().count() < 120,
        "{}",
        finished.stderr.len()
    );
    let configs = fixture.host_command("grep").args(["-rl", "evil", "many", "one"]).current_dir(&main).finish();
    assert_eq!(configs.stdout, "", "{}", configs.stdout.lines().count());
    // The workspace need not be a repository.
    let plain = fixture.outside("plain");
    let finished = bash_in(fixture, &plain, &[], "git init -q r; git -C r config alias.x '!evil'");
    assert!(finished.stderr.contains("alias.x = !evil"), "{}", finished.stderr);
}

fn a_large_workspace_is_reviewed_without_waiting_for_it(fixture: &Fixture) {
    let large = fixture.project.join("large");
    for directory in 0..60 {
        fs::create_dir_all(large.join(format!("{directory}/below"))).expect("directory");
        for file in 0..100 {
            fs::write(large.join(format!("{directory}/{file}")), "").expect("file");
        }
    }
    std::os::unix::fs::chown(large.join("0"), Some(fixture.uid), Some(fixture.gid)).expect("chown");
    let finished =
        bash_in(fixture, &fixture.project, &[], "cd large/0; git init -q new; git -C new config alias.x '!evil'");
    finished.success();
    let config = large.join("0/new/.git/config");
    eventually("it is set aside", || !fs::read_to_string(&config).expect("config").contains("evil"));
    // The guard reports at once or in the next command; it keeps later changes of the user.
    git(fixture, large.join("0/new"), &["config", "alias.y", "!mine"]).success();
    eventually("the review is over", || {
        let stderr = finished.stderr.clone() + &fixture.sandpen(["ps"]).finish().stderr;
        stderr.contains("alias.x = !evil") && !stderr.contains("!mine")
    });
    assert!(fs::read_to_string(&config).expect("config").contains("!mine"));
}

fn what_push_and_remote_add_write_stays(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    fixture.write(".gitconfig", "[user]\n\tname = N\n\temail = n@x\n");
    let script = "set -e; git init --quiet --bare remote.git; git remote add origin ./remote.git; git push --quiet -u origin main
        git config user.email own@x; git config pull.rebase true; git branch --quiet topic; git config branch.topic.description d";
    let finished = bash_in(fixture, &main, &[], script);
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    assert_eq!(git(fixture, &main, &["config", "--local", "branch.main.remote"]).success(), "origin");
    assert!(!fixture.home.join(".local/state/sandpen/set-aside").exists());
}

fn a_changed_value_is_put_back(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    git(fixture, &main, &["config", "alias.st", "status"]).success();
    git(fixture, &main, &["config", "--add", "credential.helper", ""]).success();
    git(fixture, &main, &["config", "--add", "credential.helper", "cache"]).success();
    let before = git(fixture, &main, &["config", "--local", "--list"]).success().to_owned();
    let finished = bash_in(
        fixture,
        &main,
        &[],
        "git config alias.st '!evil'; git config --add credential.helper evil; git config remote.x.url y",
    );
    assert!(
        finished.stderr.contains("alias.st = !evil") && finished.stderr.contains("credential.helper = evil"),
        "{}",
        finished.stderr
    );
    let after = git(fixture, &main, &["config", "--local", "--list"]).success().replace("remote.x.url=y", "");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&after), sorted(&before));
}

fn an_unreadable_configuration_is_put_back(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = fs::read(main.join(".git/config")).expect("config");
    for planting in [
        "echo '[[[' > .git/config",
        "ln -sf ../../other .git/config",
        "rm .git/config; mkfifo .git/config",
        "head -c 2000000 /dev/zero > .git/config",
    ] {
        let finished = bash_in(fixture, &main, &[], planting);
        assert!(finished.stderr.contains("sandpen: set aside"), "{planting}: {}", finished.stderr);
        assert_eq!(fs::read(main.join(".git/config")).expect("config"), before, "{planting}");
    }
}

fn guard_off_does_nothing(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let finished = bash_in(
        fixture,
        &main,
        &["--guard", "off"],
        "touch .git/hooks/pre-commit; git config alias.x '!x'; mv .git g; mv g .git",
    );
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    assert_eq!(git(fixture, &main, &["config", "alias.x"]).success(), "!x");
}

fn files_that_tools_run_are_reported(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    fixture.write("project/main/.vscode/tasks.json", "{}");
    fixture.write("project/main/.husky/pre-commit", "x");
    assert_eq!(bash_in(fixture, &main, &[], "cat .vscode/tasks.json > /dev/null").stderr, "");
    let script = "echo x > .envrc; echo x >> .vscode/tasks.json; mkdir -p .github/workflows .claude; touch .github/workflows/ci.yml .claude/settings.json
        git rebase --quiet --exec 'touch x' --root 2>/dev/null; mkdir -p .git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo";
    let finished = bash_in(fixture, &main, &[], script);
    for file in [".envrc", ".vscode/tasks.json", ".github/workflows/ci.yml", ".claude/settings.json"] {
        assert!(finished.stderr.contains(&main.join(file).display().to_string()), "{file}: {}", finished.stderr);
    }
    assert!(!finished.stderr.contains(".husky"), "{}", finished.stderr);
    assert!(finished.stderr.contains("unfinished rebase"), "{}", finished.stderr);
}
