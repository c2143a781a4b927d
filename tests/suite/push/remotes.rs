//! Attack 29: only the user's own remotes are reached, however a guest spells them.

use super::http_server::HttpServer;
use super::server::{GitServer, bash, make_repository};
use crate::for_docker_and_native;
use crate::support::{Fixture, RunToEnd};

for_docker_and_native!(
    attack_29_a_remote_of_an_earlier_sandbox_is_left_out,
    attack_29_another_repository_is_not_reached_by_a_prefix,
    attack_29_urls_are_rewritten_as_outside,
    attack_29_programs_and_files_of_the_guest_are_not_used,
    attack_29_nothing_is_verified_with_objects_that_the_guest_can_write,
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

/// The user's own settings name files in the project, which the guest can change.
fn attack_29_programs_and_files_of_the_guest_are_not_used(fixture: &Fixture) {
    let server = HttpServer::start(fixture);
    let script = format!(
        "#!/bin/sh\ntouch '{}'\necho username=me; echo password=secret\n",
        fixture.root.join("client/run").display()
    );
    let helper = fixture.write_script(fixture.project.join("helper"), &script);
    fixture.write(".gitconfig", &super::server::gitconfig(&format!("[credential]\n\thelper = {}\n", helper.display())));
    let finished =
        bash(fixture, &["agent/*"], "git fetch -q || echo failed; git push -q origin HEAD:agent/a || echo failed");
    assert_eq!(finished.success(), "failed\nfailed", "{}", finished.stderr);
    let warning = "does not use `credential.helper`, which names a file that the sandbox can write";
    assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    assert!(!fixture.root.join("client/run").exists(), "the guest's program ran on the host");
    assert_eq!(server.subject("agent/a"), "");
    let url = format!("ssh://me@127.0.0.1:{}/app.git", 1);
    fixture.host_command("git").args(["remote", "set-url", "origin", &url]).finish().success();
    let command = format!("[core]\n\tsshCommand = ssh -F {}/config\n", fixture.project.display());
    fixture.write(".gitconfig", &super::server::gitconfig(&command));
    let finished = bash(fixture, &["agent/*"], "git fetch -q || echo failed");
    let reason = "core.sshCommand on the host names a file that the sandbox can write";
    assert!(finished.success() == "failed" && finished.stderr.contains(reason), "{}", finished.stderr);
    // ssh would run a command that the guest writes into an included file.
    fixture.write(".gitconfig", &super::server::gitconfig(""));
    fixture.write(".ssh/config", &format!("Include {}/ssh_*\n", fixture.project.display()));
    let program = format!("ProxyCommand touch {}", fixture.root.join("client/run").display());
    let script = "echo \"$1\" > ssh_config; git fetch -q || echo failed";
    let mut command = fixture.run();
    let finished = command.args(["--push", "agent/*", "--", "bash", "-c", script, "bash", &program]).finish();
    assert_eq!(finished.success(), "failed", "{}", finished.stderr);
    let reason = format!("ssh on the host reads `{}/ssh_*`, which the sandbox can write", fixture.project.display());
    assert!(finished.stderr.contains(&reason), "{}", finished.stderr);
    assert!(!fixture.root.join("client/run").exists(), "the guest's program ran on the host");
}

/// With the host's own Git directory, the guest could make a commit have other parents.
fn attack_29_nothing_is_verified_with_objects_that_the_guest_can_write(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    server.git(&["branch", "agent/a", "main"]).success();
    let before = server.refs();
    let script = "git fetch -q; git commit -q --allow-empty -m next; git push -q origin HEAD:agent/a";
    let run = |rule: &str| {
        let mut command = fixture.run();
        command.args(["--git", "shared", "--push", rule, "--", "bash", "-c", script]).finish()
    };
    let finished = run("agent/*");
    let reason = "sandpen: fast-forwards are not verified with --git shared: allow --push '+agent/a'";
    assert!(finished.stderr.contains(reason), "{}", finished.stderr);
    assert_eq!(server.refs(), before);
    run("+agent/*").success();
    assert_eq!(server.subject("agent/a"), "next");
}
