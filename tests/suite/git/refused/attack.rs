//! Runs one attack in a sandbox over a new repository, and checks everything that no attack may
//! change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Snapshot;
use crate::git::{git, repository};
use crate::support::{Finished, Fixture, RunToEnd};

/// An attack that takes longer counts as a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// The commit on `good` is made before the attack. The exit code shows that the attack ran to its
/// end.
const PRELUDE: &str =
    "set -e; git switch --quiet -c good; git commit --quiet --allow-empty -m good; git switch --quiet main\n";
const CODE: i32 = 7;

pub struct Attack<'a> {
    fixture: &'a Fixture,
    name: String,
    script: String,
    says: Option<String>,
    brings_out_good: bool,
    is_prepared: bool,
    options: Vec<String>,
}

/// Returns the repository of an attack.
pub fn directory(fixture: &Fixture, name: &str) -> PathBuf {
    // Container engines do not take a colon in the path of a mount.
    fixture.project.join(name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}

/// Creates the repository of an attack, with files on `main` and an unused branch `old`.
pub fn prepare(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.write(".gitconfig", "[user]\n\tname = Me\n\temail = me@example.org\n[advice]\n\tdetachedHead = false\n");
    let main = directory(fixture, name);
    if main.exists() {
        fs::remove_dir_all(&main).expect("remove");
    }
    repository(fixture, &main);
    fixture.write(main.join("file"), "one\n");
    git(fixture, &main, &["add", "file"]).success();
    git(fixture, &main, &["commit", "--quiet", "--message", "second"]).success();
    git(fixture, &main, &["branch", "old"]).success();
    git(fixture, &main, &["branch", "packed"]).success();
    git(fixture, &main, &["pack-refs", "--all"]).success();
    main
}

impl<'a> Attack<'a> {
    /// `script` runs in the repository. `$EVIL` is a shell command that leaves a trace on the host.
    pub fn new(fixture: &'a Fixture, name: &str, script: &str) -> Self {
        Attack {
            fixture,
            name: name.to_owned(),
            script: script.to_owned(),
            says: None,
            brings_out_good: false,
            is_prepared: false,
            options: Vec::new(),
        }
    }

    pub fn options(self, options: &[&str]) -> Self {
        Attack { options: options.iter().map(|option| (*option).to_owned()).collect(), ..self }
    }

    /// Requires a message of sandpen that contains this text, in any case.
    pub fn says(self, text: &str) -> Self {
        Attack { says: Some(text.to_ascii_lowercase()), ..self }
    }

    /// Requires that the commit that was made before the attack comes out.
    pub fn brings_out_good_commits(self) -> Self {
        Attack { brings_out_good: true, ..self }
    }

    /// Uses the repository that the caller has prepared.
    pub fn on_prepared(self) -> Self {
        Attack { is_prepared: true, ..self }
    }

    /// Prepares the repository unless the caller did, runs the attack, and checks the host.
    #[track_caller]
    pub fn run(self) {
        let (fixture, main) = (self.fixture, directory(self.fixture, &self.name));
        if !self.is_prepared {
            prepare(fixture, &self.name);
        }
        let what = format!("{}: {}", self.name, self.script);
        let refs = ["main", "old", "packed"].map(|name| git(fixture, &main, &["rev-parse", name]).success().to_owned());
        let before = Snapshot::of(&main.join(".git"));
        let started = Instant::now();
        let finished = self.sandbox(&main);
        let elapsed = started.elapsed();
        assert!(elapsed < LIMIT, "{what}: took {elapsed:?}");
        assert_eq!(finished.code, Some(CODE), "{what}: {finished:#?}");
        before.assert_only_commits_came_out(&what);
        let now = ["main", "old", "packed"].map(|name| git(fixture, &main, &["rev-parse", name]).success().to_owned());
        assert_eq!(now[1..], refs[1..], "{what}: refs that the guest did not touch");
        if self.brings_out_good {
            let subject = git(fixture, &main, &["log", "-1", "--format=%s", "good"]);
            assert_eq!(subject.stdout.trim_end(), "good", "{what}: the good commit stays inside: {finished:#?}");
        }
        self.check_repository(&what, &main);
        assert_nothing_ran(fixture, &what);
        self.check_messages(&what, &finished);
        let next = fixture.sandpen(["ps"]).current_dir("/").finish();
        assert_eq!(next.stderr, "", "{what}: the next command reports it again");
    }

    fn sandbox(&self, main: &Path) -> Finished {
        let evil = format!("touch {}/executed", self.fixture.root.display());
        let script = format!("EVIL='{evil}'\n{PRELUDE}{}\nexit {CODE}\n", self.script);
        let mut run = self.fixture.run();
        run.current_dir(main).args(&self.options).args(["--", "bash", "-c", &script]);
        limited(&run).finish()
    }

    #[track_caller]
    fn check_messages(&self, what: &str, finished: &Finished) {
        let lines: Vec<String> = finished.stderr.lines().map(str::to_ascii_lowercase).collect();
        let is_control = |c: char| c.is_control() && c != '\n';
        assert!(!finished.stderr.chars().any(is_control), "{what}: control characters in {:?}", finished.stderr);
        assert!(lines.len() < 20, "{what}: {} lines: {}", lines.len(), finished.stderr);
        if let Some(text) = &self.says {
            let is_named = lines.iter().any(|line| line.starts_with("sandpen:") && line.contains(text));
            assert!(is_named, "{what}: no message names `{text}`: {:?}", finished.stderr);
        }
    }

    /// Does on the host what a user does after a session; planted code would run now.
    #[track_caller]
    fn check_repository(&self, what: &str, main: &Path) {
        let git = |arguments: &[&str]| limited(git_command(self.fixture, main).args(arguments)).finish();
        for arguments in [&["status"][..], &["fsck", "--no-dangling"], &["log", "--all", "--oneline"]] {
            let finished = git(arguments);
            assert_eq!(finished.code, Some(0), "{what}: git {arguments:?}: {}", finished.stderr);
        }
        for arguments in [
            &["st"][..],
            &["stash", "--include-untracked"],
            &["commit", "--quiet", "--allow-empty", "--message", "host"],
            &["fetch", "--all"],
            &["fetch", "."],
            &["rebase", "old"],
            &["checkout", "--quiet", "old"],
            &["checkout", "--quiet", "--force", "main"],
            &["pack-refs", "--all"],
            &["gc", "--quiet"],
        ] {
            git(arguments);
        }
        for arguments in [&["status"][..], &["fsck", "--no-dangling"]] {
            let finished = git(arguments);
            assert_eq!(finished.code, Some(0), "{what}: afterwards, git {arguments:?}: {}", finished.stderr);
        }
    }
}

fn git_command(fixture: &Fixture, directory: &Path) -> Command {
    let mut command = fixture.host_command("git");
    command.current_dir(directory);
    command
}

/// Returns the command with a time limit, because a hanging test would stop the suite.
pub fn limited(command: &Command) -> Command {
    let mut limited = Command::new("/usr/bin/timeout");
    limited.args(["--kill-after=5", &LIMIT.as_secs().to_string()]).arg(command.get_program()).args(command.get_args());
    limited.env_clear().stdin(Stdio::null()).current_dir(command.get_current_dir().expect("a directory"));
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}

#[track_caller]
pub fn assert_nothing_ran(fixture: &Fixture, what: &str) {
    assert!(!fixture.root.join("executed").exists(), "{what}: planted code was executed on the host");
}
