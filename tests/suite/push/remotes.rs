//! Attack 29: only the user's own remotes are reached, however a guest spells them.

use super::server::{GitServer, bash, make_repository};
use crate::for_docker_and_native;
use crate::support::{Fixture, RunToEnd};

for_docker_and_native!(
    attack_29_a_remote_of_an_earlier_sandbox_is_left_out,
    attack_29_another_repository_is_not_reached_by_a_prefix,
    attack_29_urls_are_rewritten_as_outside,
);

fn attack_29_a_remote_of_an_earlier_sandbox_is_left_out(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let other = make_repository(&server.fixture, "other.git");
    let url = server.url.replace("/app.git", "/other.git");
    // A name that sorts first must not help, nor a second remote with the URL of the first.
    let script = format!("set -e; git remote add a {url}; git remote add z {url}; git remote add same {}", server.url);
    bash(fixture, &["agent/*"], &script).success();
    let host = |key: &str| fixture.host_command("git").args(["config", key]).finish().stdout.trim().to_owned();
    assert_eq!(host("remote.a.url"), url, "the remote comes out");
    assert_ne!(host("remote.a.sandpen"), "", "with a mark");
    let before = super::server::ref_files(&other);
    let script =
        "for remote in a z; do git push -q $remote HEAD:agent/x && echo pushed; done; git ls-remote same | wc -l";
    let finished = bash(fixture, &["agent/*"], script);
    assert_eq!(finished.success(), "2", "{}", finished.stderr);
    assert_eq!(super::server::ref_files(&other), before);
    let accept = "the remote `a` was added by a sandbox, so flag --push leaves it out. \
                  Accept it: `git config --unset remote.a.sandpen`";
    assert!(finished.stderr.contains(accept), "{}", finished.stderr);
    assert_eq!(fixture.explain(&["--push", "agent/*"])["push"]["remotes"], serde_json::json!([server.url]));
    // The guest cannot remove the mark.
    bash(fixture, &["agent/*"], "git config --unset remote.a.sandpen").success();
    assert_ne!(host("remote.a.sandpen"), "");
    // The user can.
    fixture.host_command("git").args(["config", "--unset", "remote.a.sandpen"]).finish().success();
    bash(fixture, &["agent/*"], "git push -q a HEAD:agent/x").success();
    assert_ne!(super::server::ref_files(&other), before);
}

fn attack_29_another_repository_is_not_reached_by_a_prefix(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let secret = make_repository(&server.fixture, "app.git-secret");
    let before = super::server::ref_files(&secret);
    let script = format!(
        "for url in {0}-secret {0}/../app.git-secret sandpen::0-secret sandpen::1 sandpen::00 sandpen::-1 'sandpen::0 0'; do
            git ls-remote \"$url\" && echo reached; git push \"$url\" HEAD:agent/x && echo pushed; done; true",
        server.url
    );
    let finished = bash(fixture, &["agent/*"], &script);
    assert_eq!(finished.success(), "", "{}", finished.stderr);
    assert!(finished.stderr.contains("only the exact URL of a remote of this repository"), "{}", finished.stderr);
    assert!(finished.stderr.contains("no such service or remote"), "{}", finished.stderr);
    assert_eq!(super::server::ref_files(&secret), before);
}

fn attack_29_urls_are_rewritten_as_outside(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let (start, name) = server.url.rsplit_once('/').expect("a URL");
    let set = |arguments: &[&str]| fixture.host_command("git").arg("config").args(arguments).finish().success().len();
    set(&["--global", &format!("url.{start}/.insteadOf"), "short:"]);
    set(&["remote.origin.url", &format!("short:{name}")]);
    let finished = bash(fixture, &["agent/*"], "git push -q origin HEAD:agent/x");
    assert_eq!(finished.success(), "", "{}", finished.stderr);
    assert_eq!(server.subject("agent/x"), "first");
}
