//! A guest cannot plant code in the host's Git directory: attacks 02–05 and 26, the reports of what
//! stays inside, and the read-only files of `--git shared`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use super::{DANGEROUS_SETTINGS, bash_in, git, last_subject, repository};
use crate::for_every_engine;
use crate::support::{Engine, Finished, Fixture, RunToEnd, Running, eventually};

for_every_engine!(
    attack_02_linked_hooks_lead_nowhere,
    attack_03_the_git_directory_cannot_be_swapped,
    attack_04_hooks_cannot_be_planted,
    attack_04_hooks_that_the_settings_name_are_read_only,
    attack_05_settings_that_run_code_stay_inside,
    attack_05_what_a_killed_sandbox_left_stays_inside,
    attack_05_shared_settings_are_read_only,
    attack_05_other_files_that_redirect_git_stay_inside,
    attack_26_what_is_written_below_git_stays_inside,
    attack_26_the_git_directory_is_whole_after_its_removal,
    attack_26_nothing_is_planted_while_the_sandbox_runs,
    tracking_settings_and_new_remotes_come_out,
    a_changed_value_stays_inside,
    an_unreadable_configuration_stays_inside,
    what_stays_inside_is_reported_after_a_long_session,
    hooks_that_stay_inside_are_kept_apart,
    attack_26_emptied_refs_delete_no_branches,
    files_that_tools_run_are_reported,
);

const IDENTITY: &str = "-c user.name=n -c user.email=e@example.org";

/// What Git on the host obeys: the mode and the content of each file below a Git directory. Left
/// out are the files in which Git keeps commits, refs and the index; they must be ordinary files.
#[derive(Debug, PartialEq, Eq)]
struct GitFiles(BTreeMap<PathBuf, (u32, Vec<u8>)>);

impl GitFiles {
    fn of(git_dir: &Path) -> Self {
        let mut files = GitFiles(BTreeMap::new());
        files.add(git_dir, git_dir);
        files
    }

    fn add(&mut self, git_dir: &Path, directory: &Path) {
        for entry in fs::read_dir(directory).expect("directory").map(|entry| entry.expect("entry")) {
            let (path, meta) = (entry.path(), entry.metadata().expect("metadata"));
            let below = path.strip_prefix(git_dir).expect("below").to_owned();
            let is_data = is_data(&below);
            assert!(!is_data || meta.is_file() || meta.is_dir(), "{below:?} is neither a file nor a directory");
            let content = if meta.is_symlink() {
                fs::read_link(&path).expect("link").into_os_string().into_encoded_bytes()
            } else if meta.is_file() {
                fs::read(&path).expect("file")
            } else {
                Vec::new()
            };
            if !is_data {
                self.0.insert(below, (meta.mode(), content));
            }
            if meta.is_dir() {
                self.add(git_dir, &path);
            }
        }
    }

    /// Compares with the files of now, and names those that differ.
    #[track_caller]
    fn assert_unchanged(&self, git_dir: &Path) {
        let now = GitFiles::of(git_dir);
        let names = self.0.keys().chain(now.0.keys());
        let changed: Vec<&PathBuf> = names.filter(|name| self.0.get(*name) != now.0.get(*name)).collect();
        assert!(changed.is_empty(), "changed in the host's Git directory: {changed:?}");
    }
}

/// Whether Git keeps commits, refs, reflogs or the index at this path, for the repository, a
/// worktree or a submodule.
fn is_data(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().expect("text")).collect();
    let parts = match parts.as_slice() {
        ["worktrees", _, rest @ ..] => rest,
        ["modules", "a", "b", rest @ ..] => rest,
        parts => parts,
    };
    match parts {
        ["HEAD" | "ORIG_HEAD" | "FETCH_HEAD" | "COMMIT_EDITMSG" | "index" | "packed-refs"] => true,
        ["objects", "info", ..] => false,
        ["objects" | "refs" | "logs", ..] => true,
        _ => false,
    }
}

/// Runs Git on the host; planted code would create the file `executed`.
#[track_caller]
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
    format!("touch {}/executed", fixture.root.display())
}

/// Returns a script that installs a hook.
fn plant_hook(fixture: &Fixture, directory: &str) -> String {
    format!(
        "mkdir -p {directory} && printf '#!/bin/sh\\n{}\\n' > {directory}/pre-commit && chmod +x {directory}/pre-commit",
        evil(fixture)
    )
}

#[track_caller]
fn assert_printed(finished: &Finished, line: &str) {
    let line = format!("sandpen: {line}");
    assert!(finished.stderr.lines().any(|printed| printed == line), "no `{line}` in: {}", finished.stderr);
}

#[track_caller]
fn assert_hook_stays(finished: &Finished) {
    assert_printed(finished, "the hook `pre-commit` stays inside");
}

/// The first eight settings are named.
#[track_caller]
fn assert_settings_stay(finished: &Finished, keys: &[&str]) {
    let mut names: Vec<String> = keys.iter().map(|key| format!("`{}`", key.to_ascii_lowercase())).collect();
    names.sort();
    let more = names.len().saturating_sub(8);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let verb = if names.len() == 1 { "the setting stays" } else { "settings stay" };
    names.truncate(8);
    assert_printed(finished, &format!("{verb} inside: {}{more}", names.join(", ")));
}

/// Creates a repository with the submodule `a/b` and the linked worktree `tree` beside it.
fn with_submodule_and_worktree(fixture: &Fixture) -> (PathBuf, PathBuf) {
    let library = repository(fixture, &fixture.outside("library"));
    let main = repository(fixture, &fixture.project.join("main"));
    git(fixture, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "a/b"]).success();
    git(fixture, &main, &["commit", "--quiet", "--message", "module"]).success();
    let tree = fixture.project.join("tree");
    git(fixture, &main, &["worktree", "add", "--quiet", tree.to_str().expect("text")]).success();
    (main, tree)
}

fn attack_02_linked_hooks_lead_nowhere(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let outside = fixture.outside("hooks");
    fs::write(outside.join("secret"), "hunter2").expect("write");
    fs::remove_dir_all(main.join(".git/hooks")).expect("remove");
    symlink(&outside, main.join(".git/hooks")).expect("link");
    let before = GitFiles::of(&main.join(".git"));
    for options in [&[][..], &["--git", "shared"]] {
        let script =
            format!("cat .git/hooks/secret {0}/secret; touch {0}/planted .git/hooks/planted", outside.display());
        let finished = bash_in(fixture, &main, options, &script);
        assert!(!finished.stdout.contains("hunter2"), "{}", finished.stdout);
        assert!(!outside.join("planted").exists());
        before.assert_unchanged(&main.join(".git"));
    }
    // The guest replaces the link by a directory with a hook.
    let finished = bash_in(fixture, &main, &[], &format!("rm -f .git/hooks; {}", plant_hook(fixture, ".git/hooks")));
    finished.success();
    assert_hook_stays(&finished);
    before.assert_unchanged(&main.join(".git"));
    assert_nothing_runs(fixture, &main);
}

/// `mv` would copy a directory that it cannot rename.
fn rename(directory: &str) -> String {
    format!("perl -e 'exit !rename(\"{directory}\", \"{directory}.x\")'")
}

fn attack_03_the_git_directory_cannot_be_swapped(fixture: &Fixture) {
    let (main, _) = with_submodule_and_worktree(fixture);
    let before = GitFiles::of(&main.join(".git"));
    let finished = bash_in(fixture, &main, &[], &rename(".git"));
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    // The private directory may be changed in any way.
    let swap = format!("{}; cp -r .git/modules.x .git/modules; rm .git/config", rename(".git/modules"));
    bash_in(fixture, &main, &[], &swap).success();
    before.assert_unchanged(&main.join(".git"));
    // The submodule's `.git` file names its Git directory.
    let finished = bash_in(fixture, &main, &[], &format!("rm -f a/b/.git || {}", rename("a/b/.git")));
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    let shared = [".git", ".git/hooks", ".git/modules", ".git/modules/a", ".git/modules/a/b", ".git/modules/a/b/hooks"];
    for directory in shared {
        let finished = bash_in(fixture, &main, &["--git", "shared"], &rename(directory));
        assert_eq!(finished.code, Some(1), "{directory}: {}", finished.stderr);
    }
    git(fixture, &main, &["fsck", "--strict"]).success();
}

fn attack_04_hooks_cannot_be_planted(fixture: &Fixture) {
    let (main, tree) = with_submodule_and_worktree(fixture);
    let hooks = [".git/hooks", ".git/modules/a/b/hooks", ".git/worktrees/tree/hooks"];
    let before = GitFiles::of(&main.join(".git"));
    for directory in hooks {
        let finished = bash_in(fixture, &main, &[], &plant_hook(fixture, directory));
        finished.success();
        before.assert_unchanged(&main.join(".git"));
        // Git does not use hooks of a worktree.
        if !directory.contains("worktrees") {
            assert_hook_stays(&finished);
        }
    }
    // The hook runs inside, also from a linked worktree.
    let shared = main.join(".git/hooks");
    let script = format!(
        "mkdir -p {0}; printf '#!/bin/sh\\necho the hook ran\\n' > {0}/pre-commit; chmod +x {0}/pre-commit
        git {IDENTITY} commit --quiet --allow-empty --message inside 2>&1",
        shared.display()
    );
    let finished = bash_in(fixture, &tree, &[], &script);
    assert_eq!(finished.success(), "the hook ran");
    assert_hook_stays(&finished);
    // The command in the hint installs the copy that was kept.
    let hint = finished.stderr.lines().find_map(|line| line.strip_prefix("hint: ")).expect("hint");
    before.assert_unchanged(&main.join(".git"));
    assert_nothing_runs(fixture, &main);
    assert_nothing_runs(fixture, &main.join("a/b"));
    assert_nothing_runs(fixture, &tree);
    fixture.host_command("sh").args(["-c", hint]).finish().success();
    assert!(fs::read_to_string(shared.join("pre-commit")).expect("the hook").contains("the hook ran"));
    // A hook that existed is copied: it runs inside, and its replacement stays there.
    let finished = bash_in(
        fixture,
        &main,
        &[],
        &format!("git {IDENTITY} commit --allow-empty -q -m x 2>&1; rm .git/hooks/pre-commit"),
    );
    assert_eq!((finished.success(), finished.stderr.as_str()), ("the hook ran", ""));
    let finished =
        bash_in(fixture, &main, &[], &format!("rm .git/hooks/pre-commit; {}", plant_hook(fixture, ".git/hooks")));
    assert_hook_stays(&finished);
    assert!(fs::read_to_string(shared.join("pre-commit")).expect("the hook").contains("the hook ran"));
    assert_nothing_runs(fixture, &main);
    // The host's own directories are read-only.
    fs::remove_dir_all(main.join(".git/modules/a/b/hooks")).expect("remove");
    for directory in hooks {
        let script = format!(
            "mkdir -p {directory}; echo x > {directory}/planted || mv {directory} y || rm -r {directory} && mkdir {directory}"
        );
        let finished = bash_in(fixture, &main, &["--git", "shared"], &script);
        assert_eq!(finished.code, Some(1), "{directory}: {}", finished.stderr);
        assert!(!main.join(directory).join("planted").exists(), "{directory}");
    }
    let script = format!("touch {}/planted", shared.display());
    assert_eq!(bash_in(fixture, &tree, &["--git", "shared"], &script).code, Some(1));
}

fn attack_04_hooks_that_the_settings_name_are_read_only(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    git(fixture, &main, &["config", "core.hooksPath", "tools/hooks"]).success();
    // With a private Git directory, hooks that Git does not track are a private copy.
    for (options, code) in [(&[][..], 0), (&["--git", "shared"], 1)] {
        let script = "mkdir -p tools/hooks; echo x > tools/hooks/pre-commit || mv tools/hooks y || mv tools y";
        let finished = bash_in(fixture, &main, options, script);
        assert_eq!(finished.code, Some(code), "{options:?}: {}", finished.stderr);
        assert!(!main.join("tools/hooks/pre-commit").exists(), "{options:?}");
    }
    // A hook may be a link to a file of the project.
    git(fixture, &main, &["config", "--unset", "core.hooksPath"]).success();
    fixture.write_script("project/main/scripts/check", "#!/bin/sh\nexit 0\n");
    fs::create_dir_all(main.join(".git/hooks")).expect("directory");
    symlink("../../scripts/check", main.join(".git/hooks/pre-commit")).expect("link");
    for options in [&[][..], &["--git", "shared"]] {
        let script = format!("echo {} >> scripts/check || mv scripts/check y || mv scripts y", evil(fixture));
        let finished = bash_in(fixture, &main, options, &script);
        assert_eq!(finished.code, Some(1), "{options:?}: {}", finished.stderr);
    }
    assert_nothing_runs(fixture, &main);
}

fn plant(fixture: &Fixture) -> String {
    DANGEROUS_SETTINGS
        .iter()
        .map(|key| format!("git config --file .git/config '{key}' '!{}' || exit 9\n", evil(fixture)))
        .collect()
}

#[track_caller]
fn assert_planted_settings_stay(fixture: &Fixture, main: &Path, finished: &Finished) {
    assert_settings_stay(finished, DANGEROUS_SETTINGS);
    assert_nothing_runs(fixture, main);
    // The command in the hint accepts the setting.
    let accept =
        finished.stderr.lines().find_map(|line| line.strip_prefix("hint: ").filter(|hint| hint.contains("alias.st")));
    fixture.host_command("sh").args(["-c", accept.expect("hint")]).current_dir(main).finish().success();
    assert_eq!(git(fixture, main, &["config", "--local", "alias.st"]).success(), format!("!{}", evil(fixture)));
}

fn attack_05_settings_that_run_code_stay_inside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = GitFiles::of(&main.join(".git"));
    let finished = bash_in(fixture, &main, &["-q"], &plant(fixture));
    finished.success();
    before.assert_unchanged(&main.join(".git"));
    assert_planted_settings_stay(fixture, &main, &finished);
}

fn attack_05_what_a_killed_sandbox_left_stays_inside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = GitFiles::of(&main.join(".git"));
    let mut command = fixture.run();
    command.current_dir(&main).args(["--", "bash", "-c", &format!("{}touch planted; sleep 60", plant(fixture))]);
    let mut running = Running::start(&mut command);
    eventually("the settings are planted", || main.join("planted").exists());
    running.signal(Signal::KILL);
    running.finish();
    before.assert_unchanged(&main.join(".git"));
    // The engine's client may outlive its launcher for a moment, and the session ends with the
    // client.
    let mut finished = fixture.sandpen(["ps"]).current_dir("/").finish();
    eventually("the next command reports it", || {
        if finished.stderr.is_empty() {
            finished = fixture.sandpen(["ps"]).current_dir("/").finish();
        }
        !finished.stderr.is_empty()
    });
    before.assert_unchanged(&main.join(".git"));
    assert_planted_settings_stay(fixture, &main, &finished);
    assert_eq!(fixture.sandpen(["ps"]).finish().stderr, "");
}

fn attack_05_shared_settings_are_read_only(fixture: &Fixture) {
    let (main, _) = with_submodule_and_worktree(fixture);
    let before = GitFiles::of(&main.join(".git"));
    for script in [
        "git config core.fsmonitor evil",
        "echo '[core]' >> .git/config",
        "rm .git/config",
        "mv .git/config x",
        "ln -sf /etc/passwd .git/config",
        "echo x > .git/worktrees/tree/gitdir",
        "echo x >> .git/modules/a/b/config",
    ] {
        let finished = bash_in(fixture, &main, &["--git", "shared"], script);
        assert!(finished.code != Some(0), "{script}");
        before.assert_unchanged(&main.join(".git"));
    }
    let commit = format!("git {IDENTITY} commit --quiet --allow-empty --message shared");
    assert_eq!(bash_in(fixture, &main, &["--git", "shared"], &commit).stderr, "");
    assert_eq!(last_subject(fixture, &main), "shared");
}

fn attack_05_other_files_that_redirect_git_stay_inside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let foreign = repository(fixture, &fixture.outside("foreign"));
    let before = GitFiles::of(&main.join(".git"));
    let script = format!(
        "git config extensions.worktreeConfig true
        printf '[alias]\\n\\tst = !{evil}\\n' > .git/config.worktree
        echo '* filter=x' > .git/info/attributes
        echo {foreign}/objects >> .git/objects/info/alternates
        mkdir -p .git/modules/new/objects .git/modules/new/refs; echo 'ref: refs/heads/x' > .git/modules/new/HEAD
        printf '[core]\\n\\tfsmonitor = {evil}\\n' > .git/modules/new/config
        echo {foreign} > .git/commondir",
        evil = evil(fixture),
        foreign = foreign.join(".git").display()
    );
    let finished = bash_in(fixture, &main, &[], &script);
    finished.success();
    assert_settings_stay(&finished, &["extensions.worktreeconfig"]);
    before.assert_unchanged(&main.join(".git"));
    assert_nothing_runs(fixture, &main);
}

/// Puts links, pipes and other files into every place below `.git`.
fn litter(fixture: &Fixture) -> String {
    format!(
        "cd .git; for directory in . objects objects/info objects/pack objects/aa refs refs/heads refs/tags info logs hooks worktrees/x modules/x; do
            mkdir -p $directory
            ln -s {home} $directory/link; mkfifo $directory/pipe; echo x > $directory/file.lock; mkdir $directory/new; echo x > $directory/new/y
        done
        for name in config.worktree commondir gitdir FETCH_HEAD MERGE_MSG description shallow gc.log; do echo evil > $name.evil; done
        ln -sf {home}/.bashrc logs/HEAD; ln -sf {home}/.bashrc refs/heads/linked; ln -sf {home} refs/heads/directory
        echo '{home}/elsewhere' > info/attributes; printf '#!/bin/sh\\n{evil}\\n' > hooks/post-index-change; chmod +x hooks/*
        echo 'ref: refs/heads/main' > refs/heads/symbolic; echo xyz > refs/heads/broken; cd ..",
        home = fixture.home.display(),
        evil = evil(fixture)
    )
}

fn attack_26_what_is_written_below_git_stays_inside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    fixture.write(".bashrc", "mine\n");
    let before = GitFiles::of(&main.join(".git"));
    // Git itself may wait for a pipe among the refs, so it runs before.
    let commit = format!("git {IDENTITY} commit --quiet --allow-empty --message inside");
    let script = format!("{commit}; {}", litter(fixture));
    bash_in(fixture, &main, &[], &script).success();
    before.assert_unchanged(&main.join(".git"));
    let refs = git(fixture, &main, &["for-each-ref", "--format=%(refname)"]).success().to_owned();
    assert_eq!((refs.as_str(), last_subject(fixture, &main).as_str()), ("refs/heads/main", "inside"));
    assert_nothing_runs(fixture, &main);
    assert_eq!(fs::read_to_string(fixture.home.join(".bashrc")).expect("file"), "mine\n");
    git(fixture, &main, &["fsck", "--strict"]).success();
}

fn attack_26_the_git_directory_is_whole_after_its_removal(fixture: &Fixture) {
    let (main, tree) = with_submodule_and_worktree(fixture);
    let before = GitFiles::of(&main.join(".git"));
    let all = |directory: &Path| {
        let refs = git(fixture, directory, &["for-each-ref"]).success().to_owned();
        refs + git(fixture, directory, &["rev-parse", "HEAD"]).success()
            + git(fixture, directory, &["ls-files", "-s"]).success()
    };
    let refs = [&main, &tree, &main.join("a/b")].map(|directory| all(directory));
    let finished = bash_in(fixture, &main, &[], "rm -rf .git 2>/dev/null; ls .git/HEAD .git/refs 2>/dev/null | wc -l");
    assert_eq!(finished.success(), "0");
    assert!(finished.stderr.contains("the repository inside cannot be read"), "{}", finished.stderr);
    before.assert_unchanged(&main.join(".git"));
    assert_eq!([&main, &tree, &main.join("a/b")].map(|directory| all(directory)), refs);
    git(fixture, &main, &["fsck", "--strict"]).success();
}

fn attack_26_nothing_is_planted_while_the_sandbox_runs(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = GitFiles::of(&main.join(".git"));
    let script = format!(
        "git {IDENTITY} commit --quiet --allow-empty --message inside; git config alias.st '!{}'; {}
        {}; cat .git/refs/heads/main > .git/refs/heads/late; read line; echo $line",
        evil(fixture),
        plant_hook(fixture, ".git/hooks"),
        litter(fixture)
    );
    let mut command = fixture.run();
    command.current_dir(&main).args(["--", "bash", "-c", &script]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    eventually("the last branch is out", || git(fixture, &main, &["rev-parse", "--verify", "late"]).code == Some(0));
    before.assert_unchanged(&main.join(".git"));
    assert_nothing_runs(fixture, &main);
    running.write("end\n");
    running.finish().success();
    before.assert_unchanged(&main.join(".git"));
    assert_eq!(last_subject(fixture, &main), "host");
    assert_nothing_runs(fixture, &main);
}

fn tracking_settings_and_new_remotes_come_out(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let script = "set -e; git remote add origin https://example.org/x.git
        git config branch.main.remote origin; git config branch.main.merge refs/heads/main; git config branch.main.rebase true";
    let finished = bash_in(fixture, &main, &[], script);
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    for (key, value) in [
        ("remote.origin.url", "https://example.org/x.git"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("branch.main.remote", "origin"),
        ("branch.main.merge", "refs/heads/main"),
        ("branch.main.rebase", "true"),
    ] {
        assert_eq!(git(fixture, &main, &["config", "--local", key]).success(), value);
    }
}

fn a_changed_value_stays_inside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    git(fixture, &main, &["config", "alias.st", "status"]).success();
    git(fixture, &main, &["config", "--add", "credential.helper", ""]).success();
    git(fixture, &main, &["config", "--add", "credential.helper", "cache"]).success();
    git(fixture, &main, &["remote", "add", "origin", "https://example.org/x.git"]).success();
    let before = GitFiles::of(&main.join(".git"));
    let script = "git config alias.st '!evil'; git config --add credential.helper evil
        git remote set-url origin https://evil.example/x.git; git config branch.main.remote ../elsewhere";
    let finished = bash_in(fixture, &main, &[], script);
    finished.success();
    assert_settings_stay(&finished, &["alias.st", "branch.main.remote", "credential.helper", "remote.origin.url"]);
    before.assert_unchanged(&main.join(".git"));
}

fn an_unreadable_configuration_stays_inside(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = GitFiles::of(&main.join(".git"));
    for planting in [
        "echo '[[[' > .git/config",
        "ln -sf ../../other .git/config",
        "rm .git/config; mkfifo .git/config",
        "head -c 2000000 /dev/zero > .git/config",
    ] {
        let finished = bash_in(fixture, &main, &[], planting);
        finished.success();
        before.assert_unchanged(&main.join(".git"));
        assert_settings_stay(&finished, &["config"]);
        assert_eq!(fixture.sessions(), Vec::<PathBuf>::new(), "{planting}: {}", finished.stderr);
    }
}

/// The exchange while the sandbox runs must not be the last one that knows of it.
fn what_stays_inside_is_reported_after_a_long_session(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let script = format!(
        "git config alias.st '!evil'; {}; git {IDENTITY} commit --quiet --no-verify --allow-empty -m inside; read line; sleep 3",
        plant_hook(fixture, ".git/hooks")
    );
    let mut command = fixture.run();
    command.current_dir(&main).args(["--", "bash", "-c", &script]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    eventually("the commit is out", || last_subject(fixture, &main) == "inside");
    running.write("end\n");
    let finished = running.finish();
    assert_settings_stay(&finished, &["alias.st"]);
    assert_hook_stays(&finished);
}

fn hooks_that_stay_inside_are_kept_apart(fixture: &Fixture) {
    let (main, _) = with_submodule_and_worktree(fixture);
    fixture.write_script("project/main/.git/hooks/pre-push", "#!/bin/sh\n");
    let script =
        "for hooks in .git/hooks .git/modules/a/b/hooks; do mkdir -p $hooks; echo $hooks > $hooks/pre-commit; done
        echo changed >> .git/hooks/pre-push";
    let finished = bash_in(fixture, &main, &[], script);
    finished.success();
    assert_printed(&finished, "the hook `pre-push` stays inside");
    for hint in finished.stderr.lines().filter_map(|line| line.strip_prefix("hint: ")) {
        fixture.host_command("sh").args(["-c", hint]).finish().success();
    }
    for hooks in [".git/hooks", ".git/modules/a/b/hooks"] {
        assert_eq!(fs::read_to_string(main.join(hooks).join("pre-commit")).expect("hook").trim(), hooks);
    }
}

/// Git itself never deletes the branch of HEAD, or all refs at once.
fn attack_26_emptied_refs_delete_no_branches(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    git(fixture, &main, &["branch", "other"]).success();
    for script in ["rm -rf .git/refs; mkdir .git/refs", "rm -rf .git/refs/heads", "rm -f .git/packed-refs"] {
        bash_in(fixture, &main, &[], script).success();
        let refs = git(fixture, &main, &["for-each-ref", "--format=%(refname)"]).success().to_owned();
        assert_eq!(refs, "refs/heads/main\nrefs/heads/other", "{script}");
        git(fixture, &main, &["pack-refs", "--all"]).success();
    }
}

/// Each file that sandpen reads may be a link, a pipe, a directory or rubbish. The engines do not
/// differ in this.
#[test]
fn attack_26_odd_files_in_the_git_directory_are_refused() {
    Fixture::on(Engine::Native, |fixture| {
        let main = repository(fixture, &fixture.project.join("main"));
        let before = GitFiles::of(&main.join(".git"));
        let mut failures = Vec::new();
        for file in ["HEAD", "index", "config", "logs", "hooks", "info", "shallow"] {
            for make in ["ln -s ../../secret", "mkfifo", "mkdir", "head -c 100000 /dev/urandom >"] {
                let finished = bash_in(fixture, &main, &["-q"], &format!("rm -rf .git/{file}; {make} .git/{file}"));
                finished.success();
                before.assert_unchanged(&main.join(".git"));
                assert_eq!(last_subject(fixture, &main), "first", "{make} {file}");
                if !fixture.sessions().is_empty() {
                    failures.push(format!("{make} {file} leaves the session: {}", finished.stderr));
                    fixture.sandpen(["prune"]).finish().success();
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join(""));
    });
}

fn files_that_tools_run_are_reported(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    fixture.write("project/main/.vscode/tasks.json", "{}");
    fixture.write("project/main/.husky/pre-commit", "x");
    for options in [&[][..], &["--git", "shared"]] {
        assert_eq!(bash_in(fixture, &main, options, "cat .vscode/tasks.json > /dev/null").stderr, "");
        let named =
            [".devcontainer.json", ".envrc", ".gitmodules", ".mcp.json", ".vscode/tasks.json", ".zed/settings.json"];
        let script = "mkdir -p .zed; for file in .devcontainer.json .envrc .gitmodules .mcp.json .vscode/tasks.json .zed/settings.json; do date +%N >> $file; done";
        let finished = bash_in(fixture, &main, options, script);
        let named: Vec<String> = named.iter().map(|file| main.join(file).display().to_string()).collect();
        let line = format!("sandpen: changed inside, and used by tools on the host: {}\n", named.join(", "));
        assert_eq!(finished.stderr, line, "{options:?}");
    }
    // A long list is shortened.
    let script = "mkdir -p .claude .cursor .github/workflows .idea; for file in .bazelrc .claude/settings.json .cursor/mcp.json .envrc .exrc \
        .gitattributes .github/workflows/ci.yml .gitlab-ci.yml .idea/x AGENTS.md lefthook.yml; do echo x >> $file; done";
    let finished = bash_in(fixture, &main, &[], script);
    assert!(finished.stderr.ends_with(" and 3 more\n"), "{}", finished.stderr);
}
