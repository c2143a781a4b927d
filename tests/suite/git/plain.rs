//! sandpen reads simple Git settings itself, with the same result as Git, and runs Git for all
//! others.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{git, repository};
use crate::support::{Engine, Fixture, RunToEnd, install_script, is_root_or_skip};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reader {
    Sandpen,
    Git,
}

/// Prepares the home or the repository in it, and returns the directory to run in if it is not the
/// repository's root.
type Case = (&'static str, Reader, fn(&Fixture) -> Option<PathBuf>);

const CASES: &[Case] = &[
    ("nothing special", Reader::Sandpen, |_| None),
    ("below the root", Reader::Sandpen, |fixture| Some(below(fixture, "src/deep"))),
    ("no repository", Reader::Sandpen, |fixture| {
        let plain = fixture.project.with_file_name("plain");
        fs::create_dir(&plain).expect("directory");
        chown(&plain, Some(fixture.uid), Some(fixture.gid)).expect("chown");
        Some(plain)
    }),
    ("both files of the user's", Reader::Sandpen, |fixture| {
        fixture.write(".config/git/config", "[core]\n\tpager = from-xdg\n\teditor = \"an editor\" # mine\n");
        None
    }),
    ("a linked file", Reader::Sandpen, |fixture| {
        fs::rename(fixture.home.join(".gitconfig"), fixture.home.join("dotfile")).expect("rename");
        symlink("dotfile", fixture.home.join(".gitconfig")).expect("link");
        None
    }),
    ("a remote and a branch", Reader::Sandpen, |fixture| {
        set(fixture, "remote.origin.url", "ssh://git@example.org/x.git");
        set(fixture, "branch.Main.merge", "refs/heads/main");
        set(fixture, "alias.lg", "log --format=\"%h; %s\"");
        None
    }),
    ("hooks of its own", Reader::Sandpen, |fixture| {
        set(fixture, "core.hooksPath", ".githooks");
        None
    }),
    ("a detached head", Reader::Sandpen, |fixture| {
        git(fixture, &fixture.project, &["checkout", "--quiet", "--detach"]).success();
        None
    }),
    ("a linked worktree", Reader::Sandpen, |fixture| {
        let other = fixture.project.with_file_name("other");
        git(fixture, &fixture.project, &["worktree", "add", "--quiet", other.to_str().expect("text")]).success();
        Some(other)
    }),
    ("an include", Reader::Git, |fixture| {
        fixture.write("more", "[core]\n\teditor = included\n");
        append(&fixture.home.join(".gitconfig"), "[include]\n\tpath = more\n");
        None
    }),
    ("an include of the repository's", Reader::Git, |fixture| {
        fixture.write("project/.git/more", "[core]\n\thooksPath = .githooks\n");
        set(fixture, "include.path", "more");
        None
    }),
    ("a condition", Reader::Git, |fixture| {
        fixture.write("more", "[core]\n\teditor = included\n");
        append(&fixture.home.join(".gitconfig"), "[includeIf \"gitdir:~/project/\"]\n\tpath = more\n");
        None
    }),
    ("a value of two lines", Reader::Git, |fixture| {
        append(&fixture.home.join(".gitconfig"), "[core]\n\teditor = of \\\n two\n");
        None
    }),
    ("a file that Git refuses", Reader::Git, |fixture| {
        append(&fixture.project.join(".git/config"), "[core\n");
        None
    }),
    ("another configuration per worktree", Reader::Git, |fixture| {
        set(fixture, "extensions.worktreeConfig", "true");
        git(fixture, &fixture.project, &["config", "--worktree", "core.editor", "of-the-worktree"]).success();
        None
    }),
    ("a newer format", Reader::Git, |fixture| {
        set(fixture, "core.repositoryFormatVersion", "1");
        None
    }),
    ("another working tree", Reader::Git, |fixture| {
        set(fixture, "core.worktree", "..");
        None
    }),
    ("bare", Reader::Git, |fixture| {
        let bare = fixture.project.with_file_name("bare.git");
        git(fixture, &fixture.home, &["init", "--quiet", "--bare", bare.to_str().expect("text")]).success();
        Some(bare)
    }),
    ("a submodule", Reader::Git, |fixture| {
        let other = repository(fixture, &fixture.project.with_file_name("other"));
        let add = ["submodule", "--quiet", "add", other.to_str().expect("text"), "sub"];
        git(fixture, &fixture.project, &add).success();
        let sub = fixture.project.join("sub");
        git(fixture, &sub, &["config", "core.editor", "of-the-submodule"]).success();
        Some(sub)
    }),
    ("no head", Reader::Git, |fixture| {
        fs::remove_file(fixture.project.join(".git/HEAD")).expect("remove");
        None
    }),
    ("an odd head", Reader::Git, |fixture| {
        fs::write(fixture.project.join(".git/HEAD"), "ref: elsewhere\n").expect("write");
        None
    }),
    ("no objects", Reader::Git, |fixture| {
        fs::remove_dir_all(fixture.project.join(".git/objects")).expect("remove");
        None
    }),
    ("no refs", Reader::Git, |fixture| {
        fs::remove_dir_all(fixture.project.join(".git/refs")).expect("remove");
        None
    }),
    ("an empty .git within a repository", Reader::Git, |fixture| {
        let inner = below(fixture, "inner");
        fs::create_dir(inner.join(".git")).expect("directory");
        chown(inner.join(".git"), Some(fixture.uid), Some(fixture.gid)).expect("chown");
        Some(inner)
    }),
    ("another user's repository", Reader::Git, |fixture| {
        chown(&fixture.project, Some(1), Some(1)).expect("chown");
        Some(below(fixture, "mine"))
    }),
    ("another user's .git", Reader::Git, |fixture| {
        chown(fixture.project.join(".git"), Some(1), Some(1)).expect("chown");
        None
    }),
    ("a linked configuration", Reader::Git, |fixture| {
        fs::rename(fixture.project.join(".git/config"), fixture.project.join("config")).expect("rename");
        symlink("../config", fixture.project.join(".git/config")).expect("link");
        None
    }),
];

fn below(fixture: &Fixture, name: &str) -> PathBuf {
    let directory = fixture.project.join(name);
    fs::create_dir_all(&directory).expect("directory");
    for made in directory.ancestors().take_while(|made| *made != fixture.project) {
        chown(made, Some(fixture.uid), Some(fixture.gid)).expect("chown");
    }
    directory
}

fn set(fixture: &Fixture, key: &str, value: &str) {
    git(fixture, &fixture.project, &["config", key, value]).success();
}

fn append(file: &Path, text: &str) {
    fs::write(file, fs::read_to_string(file).expect("read") + text).expect("write");
}

/// Creates a home and a repository with settings that `explain` shows.
fn fixture() -> Fixture {
    let fixture = Fixture::new().with_engine(Engine::Native);
    fixture.write(
        ".gitconfig",
        "[user]\n\tname = J\u{f6}\n[core]\n\tpager = of-the-user\n[credential]\n\thelper = mine\n",
    );
    repository(&fixture, &fixture.project);
    set(&fixture, "sequence.editor", "of-the-repository");
    fixture
}

/// Returns the planned Git settings and mounts, and whether Git was started, which its trace file
/// shows.
fn explained(fixture: &Fixture, directory: &Path, variables: &[(&str, &str)]) -> (Value, Reader) {
    let trace = fixture.outside("traces").join("trace");
    let _ = fs::remove_file(&trace);
    let mut command = fixture.command("explain");
    // The system-wide configuration of the distribution's Git is at a known path.
    command.current_dir(directory).env("GIT_TRACE2_PERF", &trace).env("PATH", "/usr/bin:/bin");
    command.envs(variables.iter().copied());
    let plan = command.args(["--format", "json", "--", "true"]).finish().json();
    let settings_and_mounts = serde_json::json!([plan["git"], plan["mounts"]]);
    (settings_and_mounts, if trace.exists() { Reader::Git } else { Reader::Sandpen })
}

/// Makes sandpen run Git, which reads settings from the environment; the count is zero.
const ASK_GIT: (&str, &str) = ("GIT_CONFIG_COUNT", "0");

#[test]
fn plain_git_configuration_is_read_as_git_reads_it() {
    if !Engine::Native.is_available() {
        return;
    }
    for (what, by, arrange) in CASES {
        if what.starts_with("another user's") && !is_root_or_skip("files of another user") {
            continue;
        }
        let fixture = fixture();
        let directory = arrange(&fixture).unwrap_or_else(|| fixture.project.clone());
        let found = explained(&fixture, &directory, &[]);
        let asked = explained(&fixture, &directory, &[ASK_GIT]);
        assert_eq!(asked.1, Reader::Git, "{what}: Git was not started");
        assert_eq!(found, (asked.0, *by), "{what}");
        // The result is also correct with another Git first on PATH.
        let usual = ("PATH", "/usr/local/bin:/usr/bin:/bin");
        let (found, asked) =
            (explained(&fixture, &directory, &[usual]), explained(&fixture, &directory, &[usual, ASK_GIT]));
        assert_eq!(found.0, asked.0, "{what}");
    }
}

#[test]
fn git_is_asked_where_variables_or_programs_decide() {
    if !Engine::Native.is_available() {
        return;
    }
    let fixture = fixture();
    let programs = fixture.outside("programs");
    install_script(programs.join("git"), "#!/bin/sh\nexec /usr/bin/git \"$@\"\n");
    let path = format!("{}:/usr/bin:/bin", programs.display());
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_PARAMETERS", "'core.editor'='of-the-environment'"),
        ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
        ("XDG_CONFIG_HOME", "relative"),
        ("PATH", path.as_str()),
    ] {
        let (_, by) = explained(&fixture, &fixture.project, &[(name, value)]);
        assert_eq!(by, Reader::Git, "{name}");
    }
}
