//! What sandpen reads of Git's settings itself is what Git says; and everything that is not plain is Git's to read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{git, repository};
use crate::support::{Engine, Pen, RunToEnd};

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Sandpen,
    Git,
}

/// Something about the home, or the repository in it; and the directory to be in, when it is not the repository's root.
type Case = (&'static str, By, fn(&Pen) -> Option<PathBuf>);

const CASES: &[Case] = &[
    ("nothing special", By::Sandpen, |_| None),
    ("below the root", By::Sandpen, |pen| Some(below(pen, "src/deep"))),
    ("no repository", By::Sandpen, |pen| {
        let plain = pen.project.with_file_name("plain");
        fs::create_dir(&plain).expect("directory");
        chown(&plain, Some(pen.uid), Some(pen.gid)).expect("chown");
        Some(plain)
    }),
    ("both files of the user's", By::Sandpen, |pen| {
        pen.write(".config/git/config", "[core]\n\tpager = from-xdg\n\teditor = \"an editor\" # mine\n");
        None
    }),
    ("a linked file", By::Sandpen, |pen| {
        fs::rename(pen.home.join(".gitconfig"), pen.home.join("dotfile")).expect("rename");
        symlink("dotfile", pen.home.join(".gitconfig")).expect("link");
        None
    }),
    ("a remote and a branch", By::Sandpen, |pen| {
        set(pen, "remote.origin.url", "ssh://git@example.org/x.git");
        set(pen, "branch.Main.merge", "refs/heads/main");
        set(pen, "alias.lg", "log --format=\"%h; %s\"");
        None
    }),
    ("hooks of its own", By::Sandpen, |pen| {
        set(pen, "core.hooksPath", ".githooks");
        None
    }),
    ("a detached head", By::Sandpen, |pen| {
        git(pen, &pen.project, &["checkout", "--quiet", "--detach"]).ok();
        None
    }),
    ("a linked worktree", By::Sandpen, |pen| {
        let other = pen.project.with_file_name("other");
        git(pen, &pen.project, &["worktree", "add", "--quiet", other.to_str().expect("text")]).ok();
        Some(other)
    }),
    ("an include", By::Git, |pen| {
        pen.write("more", "[core]\n\teditor = included\n");
        append(&pen.home.join(".gitconfig"), "[include]\n\tpath = more\n");
        None
    }),
    ("an include of the repository's", By::Git, |pen| {
        pen.write("project/.git/more", "[core]\n\thooksPath = .githooks\n");
        set(pen, "include.path", "more");
        None
    }),
    ("a condition", By::Git, |pen| {
        pen.write("more", "[core]\n\teditor = included\n");
        append(&pen.home.join(".gitconfig"), "[includeIf \"gitdir:~/project/\"]\n\tpath = more\n");
        None
    }),
    ("a value of two lines", By::Git, |pen| {
        append(&pen.home.join(".gitconfig"), "[core]\n\teditor = of \\\n two\n");
        None
    }),
    ("a file that Git refuses", By::Git, |pen| {
        append(&pen.project.join(".git/config"), "[core\n");
        None
    }),
    ("another configuration per worktree", By::Git, |pen| {
        set(pen, "extensions.worktreeConfig", "true");
        git(pen, &pen.project, &["config", "--worktree", "core.editor", "of-the-worktree"]).ok();
        None
    }),
    ("a newer format", By::Git, |pen| {
        set(pen, "core.repositoryFormatVersion", "1");
        None
    }),
    ("another working tree", By::Git, |pen| {
        set(pen, "core.worktree", "..");
        None
    }),
    ("bare", By::Git, |pen| {
        let bare = pen.project.with_file_name("bare.git");
        git(pen, &pen.home, &["init", "--quiet", "--bare", bare.to_str().expect("text")]).ok();
        Some(bare)
    }),
    ("a submodule", By::Git, |pen| {
        let other = repository(pen, &pen.project.with_file_name("other"));
        let add = ["submodule", "--quiet", "add", other.to_str().expect("text"), "sub"];
        git(pen, &pen.project, &add).ok();
        let sub = pen.project.join("sub");
        git(pen, &sub, &["config", "core.editor", "of-the-submodule"]).ok();
        Some(sub)
    }),
    ("no head", By::Git, |pen| {
        fs::remove_file(pen.project.join(".git/HEAD")).expect("remove");
        None
    }),
    ("an odd head", By::Git, |pen| {
        fs::write(pen.project.join(".git/HEAD"), "ref: elsewhere\n").expect("write");
        None
    }),
    ("no objects", By::Git, |pen| {
        fs::remove_dir_all(pen.project.join(".git/objects")).expect("remove");
        None
    }),
    ("no refs", By::Git, |pen| {
        fs::remove_dir_all(pen.project.join(".git/refs")).expect("remove");
        None
    }),
    ("an empty .git within a repository", By::Git, |pen| {
        let inner = below(pen, "inner");
        fs::create_dir(inner.join(".git")).expect("directory");
        chown(inner.join(".git"), Some(pen.uid), Some(pen.gid)).expect("chown");
        Some(inner)
    }),
    ("somebody else's repository", By::Git, |pen| {
        chown(&pen.project, Some(1), Some(1)).expect("chown");
        Some(below(pen, "mine"))
    }),
    ("somebody else's .git", By::Git, |pen| {
        chown(pen.project.join(".git"), Some(1), Some(1)).expect("chown");
        None
    }),
    ("a linked configuration", By::Git, |pen| {
        fs::rename(pen.project.join(".git/config"), pen.project.join("config")).expect("rename");
        symlink("../config", pen.project.join(".git/config")).expect("link");
        None
    }),
];

fn below(pen: &Pen, name: &str) -> PathBuf {
    let directory = pen.project.join(name);
    fs::create_dir_all(&directory).expect("directory");
    for made in directory.ancestors().take_while(|made| *made != pen.project) {
        chown(made, Some(pen.uid), Some(pen.gid)).expect("chown");
    }
    directory
}

fn set(pen: &Pen, key: &str, value: &str) {
    git(pen, &pen.project, &["config", key, value]).ok();
}

fn append(file: &Path, text: &str) {
    fs::write(file, fs::read_to_string(file).expect("read") + text).expect("write");
}

/// A home with settings that `explain` tells, of the user and of the repository.
fn pen() -> Pen {
    let pen = Pen::new(Engine::Native);
    pen.write(".gitconfig", "[user]\n\tname = J\u{f6}\n[core]\n\tpager = of-the-user\n[credential]\n\thelper = mine\n");
    repository(&pen, &pen.project);
    set(&pen, "sequence.editor", "of-the-repository");
    pen
}

/// What planning makes of Git's settings; and whether Git was started, which then leaves a trace.
fn explained(pen: &Pen, directory: &Path, variables: &[(&str, &str)]) -> (Value, By) {
    let trace = pen.outside("traces").join("trace");
    let _ = fs::remove_file(&trace);
    let mut command = pen.sandpen();
    // The distribution's Git, whose file for all users is known.
    command.current_dir(directory).env("GIT_TRACE2_PERF", &trace).env("PATH", "/usr/bin:/bin");
    command.envs(variables.iter().copied());
    let ran = command.args(["explain", "--format", "json", "--engine", "native", "--", "true"]).ran();
    let plan: Value = serde_json::from_str(ran.ok()).expect("JSON");
    let told = serde_json::json!([plan["git"], plan["mounts"]]);
    (told, if trace.exists() { By::Git } else { By::Sandpen })
}

/// Settings from the environment are Git's to read, and there are none.
const ASK_GIT: (&str, &str) = ("GIT_CONFIG_COUNT", "0");

#[test]
fn what_is_plain_is_read_as_git_reads_it() {
    if !Engine::Native.is_there() {
        eprintln!("SKIPPED: native is not in SANDPEN_TEST_ENGINES");
        return;
    }
    for (what, by, arrange) in CASES {
        let pen = pen();
        let directory = arrange(&pen).unwrap_or_else(|| pen.project.clone());
        let found = explained(&pen, &directory, &[]);
        let asked = explained(&pen, &directory, &[ASK_GIT]);
        assert_eq!(asked.1, By::Git, "{what}: a Git that is asked leaves a trace");
        assert_eq!(found, (asked.0, *by), "{what}");
        // Any other that is first on PATH.
        let usual = ("PATH", "/usr/local/bin:/usr/bin:/bin");
        let (found, asked) = (explained(&pen, &directory, &[usual]), explained(&pen, &directory, &[usual, ASK_GIT]));
        assert_eq!(found.0, asked.0, "{what}");
    }
}

#[test]
fn where_variables_or_programs_decide_git_is_asked() {
    if !Engine::Native.is_there() {
        eprintln!("SKIPPED: native is not in SANDPEN_TEST_ENGINES");
        return;
    }
    let pen = pen();
    let programs = pen.outside("programs");
    fs::write(programs.join("git"), "#!/bin/sh\nexec /usr/bin/git \"$@\"\n").expect("write");
    fs::set_permissions(programs.join("git"), fs::Permissions::from_mode(0o755)).expect("permissions");
    let path = format!("{}:/usr/bin:/bin", programs.display());
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_PARAMETERS", "'core.editor'='of-the-environment'"),
        ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
        ("XDG_CONFIG_HOME", "relative"),
        ("PATH", path.as_str()),
    ] {
        let (_, by) = explained(&pen, &pen.project, &[(name, value)]);
        assert_eq!(by, By::Git, "{name}");
    }
}
