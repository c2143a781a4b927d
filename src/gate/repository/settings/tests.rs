#![allow(clippy::disallowed_methods, reason = "compares with Git")]

use std::path::Path;
use std::process::Command;

use super::*;

const GIVEN: &str = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://example.com/a\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";

fn changed(added: &str) -> SettingChanges {
    changes(GIVEN.as_bytes(), format!("{GIVEN}{added}").as_bytes())
}

/// Lists the keys that are kept inside, if nothing else has changed.
fn kept(added: &str) -> Vec<String> {
    let changes = changed(added);
    assert_eq!(changes.accepted, [], "{added}");
    changes.kept_inside.into_iter().map(|setting| setting.key).collect()
}

fn set(key: &str, given: Option<&str>, value: &str) -> SettingChange {
    SettingChange::Set { key: key.to_owned(), given: given.map(str::to_owned), value: value.to_owned() }
}

fn remote(name: &str, url: &str) -> String {
    format!("[remote \"{name}\"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/{name}/*\n")
}

fn git(directory: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
        .envs([("GIT_COMMITTER_NAME", "C"), ("GIT_COMMITTER_EMAIL", "c@example.com")])
        .output()
        .expect("git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_git_writes_for_remotes_and_branches_comes_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let config = || std::fs::read(path.join("repository/.git/config")).expect("a file");
    git(path, &["init", "-q", "--bare", "upstream"]);
    git(path, &["init", "-q", "-b", "main", "repository"]);
    let repository = path.join("repository");
    git(&repository, &["remote", "add", "origin", "../upstream"]);
    git(&repository, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&repository, &["config", "branch.main.rebase", "true"]);
    let given = config();

    git(&repository, &["push", "-q", "-u", "origin", "main"]);
    git(&repository, &["branch", "-q", "--track", "feature/a\"b;c", "main"]);
    git(&repository, &["remote", "add", "fork", "git@example.com:me/repository.git"]);
    git(&repository, &["config", "branch.main.rebase", "merges"]);
    git(&repository, &["config", "alias.x", "!id ; # \"a\"\t\\"]);
    let now = config();
    let changes = super::changes(&given, &now);
    assert_eq!(
        changes.accepted,
        [
            SettingChange::AddRemote {
                name: "fork".to_owned(),
                url: "git@example.com:me/repository.git".to_owned(),
                fetch: "+refs/heads/*:refs/remotes/fork/*".to_owned(),
            },
            set("branch.feature/a\"b;c.merge", None, "refs/heads/main"),
            set("branch.feature/a\"b;c.remote", None, "."),
            set("branch.main.merge", None, "refs/heads/main"),
            set("branch.main.rebase", Some("true"), "merges"),
            set("branch.main.remote", None, "origin"),
        ]
    );
    let alias = KeptSetting { key: "alias.x".to_owned(), value: Some("!id ; # \"a\"\t\\".to_owned()) };
    assert_eq!(changes.kept_inside, [alias]);

    git(&repository, &["branch", "-q", "--unset-upstream", "main"]);
    let unset = |key: &str, given: &str| SettingChange::Unset { key: key.to_owned(), given: given.to_owned() };
    assert_eq!(
        super::changes(&now, &config()).accepted,
        [unset("branch.main.merge", "refs/heads/main"), unset("branch.main.remote", "origin")]
    );
    git(&repository, &["remote", "remove", "fork"]);
    let keys: Vec<String> = super::changes(&now, &config()).kept_inside.into_iter().map(|kept| kept.key).collect();
    assert_eq!(keys, ["remote.fork.fetch", "remote.fork.url"]);
}

#[test]
fn ordinary_urls_come_out() {
    for url in [
        "https://example.com/a/b.git",
        "http://localhost:8080/",
        "https://user:token@example.com/a",
        "ssh://git@example.com:2222/~me/a",
        "git://example.com/a%20b",
        "git@example.com:a/b.git",
        "example.com:/srv/a",
        "alias:a",
    ] {
        assert_eq!(changed(&remote("new", url)).accepted.len(), 1, "{url}");
    }
}

#[test]
fn urls_that_run_programs_or_name_paths_stay_inside() {
    for url in [
        "ext::sh -c id",
        "ext::id",
        "ext::id/a:b",
        "https::example.com",
        "file:///srv/a",
        "ext://id",
        "HTTPS://example.com/a",
        "/srv/a",
        "../a",
        "./a:b",
        "a",
        "~/a",
        "",
        "-x:a",
        "a@-x:b",
        "ssh://-x/a",
        "example.com:a::b",
        "-oProxyCommand=id:a",
        "--upload-pack=id",
        "a@-oProxyCommand=id:a",
        "-oProxyCommand=id@b:a",
        "ssh://-oProxyCommand=id/a",
        "ssh://a@-oProxyCommand=id/a",
        "ssh://%2doProxyCommand=id/a",
        "ssh://example.com:x/a",
        "ssh:///a",
        "git://example.com/a%0ab",
        "git://example.com/a%",
        "example.com:-a",
        "example.com:",
        ":a",
        "https://example.com/a\\nb",
        "https://exämple.com/a",
        "https://example.com/$(id)",
        "C:\\\\a",
    ] {
        assert_eq!(kept(&remote("new", url)), ["remote.new.fetch", "remote.new.url"], "{url}");
    }
}

#[test]
fn remotes_that_are_not_plain_stay_inside() {
    for name in ["--upload-pack=id", "-a", "a..b", "../a", "/a", "a/", ".a", "a.lock", "a b", "a:b", "ä", "a*"] {
        assert_eq!(kept(&remote(name, "https://example.com/a")).len(), 2, "{name}");
    }
    let url = "\turl = https://example.com/a\n";
    let fetch = "\tfetch = +refs/heads/*:refs/remotes/new/*\n";
    for (settings, count) in [
        (url.to_owned(), 1),
        (fetch.to_owned(), 1),
        (format!("{url}{url}{fetch}"), 2),
        (format!("{url}{fetch}{fetch}"), 2),
        (format!("{url}\tfetch = +refs/heads/*:refs/heads/*\n"), 2),
        (format!("{url}\tfetch = +refs/heads/*:refs/remotes/origin/*\n"), 2),
    ] {
        assert_eq!(kept(&format!("[remote \"new\"]\n{settings}")).len(), count, "{settings}");
    }
    let changes =
        changed(&format!("{}\tpushurl = ext::id\n\tuploadpack = id\n", remote("new", "https://example.com/a")));
    assert_eq!(changes.accepted.len(), 1);
    assert_eq!(changes.kept_inside.len(), 2);
}

#[test]
fn remotes_that_were_given_do_not_change() {
    for line in ["url = https://example.com/b", "pushurl = https://example.com/b", "uploadpack = id", "fetch = +a:b"] {
        assert_eq!(kept(&format!("[remote \"origin\"]\n\t{line}\n")).len(), 1, "{line}");
    }
    let now = GIVEN.replace("example.com/a", "example.com/b");
    let changes = changes(GIVEN.as_bytes(), now.as_bytes());
    assert_eq!(changes.accepted, []);
    let value = Some("https://example.com/b".to_owned());
    assert_eq!(changes.kept_inside, [KeptSetting { key: "remote.origin.url".to_owned(), value }]);
}

#[test]
fn settings_of_branches_are_checked() {
    for (line, value) in [("remote = origin", "origin"), ("remote = .", "."), ("rebase = false", "false")] {
        let key = format!("branch.new.{}", line.split(' ').next().unwrap_or_default());
        assert_eq!(changed(&format!("[branch \"new\"]\n\t{line}\n")).accepted, [set(&key, None, value)]);
    }
    for line in [
        "remote = --upload-pack=id",
        "remote = unknown",
        "remote = /srv/a",
        "remote = https://example.com/a",
        "remote = ext::id",
        "remote = ../a",
        "remote",
        "merge = main",
        "merge = refs/heads/-a",
        "merge = refs/heads/a b",
        "merge = refs/heads/../a",
        "merge = refs/tags/a",
        "rebase = interactive",
        "rebase",
        "pushRemote = origin",
        "mergeOptions = -s x",
        "description = a",
        "rebase = true\n\trebase = false",
    ] {
        assert_eq!(kept(&format!("[branch \"new\"]\n\t{line}\n")).len(), 1, "{line}");
    }
    for name in ["-a", "a b", "a..b", "a.lock", "a~1", "a\\\\b", ""] {
        assert_eq!(kept(&format!("[branch \"{name}\"]\n\tremote = origin\n")).len(), 1, "{name}");
    }
    assert_eq!(kept("[branch \"main\"]\n\tremote = .\n"), ["branch.main.remote"], "two values");
}

#[test]
fn a_branch_may_track_a_new_remote_only_if_that_comes_out() {
    let branch = "[branch \"new\"]\n\tremote = fork\n";
    let changes = changed(&format!("{branch}{}", remote("fork", "https://example.com/a")));
    assert!(matches!(&changes.accepted[..], [SettingChange::AddRemote { .. }, SettingChange::Set { .. }]));
    assert_eq!(kept(&format!("{branch}{}", remote("fork", "ext::id"))).len(), 3);
}

#[test]
fn other_settings_and_odd_files_stay_inside() {
    for (text, key) in [
        ("[core]\n\tfsmonitor = id\n", "core.fsmonitor"),
        ("[include]\n\tpath = x\n", "include.path"),
        ("[url \"ext::id\"]\n\tinsteadOf = https://\n", "url.ext::id.insteadof"),
        ("[branch]\n\tautoSetupRebase = always\n", "branch.autosetuprebase"),
        ("[core] fsmonitor = id\n", "config"),
        ("[core]\n\tfsmonitor = i\\\nd\n", "config"),
        ("[core\n", "config"),
        ("\u{1b}", "config"),
    ] {
        assert_eq!(kept(text), [key], "{text}");
    }
    let whole = [KeptSetting { key: "config".to_owned(), value: None }];
    assert_eq!(changes(GIVEN.as_bytes(), b"\xff").kept_inside, whole);
    assert_eq!(changes(b"[a", GIVEN.as_bytes()).kept_inside, whole);
    assert_eq!(changed(&"#\n".repeat(MAX_SIZE / 2)).kept_inside, whole);
    assert_eq!(changes(b"[a", b"[a"), SettingChanges::default());
    assert_eq!(changed("# comment\n"), SettingChanges::default());
}
