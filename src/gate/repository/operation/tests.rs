#![allow(clippy::disallowed_methods, reason = "compares with Git")]

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

fn is_valid_ref(name: &str) -> bool {
    !name.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock"))
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(|c: char| c.is_control() || " ~^:?*[\\".contains(c))
}

fn read_from(git_dir: &Path) -> Result<Operation, String> {
    read(&UntrustedDir::open(git_dir).expect("a directory"), 20, is_valid_ref)
}

struct Repositories {
    directory: tempfile::TempDir,
}

impl Repositories {
    /// Makes the repository `guest` with the branches `main` and `side`, whose commits conflict.
    fn new() -> Self {
        let this = Repositories { directory: tempfile::tempdir().expect("a directory") };
        fs::create_dir(this.at("guest")).expect("created");
        this.git("guest", &["init", "-q", "-b", "main"]);
        for number in 1..=4 {
            this.commit("file", &format!("{number}\n"));
        }
        this.git("guest", &["checkout", "-q", "-b", "side", "main~2"]);
        this.commit("file", "side\n");
        this.commit("other", "other\n");
        this
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn run(&self, repository: &str, arguments: &[&str]) -> Output {
        Command::new("git")
            .args(arguments)
            .current_dir(self.at(repository))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.directory.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .env("GIT_EDITOR", "true")
            .env("GIT_SEQUENCE_EDITOR", "sed -i -e '0,/^pick/s//edit/'")
            .envs([("GIT_AUTHOR_NAME", "O'Neil $(id)"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
            .envs([("GIT_COMMITTER_NAME", "C"), ("GIT_COMMITTER_EMAIL", "c@example.com")])
            .output()
            .expect("git")
    }

    fn git(&self, repository: &str, arguments: &[&str]) -> String {
        let output = self.run(repository, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn stops(&self, arguments: &[&str]) {
        assert!(!self.run("guest", arguments).status.success(), "{arguments:?} does not stop");
    }

    fn commit(&self, file: &str, content: &str) {
        fs::write(self.at("guest").join(file), content).expect("written");
        self.git("guest", &["add", "."]);
        self.git("guest", &["commit", "-q", "-m", &format!("{file} is {content}")]);
    }

    /// Copies the guest's repository to `host` without the operation, and applies it there.
    fn bring_out(&self) -> Operation {
        let copied = Command::new("cp").arg("-a").args([self.at("guest"), self.at("host")]).status().expect("cp");
        assert!(copied.success());
        let git_dir = self.at("host/.git");
        for (name, _) in TOP_LEVEL {
            let _ = fs::remove_file(git_dir.join(name));
        }
        for directory in DIRECTORIES {
            let _ = fs::remove_dir_all(git_dir.join(directory));
        }
        assert!(!is_in_progress(&UntrustedDir::open(&git_dir).expect("a directory")));
        assert!(is_in_progress(&UntrustedDir::open(&self.at("guest/.git")).expect("a directory")));
        let status = self.git("guest", &["status"]);
        assert_ne!(self.git("host", &["status"]), status);
        let operation = read_from(&self.at("guest/.git")).expect("comes out");
        assert!(apply(&git_dir, &Operation::default(), &operation).expect("applied"));
        assert_eq!(self.git("host", &["status"]), status);
        assert_eq!(read_from(&git_dir).as_ref(), Ok(&operation));
        for id in operation.ids() {
            self.git("host", &["cat-file", "-e", &id]);
        }
        operation
    }

    /// Resolves the conflict and completes the operation in both; the results are the same. Then
    /// the guest's finished operation is removed from a host that still has it.
    fn both(&self, commands: &[&[&str]]) {
        let operation = read_from(&self.at("host/.git")).expect("comes out");
        let copied = Command::new("cp").arg("-a").args([self.at("host"), self.at("late")]).status().expect("cp");
        assert!(copied.success());
        for repository in ["guest", "host"] {
            fs::write(self.at(repository).join("file"), "resolved\n").expect("written");
            for command in commands {
                self.git(repository, command);
            }
        }
        let shown = ["log", "--all", "--format=%T %P %an %s"].as_slice();
        let log = |repository| self.git(repository, shown).lines().count();
        assert_eq!(log("guest"), log("host"));
        assert_eq!(self.git("guest", &["rev-parse", "HEAD^{tree}"]), self.git("host", &["rev-parse", "HEAD^{tree}"]));
        assert_eq!(self.git("guest", &["status"]), self.git("host", &["status"]));
        let finished = read_from(&self.at("guest/.git")).expect("comes out");
        assert!(apply(&self.at("late/.git"), &operation, &finished).expect("applied"));
        assert_eq!(read_from(&self.at("late/.git")), Ok(finished));
        assert!(!is_in_progress(&UntrustedDir::open(&self.at("late/.git")).expect("a directory")));
        assert!(!self.at("late/.git").join(TEMPORARY).exists());
    }

    fn id(&self, revision: &str) -> String {
        self.git("guest", &["rev-parse", revision]).trim().to_owned()
    }
}

const ADD: &[&str] = &["add", "file"];

#[test]
fn a_merge_comes_out() {
    let repositories = Repositories::new();
    repositories.stops(&["merge", "--no-ff", "main"]);
    let operation = repositories.bring_out();
    assert!(operation.ids().contains(&repositories.id("main")));
    repositories.both(&[ADD, &["merge", "--continue"]]);
}

#[test]
fn a_squash_message_comes_out() {
    let repositories = Repositories::new();
    repositories.git("guest", &["merge", "--squash", "main~2"]);
    repositories.stops(&["merge", "--squash", "main"]);
    let operation = read_from(&repositories.at("guest/.git")).expect("comes out");
    assert!(operation.files.contains_key(Path::new("SQUASH_MSG")));
}

#[test]
fn a_cherry_pick_of_several_commits_comes_out() {
    let repositories = Repositories::new();
    repositories.git("guest", &["checkout", "-q", "main"]);
    repositories.commit("third", "third\n");
    repositories.git("guest", &["checkout", "-q", "side"]);
    repositories.stops(&["cherry-pick", "-x", "-X", "patience", "--strategy=ort", "main~1", "main"]);
    let operation = repositories.bring_out();
    assert_eq!(operation.files.keys().filter(|path| path.starts_with("sequencer")).count(), 4);
    assert!(operation.ids().contains(&repositories.id("main~1")));
    repositories.both(&[ADD, &["cherry-pick", "--continue"]]);
    assert!(repositories.at("host/third").exists());
}

#[test]
fn a_revert_comes_out() {
    let repositories = Repositories::new();
    repositories.git("guest", &["checkout", "-q", "main"]);
    repositories.stops(&["revert", "main~2"]);
    repositories.bring_out();
    repositories.both(&[ADD, &["revert", "--continue"]]);
}

#[test]
fn a_rebase_with_a_conflict_comes_out() {
    let repositories = Repositories::new();
    fs::write(repositories.at("guest/other"), "changed\n").expect("written");
    let rebase = ["rebase", "-s", "ort", "-X", "patience", "-X", "find-renames=30%", "--autostash", "--signoff"];
    repositories.stops(&[&rebase[..], &["--rerere-autoupdate", "--update-refs", "main"]].concat());
    let operation = repositories.bring_out();
    assert!(operation.files.contains_key(Path::new("rebase-merge/autostash")));
    assert!(!operation.files.contains_key(Path::new("rebase-merge/patch")));
    assert!(operation.ids().contains(&repositories.id("side")));
    repositories.both(&[ADD, &["rebase", "--continue"]]);
}

#[test]
fn a_rebase_that_stopped_for_an_edit_comes_out() {
    let repositories = Repositories::new();
    repositories.git("guest", &["branch", "middle", "side~1"]);
    repositories.git("guest", &["rebase", "-q", "-i", "--update-refs", "side~2"]);
    let operation = repositories.bring_out();
    for name in ["amend", "author-script", "update-refs"] {
        assert!(operation.files.contains_key(&Path::new("rebase-merge").join(name)), "{name}");
    }
    repositories.both(&[ADD, &["rebase", "--continue"]]);
    assert_eq!(repositories.git("host", &["rev-parse", "middle"]), repositories.git("host", &["rev-parse", "side~1"]));
}

#[test]
fn a_rebase_that_recreates_merges_comes_out() {
    let repositories = Repositories::new();
    repositories.git("guest", &["merge", "-q", "-s", "ours", "main", "-m", "merged"]);
    repositories.git("guest", &["rebase", "-q", "-i", "-r", "main~3"]);
    let operation = repositories.bring_out();
    let todo = String::from_utf8_lossy(&operation.files[Path::new("rebase-merge/git-rebase-todo")]).into_owned();
    assert!(todo.contains("merge -C") && todo.contains("reset "), "{todo}");
    assert!(operation.files.contains_key(Path::new("rebase-merge/refs-to-delete")));
}

#[test]
fn a_bisect_comes_out() {
    let repositories = Repositories::new();
    repositories.git("guest", &["bisect", "start", "--first-parent", "main", "main~3", "--", "file", "it's"]);
    let operation = repositories.bring_out();
    assert!(operation.files.contains_key(Path::new("BISECT_NAMES")));
    let next = |repository| repositories.git(repository, &["bisect", "good"]);
    assert_eq!(next("guest"), next("host"));
    let log = |repository| repositories.git(repository, &["bisect", "log"]);
    assert_eq!(log("guest"), log("host"));
    let finished = read_from(&repositories.at("guest/.git")).expect("comes out");
    assert!(!apply(&repositories.at("host/.git"), &operation, &Operation::default()).expect("refused"));
    repositories.git("guest", &["bisect", "reset"]);
    let reset = read_from(&repositories.at("guest/.git")).expect("comes out");
    assert!(apply(&repositories.at("host/.git"), &finished, &reset).expect("applied"));
    assert!(!repositories.at("host/.git/BISECT_LOG").exists());
}

/// Makes a directory like that of a rebase, with the files that Git requires.
fn rebase() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let merge = directory.path().join("rebase-merge");
    fs::create_dir(&merge).expect("created");
    for (name, content) in [
        ("head-name", "refs/heads/main\n"),
        ("onto", &format!("{ID}\n")),
        ("orig-head", &format!("{ID}\n")),
        ("git-rebase-todo", &format!("pick {ID} a subject {}\n", ID.replace('0', "1"))),
    ] {
        fs::write(merge.join(name), content).expect("written");
    }
    directory
}

/// Tells why an operation with this file stays inside.
fn reason(path: &str, content: &str) -> Option<String> {
    let directory = rebase();
    let path = directory.path().join(path);
    fs::create_dir_all(path.parent().expect("a directory")).expect("created");
    if path.starts_with(directory.path().join("sequencer")) {
        fs::write(directory.path().join("sequencer/head"), ID).expect("written");
        fs::write(directory.path().join("sequencer/todo"), "").expect("written");
    }
    fs::write(path, content).expect("written");
    read_from(directory.path()).err()
}

#[test]
fn commands_stay_inside() {
    for line in ["exec id", "x id", " \texec id", "exec", "pick 1234567 a\nx id\n", "pick 1234567\r\nexec id\r"] {
        for file in ["git-rebase-todo", "done", "git-rebase-todo.backup"] {
            let reason = reason(&format!("rebase-merge/{file}"), line).unwrap_or_default();
            assert!(reason.contains("`exec`"), "{line:?}: {reason}");
        }
        assert!(reason("sequencer/todo", line).is_some_and(|reason| reason.contains("`exec`")));
    }
}

#[test]
fn only_known_lines_of_a_todo_list_come_out() {
    let todo = "rebase-merge/git-rebase-todo";
    for line in [
        "",
        "# exec id",
        "p 1234567",
        "pick 1234567 a; `b` $(c)\r",
        "  edit\t1234567 a",
        "fixup -C 1234567 # a",
        "f 1234567",
        "drop 1234567",
        "break",
        "noop",
        "label onto",
        "reset [new root]",
        "reset a-branch # subject",
        "t 1234567",
        "merge -C 1234567 topic # Merge exec",
        "merge -c 1234567 one two",
        "merge topic",
        "update-ref refs/heads/a",
        "u refs/heads/a",
    ] {
        assert_eq!(reason(todo, line), None, "{line}");
    }
    for line in [
        "pickexec id",
        "pick",
        "pick HEAD",
        "pick --exec",
        "pick 1234567890123456789012345678901234567890a",
        "revert 1234567",
        "execute id",
        "break exec",
        "label -a",
        "label a..b",
        "label",
        "reset :/a",
        "reset -a",
        "merge -C topic",
        "merge -C 1234567",
        "merge -C 1234567 -a",
        "merge # a",
        "update-ref refs/tags/a",
        "update-ref refs/heads/../a",
        "update-ref refs/heads/a b",
        "EXEC id",
        "pick 1234567 \u{1b}[2J",
        "pick 1234567\0",
    ] {
        assert!(reason(todo, line).is_some(), "{line}");
    }
    assert_eq!(reason("sequencer/todo", "revert 1234567 a\n"), None);
    assert!(reason("sequencer/todo", "edit 1234567 a\n").is_some());
}

#[test]
fn contents_that_git_would_not_write_stay_inside() {
    let two = format!("{ID}\n{ID}\n");
    let null = "0".repeat(40);
    for (path, content) in [
        (
            "rebase-merge/author-script",
            "GIT_AUTHOR_NAME='$(id)'\nGIT_AUTHOR_EMAIL='a'\\''b'\nGIT_AUTHOR_DATE='@1 +0000'\n",
        ),
        ("rebase-merge/gpg_sign_opt", "-S\n"),
        ("rebase-merge/strategy_opts", " --ours --find-renames=5\n"),
        ("rebase-merge/strategy_opts", "\"theirs\" \"ignore-all-space\"\n"),
        ("rebase-merge/current-fixups", &format!("fixup {ID}\nsquash {ID}")),
        ("rebase-merge/update-refs", &format!("refs/heads/a\n{ID}\n{null}\n")),
        ("rebase-merge/rewritten-list", &format!("{ID} {ID}\n")),
        ("rebase-merge/refs-to-delete", "refs/rewritten/a\n"),
        ("rebase-merge/head-name", "detached HEAD\n"),
        ("sequencer/opts", "[options]\n\tedit = true\n\tmainline = 1\n\tstrategy-option = ours\n"),
        ("MERGE_HEAD", &two),
        ("MERGE_MODE", "no-ff"),
        ("BISECT_START", "a/branch\n"),
        ("BISECT_TERMS", "new\nold-one\n"),
        ("BISECT_NAMES", "\n"),
        ("BISECT_LOG", &format!("git bisect start '--term-new=x' 'a'\n# x\ngit bisect x {ID}\n")),
    ] {
        assert_eq!(reason(path, content), None, "{path}: {content}");
    }
    for (path, content) in [
        ("rebase-merge/author-script", "GIT_AUTHOR_NAME=$(id)\nGIT_AUTHOR_EMAIL='a'\nGIT_AUTHOR_DATE='@1'\n"),
        ("rebase-merge/author-script", "GIT_AUTHOR_NAME='a';id\nGIT_AUTHOR_EMAIL='a'\nGIT_AUTHOR_DATE='@1'\n"),
        ("rebase-merge/author-script", "GIT_AUTHOR_NAME='a'\nGIT_AUTHOR_EMAIL='a'\nGIT_AUTHOR_DATE='@1'\nid\n"),
        ("rebase-merge/author-script", "GIT_AUTHOR_NAME='a'\nGIT_AUTHOR_EMAIL='a'\nPATH='x'\n"),
        ("rebase-merge/gpg_sign_opt", "-Skey\n"),
        ("rebase-merge/strategy", "../../x\n"),
        ("rebase-merge/strategy", "x\n"),
        ("rebase-merge/strategy_opts", "--subtree=../x\n"),
        ("rebase-merge/strategy_opts", "\"ours\" --exec\n"),
        ("rebase-merge/current-fixups", &format!("exec {ID}")),
        ("rebase-merge/update-refs", &format!("refs/heads/a\n{ID}\n")),
        ("rebase-merge/update-refs", &format!("refs/tags/a\n{ID}\n{ID}\n")),
        ("rebase-merge/refs-to-delete", "refs/heads/main\n"),
        ("rebase-merge/refs-to-delete", "refs/rewritten/../heads/main\n"),
        ("rebase-merge/head-name", "refs/heads/a\nrefs/heads/b\n"),
        ("rebase-merge/head-name", "refs/../config\n"),
        ("rebase-merge/head-name", "refs/heads/-a\n"),
        ("rebase-merge/onto", "HEAD\n"),
        ("rebase-merge/end", "-1\n"),
        ("rebase-merge/quiet", "x\n"),
        ("sequencer/opts", "[options]\n\tstrategy = x\n"),
        ("sequencer/opts", "[options]\n\tgpg-sign = key\n"),
        ("sequencer/opts", "[include]\n\tpath = /x\n"),
        ("sequencer/opts", "[core]\n\teditor = id\n"),
        ("sequencer/opts", "[options]\n\tedit = true \\\n"),
        ("MERGE_HEAD", "ref: refs/heads/main\n"),
        ("CHERRY_PICK_HEAD", &two),
        ("MERGE_MODE", "x"),
        ("BISECT_START", "--orphan=x\n"),
        ("BISECT_START", "main\n--force\n"),
        ("BISECT_TERMS", "-a\nb\n"),
        ("BISECT_TERMS", "a\n"),
        ("BISECT_TERMS", "../a\nb\n"),
        ("BISECT_NAMES", " $(id)\n"),
        ("BISECT_NAMES", " '--output=x'\n"),
        ("BISECT_LOG", "git bisect start $(id)\n"),
        ("BISECT_LOG", "git bisect run id\n"),
        ("BISECT_LOG", "id\n"),
    ] {
        assert!(reason(path, content).is_some(), "{path}: {content}");
    }
}

#[test]
fn unknown_names_links_pipes_and_large_files_stay_inside() {
    for path in ["rebase-merge/exec", "rebase-merge/rewritten/a", "sequencer/hook", "rebase-apply/next"] {
        assert!(reason(path, "").is_some(), "{path}");
    }
    assert!(reason("MERGE_MSG", &"a".repeat((1 << 20) + 1)).is_some());
    assert!(reason("rebase-merge/done", &"#\n".repeat((2 << 20) + 1)).is_some());
    assert_eq!(reason("MERGE_MSG", &"a".repeat(1 << 20)), None);
    assert_eq!(reason("rebase-merge/patch", &"a".repeat(32 << 20)), None);

    for name in ["MERGE_MSG", "rebase-merge/message"] {
        let directory = rebase();
        symlink("/etc/passwd", directory.path().join(name)).expect("linked");
        assert!(read_from(directory.path()).is_err());
        fs::remove_file(directory.path().join(name)).expect("removed");
        rustix::fs::mknodat(rustix::fs::CWD, directory.path().join(name), FileType::Fifo, 0o644.into(), 0)
            .expect("a pipe");
        assert!(read_from(directory.path()).is_err());
    }
    let directory = rebase();
    fs::rename(directory.path().join("rebase-merge"), directory.path().join("elsewhere")).expect("renamed");
    assert_eq!(read_from(directory.path()), Ok(Operation::default()));
    symlink("elsewhere", directory.path().join("rebase-merge")).expect("linked");
    assert!(read_from(directory.path()).is_err());

    let directory = rebase();
    for number in 0..MAX_ENTRIES {
        fs::write(directory.path().join(format!("rebase-merge/{number}")), "").expect("written");
    }
    assert!(read_from(directory.path()).is_err_and(|reason| reason.contains("too many")));
}

#[test]
fn a_directory_that_git_is_removing_stays_inside() {
    let directory = rebase();
    fs::remove_file(directory.path().join("rebase-merge/onto")).expect("removed");
    assert_eq!(read_from(directory.path()), Err("`rebase-merge/onto` is missing".to_owned()));
}

#[test]
fn only_ids_at_their_places_are_listed() {
    let ids = read_from(rebase().path()).expect("comes out").ids();
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), [ID]);
}

fn operation(files: &[(&str, &str)]) -> Operation {
    Operation { files: files.iter().map(|(path, content)| (path.into(), content.as_bytes().to_vec())).collect() }
}

#[test]
fn the_operation_of_the_host_is_not_overwritten() -> io::Result<()> {
    let none = Operation::default();
    let merge = operation(&[("MERGE_HEAD", ID), ("MERGE_MSG", "guest")]);
    let rebase_now = read_from(rebase().path()).expect("comes out");
    for (path, content) in
        [("MERGE_HEAD", "host"), ("rebase-merge/exec", ""), ("rebase-apply/next", ""), ("BISECT_LOG", "")]
    {
        let host = tempfile::tempdir()?;
        let file = host.path().join(path);
        fs::create_dir_all(file.parent().expect("a directory"))?;
        fs::write(&file, content)?;
        assert!(!apply(host.path(), &none, &rebase_now)?, "{path}");
        assert!(!apply(host.path(), &merge, &none)?, "{path}");
        assert_eq!(fs::read_to_string(&file)?, content);
        assert!(!host.path().join("rebase-merge/onto").exists());
    }
    Ok(())
}

#[test]
fn nothing_is_written_through_a_link_of_the_host() -> io::Result<()> {
    let now = read_from(rebase().path()).expect("comes out");
    let host = tempfile::tempdir()?;
    let elsewhere = tempfile::tempdir()?;
    symlink(elsewhere.path(), host.path().join("rebase-merge"))?;
    assert!(apply(host.path(), &Operation::default(), &now).is_err());
    assert!(fs::read_dir(elsewhere.path())?.next().is_none());
    fs::remove_file(host.path().join("rebase-merge"))?;
    symlink(elsewhere.path().join("file"), host.path().join("MERGE_MSG"))?;
    assert!(apply(host.path(), &Operation::default(), &operation(&[("MERGE_MSG", "x")])).is_err());
    // No link is in the way of these, which are not files of an operation.
    fs::remove_file(host.path().join("MERGE_MSG"))?;
    fs::create_dir(host.path().join("hooks"))?;
    assert!(apply(host.path(), &Operation::default(), &operation(&[("../x", "x")])).is_err());
    assert!(apply(host.path(), &Operation::default(), &operation(&[("hooks/pre-commit", "x")])).is_err());
    Ok(())
}

/// Stops after each file as a kill would, and applies the rest.
#[test]
fn a_change_that_was_interrupted_is_completed() -> io::Result<()> {
    let mut before = read_from(rebase().path()).expect("comes out");
    before.files.insert("MERGE_MSG".into(), b"before".to_vec());
    before.files.insert("REBASE_HEAD".into(), ID.into());
    let mut now = before.clone();
    now.files.remove(Path::new("REBASE_HEAD"));
    now.files.insert("MERGE_MSG".into(), b"now".to_vec());
    now.files.insert("rebase-merge/done".into(), b"# now\n".to_vec());
    now.files.insert("rebase-merge/git-rebase-todo".into(), b"noop\n".to_vec());
    let finished = operation(&[("SQUASH_MSG", "x")]);
    for (before, now) in [(&before, &now), (&Operation::default(), &now), (&now, &finished)] {
        let paths: BTreeSet<&PathBuf> = before.files.keys().chain(now.files.keys()).collect();
        for count in 0..=paths.len() {
            let host = tempfile::tempdir()?;
            for (number, path) in paths.iter().enumerate() {
                let source = if number < count { now } else { before };
                let Some(content) = source.files.get(*path) else { continue };
                fs::create_dir_all(host.path().join(path).parent().expect("a directory"))?;
                fs::write(host.path().join(path), content)?;
            }
            fs::create_dir(host.path().join(TEMPORARY))?;
            fs::write(host.path().join(TEMPORARY).join("onto"), "rest")?;
            assert!(apply(host.path(), before, now)?);
            assert_eq!(present(host.path())?.as_ref(), Some(now));
            assert!(!host.path().join(TEMPORARY).exists());
            assert_eq!(host.path().join("rebase-merge").exists(), now.is_below("rebase-merge"));
        }
    }
    Ok(())
}
