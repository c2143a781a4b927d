//! What is planted in a repository does not run on the host: attacks 02–05, and what the guard reports.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;

use super::{bash_in, git, repository};
use crate::for_every_engine;
use crate::support::{Pen, Ran, RunToEnd, Running, eventually};

for_every_engine!(
    attack_02_linked_hooks_lead_nowhere,
    attack_03_the_git_directory_cannot_be_swapped,
    attack_04_hooks_cannot_be_planted,
    attack_05_settings_that_run_code_are_set_aside,
    attack_05_what_a_killed_sandbox_left_is_set_aside_later,
    attack_05_is_impossible_under_strict,
    attack_05_other_files_that_redirect_git_are_set_aside,
    repositories_made_inside_are_reviewed,
    a_large_workspace_is_reviewed_without_waiting_for_it,
    what_push_and_remote_add_write_stays,
    a_changed_value_is_put_back,
    an_unreadable_configuration_is_put_back,
    guard_off_does_nothing,
    files_that_tools_run_are_reported,
);

/// What the host would execute leaves a trace there.
fn assert_nothing_runs(pen: &Pen, directory: &Path) {
    let trace = pen.root().join("executed");
    for arguments in
        [&["status"][..], &["commit", "--allow-empty", "--quiet", "--message", "host"], &["st"], &["fetch", "."]]
    {
        git(pen, directory, arguments);
    }
    assert!(!trace.exists(), "executed on the host: {:?}", fs::read_to_string(&trace));
}

/// A command that leaves the trace.
fn evil(pen: &Pen) -> String {
    format!("touch {}/executed #", pen.root().display())
}

fn attack_02_linked_hooks_lead_nowhere(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let outside = pen.outside("hooks");
    fs::write(outside.join("secret"), "hunter2").expect("write");
    fs::remove_dir_all(main.join(".git/hooks")).expect("remove");
    symlink(&outside, main.join(".git/hooks")).expect("link");
    let ran =
        bash_in(pen, &main, &[], &format!("cat .git/hooks/secret {}/secret; touch {0}/planted", outside.display()));
    assert!(!ran.stdout.contains("hunter2"), "{}", ran.stdout);
    assert!(!outside.join("planted").exists());
    // Replacing the link by a directory with a hook does not last.
    let planting = format!(
        "rm .git/hooks; mkdir .git/hooks; printf '#!/bin/sh\\n{}' > .git/hooks/pre-commit; chmod +x .git/hooks/*",
        evil(pen)
    );
    let ran = bash_in(pen, &main, &[], &planting);
    assert!(ran.stderr.contains("sandpen: set aside"), "{}", ran.stderr);
    assert_eq!(fs::read_link(main.join(".git/hooks")).expect("the link is back"), outside);
    assert_nothing_runs(pen, &main);
}

fn attack_03_the_git_directory_cannot_be_swapped(pen: &Pen) {
    let library = repository(pen, &pen.outside("library"));
    let main = repository(pen, &pen.project.join("main"));
    git(pen, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "a/b"]).ok();
    for directory in
        [".git", ".git/hooks", ".git/modules", ".git/modules/a", ".git/modules/a/b", ".git/modules/a/b/hooks"]
    {
        // Not by `mv`, which copies where it may not rename.
        let ran = bash_in(pen, &main, &[], &format!("perl -e 'exit !rename(\"{directory}\", \"{directory}.x\")'"));
        assert_eq!(ran.code, Some(1), "{directory}: {}", ran.stderr);
    }
}

fn attack_04_hooks_cannot_be_planted(pen: &Pen) {
    let library = repository(pen, &pen.outside("library"));
    let main = repository(pen, &pen.project.join("main"));
    git(pen, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "a/b"]).ok();
    let tree = pen.project.join("tree");
    git(pen, &main, &["worktree", "add", "--quiet", tree.to_str().expect("text")]).ok();
    fs::remove_dir_all(main.join(".git/modules/a/b/hooks")).expect("remove");
    git(pen, &main, &["config", "core.hooksPath", "tools/hooks"]).ok();
    for place in [".git/hooks", ".git/modules/a/b/hooks", "tools/hooks", ".git/worktrees/tree/hooks"] {
        let script =
            format!("mkdir -p {place}; echo x > {place}/pre-commit || mv {place} y || rm -r {place} && mkdir {place}");
        let ran = bash_in(pen, &main, &[], &script);
        assert_eq!(ran.code, Some(1), "{place}: {}", ran.stderr);
        assert!(!main.join(place).join("pre-commit").exists(), "{place}");
    }
    // From the linked worktree, the shared hooks.
    let shared = main.join(".git/hooks/pre-commit");
    assert_eq!(bash_in(pen, &tree, &[], &format!("touch {}", shared.display())).code, Some(1));
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
    // Last: with it, Git finds no repository here any more.
    "core.worktree",
];

fn plant(pen: &Pen) -> String {
    SETTINGS.iter().map(|key| format!("git config --file .git/config {key} '!{}' || exit 9\n", evil(pen))).collect()
}

#[track_caller]
fn assert_set_aside(pen: &Pen, main: &Path, before: &str, ran: &Ran) {
    for key in SETTINGS {
        let shown = format!("{} = !touch", key.to_ascii_lowercase());
        assert!(ran.stderr.to_ascii_lowercase().contains(&shown), "{key} is not shown: {}", ran.stderr);
    }
    let config = fs::read_to_string(main.join(".git/config")).expect("config");
    assert!(!config.contains("touch"), "{config}");
    assert_eq!(git(pen, main, &["config", "--local", "--list"]).ok(), before);
    assert_nothing_runs(pen, main);
    // Kept as it was, and accepted by the command that is shown.
    let kept =
        ran.stderr.lines().find_map(|line| line.strip_prefix("hint: the original is kept in ")).expect("kept");
    assert!(fs::read_to_string(kept).expect("the kept file").contains("fsmonitor"));
    let accept = ran.stderr.lines().find_map(|line| line.strip_prefix("hint: to accept it: ")).expect("command");
    pen.host_command("sh").args(["-c", accept]).ran().ok();
    assert!(git(pen, main, &["config", "--local", "core.fsmonitor"]).ok().contains("touch"));
}

fn attack_05_settings_that_run_code_are_set_aside(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let before = git(pen, &main, &["config", "--local", "--list"]).ok().to_owned();
    let ran = bash_in(pen, &main, &["-q"], &plant(pen));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_set_aside(pen, &main, &before, &ran);
}

fn attack_05_what_a_killed_sandbox_left_is_set_aside_later(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let before = git(pen, &main, &["config", "--local", "--list"]).ok().to_owned();
    let mut command = pen.run();
    command.current_dir(&main).args(["--", "bash", "-c", &format!("{}touch planted; sleep 60", plant(pen))]);
    let mut running = Running::start(&mut command);
    eventually("the settings are planted", || main.join("planted").exists());
    running.signal(Signal::KILL);
    running.ran();
    assert!(fs::read_to_string(main.join(".git/config")).expect("config").contains("touch"));
    // The engine's client may outlive its launcher for a moment, and a session is not over before.
    let mut ran = pen.sandpen().current_dir("/").arg("ps").ran();
    eventually("the next command reviews it", || {
        if ran.stderr.is_empty() {
            ran = pen.sandpen().current_dir("/").arg("ps").ran();
        }
        !ran.stderr.is_empty()
    });
    assert_set_aside(pen, &main, &before, &ran);
    assert_eq!(pen.sandpen().arg("ps").ran().stderr, "");
}

fn attack_05_is_impossible_under_strict(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let tree = pen.project.join("tree");
    git(pen, &main, &["worktree", "add", "--quiet", tree.to_str().expect("text")]).ok();
    for script in [
        "git config core.fsmonitor evil",
        "echo '[core]' >> .git/config",
        "rm .git/config",
        "mv .git/config x",
        "ln -sf /etc/passwd .git/config",
        "echo x > .git/worktrees/tree/gitdir",
    ] {
        let ran = bash_in(pen, &main, &["--guard", "strict"], script);
        assert!(ran.code != Some(0), "{script}");
    }
    // Commits work.
    bash_in(pen, &main, &["--guard", "strict"], "git -c user.name=n -c user.email=e commit -q --allow-empty -m x").ok();
    // What cannot be protected is refused.
    fs::remove_dir_all(main.join(".git/hooks")).expect("remove");
    symlink("../elsewhere", main.join(".git/hooks")).expect("link");
    let ran = bash_in(pen, &main, &["--guard", "strict"], "true");
    assert!(ran.code == Some(44) && ran.stderr.contains(".git/hooks"), "{}", ran.stderr);
}

fn attack_05_other_files_that_redirect_git_are_set_aside(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let foreign = repository(pen, &pen.outside("foreign"));
    let script = format!(
        "git config extensions.worktreeConfig true
        printf '[alias]\\n\\tst = !{evil}\\n' > .git/config.worktree
        echo {foreign} > .git/commondir
        mkdir -p .git/modules/new/objects .git/modules/new/refs; echo 'ref: refs/heads/x' > .git/modules/new/HEAD
        printf '[core]\\n\\tfsmonitor = {evil}\\n' > .git/modules/new/config
        mkdir sub; echo 'gitdir: {foreign}' > sub/.git
        mkdir link; ln -s {foreign} link/.git",
        evil = evil(pen).replace('#', ";"),
        foreign = foreign.join(".git").display()
    );
    let ran = bash_in(pen, &main, &[], &script);
    for file in [".git/config.worktree", ".git/commondir", ".git/modules/new/config", "sub/.git", "link/.git"] {
        let line = format!("redirect Git: {}", main.join(file).display());
        assert!(ran.stderr.contains(&line), "{file}: {}", ran.stderr);
    }
    for gone in [".git/commondir", "sub/.git", "link/.git"] {
        assert!(main.join(gone).symlink_metadata().is_err(), "{gone}");
    }
    assert_nothing_runs(pen, &main);
}

fn repositories_made_inside_are_reviewed(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let script = format!(
        "set -e; for kind in '' --bare; do
            git init --quiet $kind deep/er/x$kind; cd deep/er/x$kind; git config core.fsmonitor '{0}'; git config user.name kept
            hooks=$(git rev-parse --git-path hooks); printf '#!/bin/sh\\n{0}\\n' > $hooks/pre-commit; chmod +x $hooks/pre-commit; cd -
        done",
        evil(pen).replace('#', ";")
    );
    let ran = bash_in(pen, &main, &[], &script);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for place in ["deep/er/x/.git", "deep/er/x--bare"] {
        for file in ["config", "hooks/pre-commit"] {
            let line = format!("redirect Git: {}", main.join(place).join(file).display());
            assert!(ran.stderr.contains(&line), "{place}/{file}: {}", ran.stderr);
        }
        assert!(!main.join(place).join("hooks/pre-commit").exists());
        assert_eq!(git(pen, main.join(place), &["config", "--local", "user.name"]).ok(), "kept");
    }
    assert_nothing_runs(pen, &main.join("deep/er/x"));
    // In two halves, of which neither looks like a repository.
    let script =
        "mkdir -p a/objects a/refs b; printf '[alias]\\n\\tx = !evil\\n' > a/config; echo 'ref: refs/heads/x' > b/HEAD
        echo ../a > b/commondir; mkdir c; echo 'gitdir: ../b' > c/.git; git -C c x 2>&1 | head -c 60";
    let ran = bash_in(pen, &main, &[], script);
    assert!(ran.stdout.contains("evil"), "the case itself: {ran:?}");
    assert!(ran.stderr.contains("alias.x = !evil"), "{}", ran.stderr);
    // In a directory that was made writable.
    let other = pen.outside("other");
    let mount = format!("{}:/other:rw", other.display());
    let ran = bash_in(pen, &main, &["--mount", &mount], "git init -q /other/r; git -C /other/r config alias.x '!evil'");
    assert!(ran.stderr.contains("alias.x = !evil"), "{}", ran.stderr);
    // So many that taking each apart would take minutes.
    let script = "git init -q one; git -C one config alias.x '!evil'; mkdir many; for i in $(seq 300); do cp -r one many/$i; done";
    let ran = bash_in(pen, &main, &[], script);
    assert!(ran.stderr.contains("more were set aside") && ran.stderr.lines().count() < 120, "{}", ran.stderr.len());
    let configs = pen.host_command("grep").args(["-rl", "evil", "many", "one"]).current_dir(&main).ran();
    assert_eq!(configs.stdout, "", "{}", configs.stdout.lines().count());
    // Without a repository around, too.
    let plain = pen.outside("plain");
    let ran = bash_in(pen, &plain, &[], "git init -q r; git -C r config alias.x '!evil'");
    assert!(ran.stderr.contains("alias.x = !evil"), "{}", ran.stderr);
}

fn a_large_workspace_is_reviewed_without_waiting_for_it(pen: &Pen) {
    let large = pen.project.join("large");
    for directory in 0..60 {
        fs::create_dir_all(large.join(format!("{directory}/below"))).expect("directory");
        for file in 0..100 {
            fs::write(large.join(format!("{directory}/{file}")), "").expect("file");
        }
    }
    std::os::unix::fs::chown(large.join("0"), Some(pen.uid), Some(pen.gid)).expect("chown");
    let ran = bash_in(pen, &pen.project, &[], "cd large/0; git init -q new; git -C new config alias.x '!evil'");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let config = large.join("0/new/.git/config");
    eventually("it is set aside", || !fs::read_to_string(&config).expect("config").contains("evil"));
    // Told at once, or by whoever comes next; what the user does afterwards stays.
    git(pen, large.join("0/new"), &["config", "alias.y", "!mine"]).ok();
    eventually("the review is over", || {
        let told = ran.stderr.clone() + &pen.sandpen().arg("ps").ran().stderr;
        told.contains("alias.x = !evil") && !told.contains("!mine")
    });
    assert!(fs::read_to_string(&config).expect("config").contains("!mine"));
}

fn what_push_and_remote_add_write_stays(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    pen.write(".gitconfig", "[user]\n\tname = N\n\temail = n@x\n");
    let script = "set -e; git init --quiet --bare remote.git; git remote add origin ./remote.git; git push --quiet -u origin main
        git config user.email own@x; git config pull.rebase true; git branch --quiet topic; git config branch.topic.description d";
    let ran = bash_in(pen, &main, &[], script);
    assert_eq!((ran.ok(), ran.stderr.as_str()), ("", ""));
    assert_eq!(git(pen, &main, &["config", "--local", "branch.main.remote"]).ok(), "origin");
    assert!(!pen.home.join(".local/state/sandpen/set-aside").exists());
}

fn a_changed_value_is_put_back(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    git(pen, &main, &["config", "alias.st", "status"]).ok();
    git(pen, &main, &["config", "--add", "credential.helper", ""]).ok();
    git(pen, &main, &["config", "--add", "credential.helper", "cache"]).ok();
    let before = git(pen, &main, &["config", "--local", "--list"]).ok().to_owned();
    let ran = bash_in(
        pen,
        &main,
        &[],
        "git config alias.st '!evil'; git config --add credential.helper evil; git config remote.x.url y",
    );
    assert!(
        ran.stderr.contains("alias.st = !evil") && ran.stderr.contains("credential.helper = evil"),
        "{}",
        ran.stderr
    );
    let after = git(pen, &main, &["config", "--local", "--list"]).ok().replace("remote.x.url=y", "");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&after), sorted(&before));
}

fn an_unreadable_configuration_is_put_back(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let before = fs::read(main.join(".git/config")).expect("config");
    for planting in [
        "echo '[[[' > .git/config",
        "ln -sf ../../other .git/config",
        "rm .git/config; mkfifo .git/config",
        "head -c 2000000 /dev/zero > .git/config",
    ] {
        let ran = bash_in(pen, &main, &[], planting);
        assert!(ran.stderr.contains("sandpen: set aside"), "{planting}: {}", ran.stderr);
        assert_eq!(fs::read(main.join(".git/config")).expect("config"), before, "{planting}");
    }
}

fn guard_off_does_nothing(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let ran = bash_in(
        pen,
        &main,
        &["--guard", "off"],
        "touch .git/hooks/pre-commit; git config alias.x '!x'; mv .git g; mv g .git",
    );
    assert_eq!((ran.ok(), ran.stderr.as_str()), ("", ""));
    assert_eq!(git(pen, &main, &["config", "alias.x"]).ok(), "!x");
}

fn files_that_tools_run_are_reported(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    pen.write("project/main/.vscode/tasks.json", "{}");
    pen.write("project/main/.husky/pre-commit", "x");
    assert_eq!(bash_in(pen, &main, &[], "cat .vscode/tasks.json > /dev/null").stderr, "");
    let script = "echo x > .envrc; echo x >> .vscode/tasks.json; mkdir -p .github/workflows .claude; touch .github/workflows/ci.yml .claude/settings.json
        git rebase --quiet --exec 'touch x' --root 2>/dev/null; mkdir -p .git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo";
    let ran = bash_in(pen, &main, &[], script);
    for file in [".envrc", ".vscode/tasks.json", ".github/workflows/ci.yml", ".claude/settings.json"] {
        assert!(ran.stderr.contains(&main.join(file).display().to_string()), "{file}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains(".husky"), "{}", ran.stderr);
    assert!(ran.stderr.contains("unfinished rebase"), "{}", ran.stderr);
}
