//! Tests `--git`, the removed `--guard`, and repositories that a sandbox does not use.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use super::Snapshot;
use crate::for_docker_and_native;
use crate::git::{bash_in, git, last_subject, repository};
use crate::support::{Engine, Finished, Fixture, RunToEnd, is_root_or_skip};

for_docker_and_native!(
    a_shared_repository_has_read_only_hooks_and_settings,
    a_broken_repository_is_left_out,
    a_broken_repository_is_not_repaired_with_planted_code,
    the_variable_and_the_setting_choose_as_well,
);

const COMMIT: &str = "git -c user.name=N -c user.email=n@x commit --quiet --allow-empty --message inside";

fn a_shared_repository_has_read_only_hooks_and_settings(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let before = Snapshot::of(&main.join(".git"));
    for script in [
        "touch .git/hooks/pre-commit",
        "git config core.fsmonitor evil",
        "echo x >> .git/config",
        "rm .git/config",
        "mv .git/hooks x",
    ] {
        let finished = bash_in(fixture, &main, &["--git", "shared"], script);
        assert!(!matches!(finished.code, Some(0 | 2 | 44)), "{script}: {finished:?}");
    }
    before.assert_only_commits_came_out("the shared repository");
    let finished = bash_in(fixture, &main, &["--git", "shared"], COMMIT);
    assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""));
    assert_eq!(last_subject(fixture, &main), "inside");
    // The commit is on the host at once, because the repository is the host's own.
    let ids = bash_in(fixture, &main, &["--git", "shared"], "stat -c %i .git/HEAD");
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(main.join(".git/HEAD")).expect("HEAD"));
    assert_eq!(ids.success(), inode.to_string());
    let explained = fixture.command("explain").current_dir(&main).args(["--git", "shared"]).finish();
    assert!(explained.success().to_ascii_lowercase().contains("no protection"), "{}", explained.stdout);
}

fn the_variable_and_the_setting_choose_as_well(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let is_private = |finished: Finished| {
        finished.success();
        !main.join(".git/planted").exists()
    };
    let script = "touch .git/planted";
    assert!(is_private(bash_in(fixture, &main, &[], script)), "private is the default");
    assert!(is_private(bash_in(fixture, &main, &["--git", "private"], script)));
    let mut command = fixture.run();
    command.current_dir(&main).env("SANDPEN_GIT", "shared").args(["--", "bash", "-c", script]);
    assert!(!is_private(command.finish()), "the variable is not used");
    fs::remove_file(main.join(".git/planted")).expect("remove");
    fixture.write(".config/sandpen/config.toml", "git = \"shared\"\n");
    assert!(is_private(bash_in(fixture, &main, &["--git", "private"], script)), "the option overrides the setting");
    assert!(!is_private(bash_in(fixture, &main, &[], script)), "the setting is not used");
}

#[test]
fn the_guard_is_an_error_that_names_the_new_option() {
    let fixture = Fixture::new();
    for value in ["off", "on", "strict"] {
        let finished = fixture.sandpen(["run", "--guard", value, "--", "true"]).finish();
        assert!(finished.failure(2).contains("--git"), "{}", finished.stderr);
    }
    let finished = fixture.sandpen(["run", "--git", "other", "--", "true"]).finish();
    let stderr = finished.failure(2);
    assert!(stderr.contains("private") && stderr.contains("shared"), "{stderr}");
}

#[test]
fn seatbelt_has_shared_repositories_only() {
    let fixture = Fixture::new().with_macos_seatbelt();
    repository(&fixture, &fixture.project);
    let finished = fixture.run().args(["--git", "private", "--", "true"]).finish();
    assert!(matches!(finished.code, Some(2 | 44)), "{finished:?}");
    assert!(finished.stderr.contains("--git") && finished.stderr.contains("sandbox-exec"), "{}", finished.stderr);
    assert!(!fixture.root.join("argv").exists(), "sandbox-exec was started");
    fixture.run().args(["--git", "shared", "--", "true"]).finish().success();
    // Without the option the repository is shared, and `--strict` makes that an error.
    fixture.run().args(["--", "true"]).finish().success();
    fixture.run().args(["--strict", "--", "true"]).finish().failure(44);
}

/// Runs a script in a sandbox, and returns its output and sandpen's warnings.
fn warned(fixture: &Fixture, directory: &Path, script: &str) -> (Finished, Vec<String>) {
    let finished = bash_in(fixture, directory, &[], script);
    let lines = finished.stderr.lines().filter(|line| line.starts_with("sandpen: ")).map(str::to_owned).collect();
    (finished, lines)
}

/// Names a damage, and does it to a Git directory.
type Damage = (&'static str, fn(&Path));

fn a_broken_repository_is_left_out(fixture: &Fixture) {
    let breaks: [Damage; 5] = [
        ("no HEAD", |git_dir| fs::remove_file(git_dir.join("HEAD")).expect("remove")),
        ("a HEAD of garbage", |git_dir| fs::write(git_dir.join("HEAD"), "garbage\n").expect("write")),
        ("no objects", |git_dir| fs::remove_dir_all(git_dir.join("objects")).expect("remove")),
        ("no refs", |git_dir| {
            fs::remove_dir_all(git_dir.join("refs")).expect("remove");
        }),
        ("broken settings", |git_dir| fs::write(git_dir.join("config"), "[core\n").expect("write")),
    ];
    let mut failures = Vec::new();
    for (what, damage) in breaks {
        let main = repository(fixture, &fixture.project.join(what));
        damage(&main.join(".git"));
        let before = Snapshot::of(&main.join(".git"));
        let (finished, lines) =
            warned(fixture, &main, "git log --oneline 2> /dev/null || echo no repository; touch file");
        before.assert_only_commits_came_out(what);
        let is_named = lines.len() == 1 && lines[0].contains(&main.display().to_string());
        if finished.code != Some(0) || finished.stdout != "no repository\n" || !is_named || !main.join("file").exists()
        {
            failures.push(format!("{what}: {finished:#?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The host's Git takes the directory for a repository again once its HEAD is back.
fn a_broken_repository_is_not_repaired_with_planted_code(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    fs::remove_file(main.join(".git/HEAD")).expect("remove");
    let script = format!(
        "printf '[core]\\n\\tfsmonitor = touch {}/executed\\n' >> .git/config; echo 'ref: refs/heads/main' > .git/HEAD; git init --quiet; true",
        fixture.root.display()
    );
    bash_in(fixture, &main, &[], &script).success();
    git(fixture, &main, &["status"]);
    super::attack::assert_nothing_ran(fixture, "git status");
}

/// Git refuses a repository of another owner, which must not widen the workspace either.
#[test]
fn a_repository_of_another_owner_is_left_out() {
    if !is_root_or_skip("files of another user") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        let outer = fixture.outside("outer");
        repository(fixture, &outer);
        fixture.write(outer.join("secret"), "hunter2");
        let inner = outer.join("inner");
        fixture.write(inner.join("mine"), "");
        fixture.host_command("chmod").args(["-R", "a+rX"]).arg(&outer).finish().success();
        let chowned = std::process::Command::new("chown").args(["-R", "0:0"]).arg(outer.join(".git")).status();
        assert!(chowned.expect("chown").success());
        chown(&outer, Some(0), Some(0)).expect("chown");
        assert!(git(fixture, &inner, &["status"]).stderr.contains("dubious ownership"));
        let before = Snapshot::of(&outer.join(".git"));
        let script = "ls; cat ../secret ../.git/HEAD 2> /dev/null; git log --oneline 2> /dev/null || echo no repository; touch new";
        let (finished, lines) = warned(fixture, &inner, script);
        assert_eq!(finished.success(), "mine\nno repository");
        assert!(lines.len() == 1 && lines[0].contains(&outer.display().to_string()), "{lines:?}");
        assert!(inner.join("new").exists());
        before.assert_only_commits_came_out("a repository of another owner");
        // The repository of the working directory itself belongs to another user.
        let own = repository(fixture, &fixture.project.join("own"));
        let chowned = std::process::Command::new("chown").args(["-R", "0:0"]).arg(own.join(".git")).status();
        assert!(chowned.expect("chown").success());
        let (finished, lines) = warned(fixture, &own, "git log --oneline 2> /dev/null || echo no repository");
        assert_eq!(finished.success(), "no repository");
        assert!(lines.len() == 1 && lines[0].contains(".git"), "{lines:?}");
    });
}
