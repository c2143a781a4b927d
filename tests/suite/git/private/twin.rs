//! Builds a repository twice at the same path, runs the same script on the host and in a sandbox,
//! and compares what the host's Git reports afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Finished, Fixture, RunToEnd};

/// Fixes the dates, so that both halves make the same objects.
const PRELUDE: &str = r#"set -e
now=1700000000
tick() { now=$((now + 60)); export GIT_AUTHOR_DATE="$now +0000" GIT_COMMITTER_DATE="$now +0000"; }
commit() { tick; printf '%s\n' "$2" > "$1"; git add -- "$1"; git commit --quiet --message "$1 $2"; }
export GIT_EDITOR=true GIT_MERGE_AUTOEDIT=no
tick
"#;

/// Prints what Git reports inside; it fails in a bare repository.
const EPILOGUE: &str = "\n{ git status --short --branch || true; git log --all --oneline --decorate; }\n";

const IDENTITY: &str = "[user]\n\tname = Me\n\temail = me@example.org\n[init]\n\tdefaultBranch = main\n\
    [advice]\n\tdetachedHead = false\n[protocol \"file\"]\n\tallow = always\n";

/// Git runs with these arguments in every repository.
const QUESTIONS: &[&[&str]] = &[
    &["status", "--porcelain=v2", "--branch"],
    &["status"],
    &["log", "--exclude=refs/sandpen/*", "--all", "--format=%H %D %s"],
    &[
        "for-each-ref",
        "refs/heads",
        "refs/tags",
        "refs/remotes",
        "refs/notes",
        "refs/stash",
        "refs/bisect",
        "refs/custom",
    ],
    &["symbolic-ref", "--quiet", "HEAD"],
    &["stash", "list"],
    &["ls-files", "--stage", "-v"],
    &["diff", "--cached", "--summary"],
    &["worktree", "list", "--porcelain"],
    &["submodule", "status"],
    &["rev-parse", "--is-shallow-repository"],
    &["config", "--local", "--get-regexp", r"^(branch|remote|submodule)\."],
    &["fsck", "--no-dangling"],
];

pub struct Twin<'a> {
    fixture: &'a Fixture,
    base: PathBuf,
    setup: String,
    directory: &'static str,
    repositories: &'static [&'static str],
    options: &'static [&'static str],
    omitted: Option<&'static [&'static str]>,
    afterwards: &'static str,
    is_silent: bool,
}

/// A text for each question, by its name.
type Report = Vec<(String, String)>;

impl<'a> Twin<'a> {
    /// `setup` is a bash script that creates `repo`, and what else is needed, on the host.
    pub fn new(fixture: &'a Fixture, setup: &str) -> Self {
        fixture.write(".gitconfig", IDENTITY);
        Twin {
            fixture,
            base: fixture.project.join("twin"),
            setup: setup.to_owned(),
            directory: "repo",
            repositories: &["repo"],
            options: &[],
            omitted: None,
            afterwards: "",
            is_silent: true,
        }
    }

    /// Runs the script in this directory instead of `repo`.
    pub fn at(self, directory: &'static str) -> Self {
        Twin { directory, ..self }
    }

    /// Compares these repositories instead of `repo`.
    pub fn comparing(self, repositories: &'static [&'static str]) -> Self {
        Twin { repositories, ..self }
    }

    pub fn options(self, options: &'static [&'static str]) -> Self {
        Twin { options, ..self }
    }

    /// Does not compare the output of `git` with these arguments.
    pub fn without(self, arguments: &'static [&'static str]) -> Self {
        Twin { omitted: Some(arguments), ..self }
    }

    /// Allows messages of sandpen, which are otherwise a failure.
    pub fn with_messages(self) -> Self {
        Twin { is_silent: false, ..self }
    }

    /// Also runs a script on the host after the first comparison, and compares again.
    pub fn then_outside(self, afterwards: &'static str) -> Self {
        Twin { afterwards, ..self }
    }

    /// Runs the script in both halves, and fails if the host's Git reports anything else after the
    /// sandbox.
    #[track_caller]
    pub fn same_after(&self, script: &str) {
        let script = format!("{PRELUDE}{script}{EPILOGUE}");
        let expected = self.half(|directory| self.host_command(directory, "bash").args(["-c", &script]).finish());
        let found = self.half(|directory| {
            let mut run = self.fixture.run();
            let finished = run.current_dir(directory).args(self.options).args(["--", "bash", "-c", &script]).finish();
            // A branch whose commits nothing else has is named when the sandbox deletes it.
            let is_unexpected = |line: &&str| {
                line.starts_with("sandpen:")
                    && !line.contains("was deleted inside")
                    && !line.contains("was dropped inside")
            };
            let messages: Vec<&str> = finished.stderr.lines().filter(is_unexpected).collect();
            assert!(!self.is_silent || messages.is_empty(), "messages of sandpen: {messages:#?}");
            finished
        });
        let different: Vec<String> = expected
            .iter()
            .zip(&found)
            .filter(|(expected, found)| expected != found)
            .map(|((name, expected), (_, found))| format!("{name}\n{}", different_lines(expected, found)))
            .collect();
        assert!(different.is_empty(), "without (-) and with (+) a sandbox:\n{}", different.join("\n"));
    }

    #[track_caller]
    fn half(&self, run: impl FnOnce(&Path) -> Finished) -> Report {
        if self.base.exists() {
            fs::remove_dir_all(&self.base).expect("remove");
        }
        fs::create_dir(&self.base).expect("directory");
        self.fixture.give_to_user(&self.base);
        let setup = format!("{PRELUDE}{}", self.setup);
        self.host_command(&self.base, "bash").args(["-c", &setup]).finish().success();
        let finished = run(&self.base.join(self.directory));
        assert_eq!(finished.code, Some(0), "the script failed: {finished:#?}");
        let mut report = vec![("output of the script".to_owned(), finished.stdout)];
        self.question("", &mut report);
        if !self.afterwards.is_empty() {
            let script = format!("{PRELUDE}{}", self.afterwards);
            let finished = self.host_command(&self.base.join(self.directory), "bash").args(["-c", &script]).finish();
            assert_eq!(finished.code, Some(0), "the script outside failed: {finished:#?}");
            report.push(("output of the script outside".to_owned(), finished.stdout));
            self.question("afterwards: ", &mut report);
        }
        report
    }

    fn question(&self, when: &str, report: &mut Report) {
        for repository in self.repositories {
            let directory = self.base.join(repository);
            for arguments in QUESTIONS.iter().filter(|arguments| Some(**arguments) != self.omitted) {
                let finished = self.host_command(&directory, "git").args(*arguments).finish();
                let text = format!("{:?}\n{}{}", finished.code, finished.stdout, finished.stderr);
                let mut lines: Vec<&str> = text.lines().collect();
                if arguments[0] == "config" {
                    // The mark of a remote that a sandbox added has no meaning to Git.
                    lines.retain(|line| !line.split(' ').next().is_some_and(|key| key.ends_with(".sandpen")));
                    lines.sort_unstable();
                }
                report.push((format!("{when}git {} in {repository}", arguments.join(" ")), lines.join("\n")));
            }
            if directory.join(".git").exists() {
                let mut files = String::new();
                list_files(&directory, &directory, &mut files);
                report.push((format!("{when}files of {repository}"), files));
            }
        }
    }

    fn host_command(&self, directory: &Path, program: &str) -> Command {
        let mut command = self.fixture.host_command(program);
        command.current_dir(directory);
        command
    }
}

/// Lists the files of a working tree with their modes and contents.
fn list_files(root: &Path, directory: &Path, text: &mut String) {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).expect("directory").map(|e| e.expect("entry").path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| !path.ends_with(".git")) {
        let (name, meta) = (path.strip_prefix(root).expect("below"), fs::symlink_metadata(path).expect("metadata"));
        let content = if meta.is_dir() {
            "a directory".to_owned()
        } else if meta.is_symlink() {
            format!("a link to {:?}", fs::read_link(path).expect("link"))
        } else {
            format!("{:?}", String::from_utf8_lossy(&fs::read(path).expect("read")))
        };
        *text += &format!("{name:?} {:o} {content}\n", meta.permissions().mode());
        if meta.is_dir() {
            list_files(root, path, text);
        }
    }
}

/// Returns at most 20 lines that only one of the texts contains.
fn different_lines(expected: &str, found: &str) -> String {
    let only = |mark: char, text: &str, other: &str| -> Vec<String> {
        let other: std::collections::BTreeSet<&str> = other.lines().collect();
        text.lines().filter(|line| !other.contains(line)).take(10).map(|line| format!("  {mark} {line}")).collect()
    };
    let lines = [only('-', expected, found), only('+', found, expected)].concat();
    if lines.is_empty() { "  the order of lines".to_owned() } else { lines.join("\n") }
}
