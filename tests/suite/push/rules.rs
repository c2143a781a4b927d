//! What each rule allows, over SSH on the native engine.

use super::server::{GitServer, bash};
use crate::for_docker_and_native;
use crate::support::{Fixture, RunToEnd};

for_docker_and_native!(
    updates_are_decided_by_their_kind,
    all_of_a_push_or_nothing,
    odd_names_are_names,
    options_that_rules_say_nothing_about_are_not_offered,
    without_rules_nothing_changes,
);

/// Runs a push; returns whether it succeeded, and asserts that a refused one changed nothing.
#[track_caller]
fn push(fixture: &Fixture, server: &GitServer, rules: &[&str], script: &str) -> Result<(), String> {
    let before = server.refs();
    let finished = bash(fixture, rules, &format!("set -e; {script}"));
    if finished.code == Some(0) {
        return Ok(());
    }
    assert_eq!(server.refs(), before, "{}", finished.stderr);
    Err(finished.stderr)
}

fn updates_are_decided_by_their_kind(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let push = |rules: &[&str], script: &str| push(fixture, &server, rules, script);
    let commit = "git checkout -q -B work origin/main; git commit -q --allow-empty -m";
    assert_eq!(push(&["agent/*"], &format!("{commit} one; git push -q origin HEAD:agent/a")), Ok(()));
    // Another commit beside it is no fast-forward.
    let beside = format!("{commit} beside; git push -q --force origin HEAD:agent/a");
    let refused = push(&["agent/*"], &beside).expect_err("not a fast-forward");
    assert!(refused.contains("sandpen: not a fast-forward: merge first, or allow --push '+agent/a'"), "{refused}");
    assert_eq!(push(&["+agent/*"], &beside), Ok(()));
    assert_eq!(server.subject("agent/a"), "beside");
    let delete = "git push -q origin :agent/a";
    let refused = push(&["+agent/*"], delete).expect_err("no deletion");
    assert!(refused.contains("it needs --push '-agent/a' (allowed: +agent/*)"), "{refused}");
    assert_eq!(push(&["-agent/*"], delete), Ok(()));
    assert_eq!(server.subject("agent/a"), "");
    let tag = "git tag -f v1 >/dev/null; git push -q origin v1";
    assert!(push(&["*", "refs/heads/*"], tag).is_err());
    assert_eq!(push(&["refs/tags/*"], tag), Ok(()));
    let moved = format!("{commit} moved; git tag -f v1 >/dev/null; git push -q --force origin v1");
    assert!(push(&["refs/tags/*"], &moved).is_err());
    let main = format!("{commit} main; git push -q origin HEAD:main");
    assert!(push(&["*", "m*n"], &main).expect_err("the default branch").contains("the default branch needs"));
    assert_eq!(push(&["main"], &main), Ok(()));
    assert_eq!(server.subject("main"), "main");
}

fn all_of_a_push_or_nothing(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let push = |rules: &[&str], script: &str| push(fixture, &server, rules, script);
    assert!(push(&["agent/*"], "git push -q origin HEAD:agent/a HEAD:other").is_err());
    assert!(push(&["agent/*"], "git push -q --atomic origin HEAD:agent/a HEAD:other").is_err());
    assert_eq!(push(&["agent/*"], "git push -q --atomic origin HEAD:agent/a HEAD:agent/b"), Ok(()));
    // One of two is no fast-forward.
    let script = "git commit -q --allow-empty -m next; git push -q origin HEAD:agent/a
        git checkout -q -B work origin/main; git commit -q --allow-empty -m beside; git push -q origin +HEAD:agent/a HEAD:agent/b";
    let finished = bash(fixture, &["agent/*"], &format!("set -e; {script}"));
    assert!(finished.stderr.contains("not a fast-forward"), "{}", finished.stderr);
    assert_eq!([server.subject("agent/a"), server.subject("agent/b")], ["next", "first"]);
}

fn odd_names_are_names(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    for name in ["agent/-x", "agent/a'b", "agent/$(id)", "agent/ü;x", "agent/--force", "agent/@"] {
        let script = format!("git push -q origin 'HEAD:refs/heads/{}'", name.replace('\'', "'\\''"));
        assert_eq!(push(fixture, &server, &["agent/*"], &script), Ok(()), "{name}");
        assert_eq!(server.subject(&format!("refs/heads/{name}")), "first", "{name}");
    }
    assert!(push(fixture, &server, &["agent/*"], "git push -q origin HEAD:refs/agent/x").is_err());
    assert!(push(fixture, &server, &["agent/*"], "git push -q origin HEAD:refs/heads/agentx").is_err());
}

fn options_that_rules_say_nothing_about_are_not_offered(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let push = |script: &str| push(fixture, &server, &["agent/*"], script);
    let refused = push("git push -o ci.skip origin HEAD:agent/a").expect_err("a push option");
    assert!(refused.contains("the receiving end does not support push options"), "{refused}");
    let refused = push("git push --signed origin HEAD:agent/a").expect_err("a signed push");
    assert!(refused.contains("the receiving end does not support --signed push"), "{refused}");
}

fn without_rules_nothing_changes(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let script =
        "ls -d /.sandpen/push /.sandpen/bin; git config --get-regexp 'url.sandpen' ; git push -q origin HEAD:agent/a";
    let before = server.refs();
    let finished = bash(fixture, &[], script);
    assert_eq!((finished.stdout.as_str(), finished.code), ("", Some(128)), "{}", finished.stderr);
    assert_eq!(server.refs(), before);
    let explained = fixture.explain(&[]);
    assert_eq!(explained["push"], serde_json::json!({"rules": [], "remotes": []}));
    let explained = fixture.explain(&["--push", "agent/*", "--push=-agent/*"]);
    assert_eq!(explained["push"], serde_json::json!({"rules": ["agent/*", "-agent/*"], "remotes": [server.url]}));
    fixture.sandpen(["run", "--push", "a:b", "--", "true"]).finish().failure(2);
}
