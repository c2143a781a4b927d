//! Fetches and pushes over HTTP, with the login of the host's credential helper.

use super::http_server::HttpServer;
use super::server::{bash, ref_files};
use crate::support::{Fixture, RunToEnd, command_lines};
use crate::{for_docker_and_native, for_every_engine};

for_every_engine!(http_fetches_and_pushes_with_the_hosts_login,);
for_docker_and_native!(
    http_pushes_are_decided_by_rules,
    http_needs_curl_for_pushes_only,
    http_logins_that_fail_are_said,
    http_logins_of_urls_reach_no_program_inside_or_outside,
    https_is_verified_with_the_hosts_authorities,
);

fn http_fetches_and_pushes_with_the_hosts_login(fixture: &Fixture) {
    let server = HttpServer::start(fixture);
    let script = format!(
        "set -e; git ls-remote -q origin main | cut -f 2; git fetch -q; git -c protocol.version=0 fetch -q
        git clone -q {} /tmp/clone; git -C /tmp/clone log -1 --format=%s
        git checkout -q -b agent/a; git push -q origin agent/a
        git commit -q --allow-empty -m forward; git push -q origin agent/a; git fetch -q origin agent/a
        if env | grep -qi secret; then echo leaked; fi",
        server.url
    );
    let finished = bash(fixture, &["agent/*"], &script);
    assert_eq!(finished.success(), "refs/heads/main\nfirst", "{}", finished.stderr);
    assert_eq!(server.subject("agent/a"), "forward");
    let log = std::fs::read_to_string(fixture.root.join("client/helper.log")).expect("the helper's log");
    assert!(log.contains("store") && !log.contains("erase"), "{log}");
    assert!(!command_lines().iter().any(|line| line.contains("me:secret")));
}

fn http_pushes_are_decided_by_rules(fixture: &Fixture) {
    let server = HttpServer::start(fixture);
    let before = ref_files(&server.repository);
    let posts = || {
        let requests = server.requests.lock().expect("requests");
        requests.iter().filter(|line| line.starts_with("POST") && line.contains("receive-pack")).count()
    };
    for (script, reason) in [
        ("git push -q origin HEAD:main", "the default branch needs"),
        ("git push -q origin HEAD:other", "it needs --push 'other'"),
        ("git push -q origin HEAD:agent/a HEAD:other", "another ref was refused"),
        ("git push -q origin HEAD:refs/tags/v1", "it needs --push 'refs/tags/v1'"),
        ("git push -q -o x origin HEAD:agent/a", "does not support push options"),
    ] {
        let finished = bash(fixture, &["agent/*", "m*"], &format!("git commit -q --allow-empty -m new; {script}"));
        assert_ne!(finished.code, Some(0), "{script}");
        assert!(finished.stderr.contains(reason), "{script}: {}", finished.stderr);
        assert_eq!(ref_files(&server.repository), before, "{script}");
    }
    assert_eq!(posts(), 0, "nothing of a refused push is sent");
    let script = "set -e; git push -q origin HEAD:agent/a; git checkout -q -B work HEAD~1; git commit -q --allow-empty -m beside; git push -q --force origin HEAD:agent/a";
    let finished = bash(fixture, &["agent/*"], script);
    assert!(finished.stderr.contains("not a fast-forward"), "{}", finished.stderr);
    assert_ne!(server.subject("agent/a"), "beside");
    bash(fixture, &["+agent/*"], "git push -q --force origin work:agent/a").success();
    assert_eq!(server.subject("agent/a"), "beside");
    bash(fixture, &["-agent/*"], "git push -q origin :agent/a").success();
    assert_eq!(server.subject("agent/a"), "");
}

fn http_needs_curl_for_pushes_only(fixture: &Fixture) {
    let server = HttpServer::start(fixture);
    let bin = fixture.outside("without-curl");
    for name in ["bash", "docker", "git", "ls", "podman", "sh", "ssh", "cat", "env", "true"] {
        let found = ["/usr/local/bin", "/usr/bin", "/bin"].map(|directory| std::path::Path::new(directory).join(name));
        if let Some(program) = found.iter().find(|path| path.exists()) {
            std::os::unix::fs::symlink(program, bin.join(name)).expect("a link");
        }
    }
    let script = "git fetch -q && echo fetched; git push -q origin HEAD:agent/a";
    let mut command = fixture.run();
    command.env("PATH", &bin).args(["--push", "agent/*", "--", "/bin/bash", "-c", script]);
    let finished = command.finish();
    assert!(
        finished.stderr.contains("pushes over HTTPS need `curl` on the host, which has none"),
        "{}",
        finished.stderr
    );
    assert_eq!(finished.stdout, "fetched\n", "{}", finished.stderr);
    assert_eq!(server.subject("agent/a"), "");
}

fn http_logins_that_fail_are_said(fixture: &Fixture) {
    let server = HttpServer::start(fixture);
    let helper = "#!/bin/sh\necho \"$1\" >>\"$0.log\"; echo username=me; echo password=wrong\n";
    fixture.write_script("../client/helper", helper);
    let finished = bash(fixture, &["agent/*"], "git push -q origin HEAD:agent/a; git fetch -q");
    assert!(
        finished.stderr.contains("the server does not accept the login of the host for http://127.0.0.1"),
        "{}",
        finished.stderr
    );
    assert_ne!(finished.code, Some(0));
    let log = std::fs::read_to_string(fixture.root.join("client/helper.log")).expect("the helper's log");
    assert!(log.contains("erase"), "{log}");
    assert_eq!(server.subject("agent/a"), "");
}

/// The password contains what a shell would expand.
fn http_logins_of_urls_reach_no_program_inside_or_outside(fixture: &Fixture) {
    let server = HttpServer::start_with(fixture, "$(touch x)'\"; `id`");
    let url = server.url.replace("//", "//me:%24%28touch%20x%29%27%22%3B%20%60id%60@");
    fixture.host_command("git").args(["remote", "set-url", "origin", &url]).finish().success();
    let helper = fixture.root.join("client/helper.log");
    std::fs::remove_file(&helper).expect("the helper's log");
    let script = "set -e; git fetch -q; git push -q origin HEAD:agent/a; git ls-remote -q origin agent/a | cut -f 2";
    let finished = bash(fixture, &["agent/*"], script);
    assert_eq!(finished.success(), "refs/heads/agent/a", "{}", finished.stderr);
    assert_eq!(server.subject("agent/a"), "first");
    assert!(!helper.exists(), "a credential helper was asked");
    assert!(!fixture.project.join("x").exists());
}

fn https_is_verified_with_the_hosts_authorities(fixture: &Fixture) {
    let server = HttpServer::start(fixture);
    let tls = server.with_tls();
    let config = std::fs::read_to_string(fixture.home.join(".gitconfig")).expect("the configuration");
    fixture.host_command("git").args(["remote", "set-url", "origin", &tls.url]).finish().success();
    let script = "git fetch -q && echo fetched; git push -q origin origin/main:refs/heads/agent/a && echo pushed
        git commit -q --allow-empty -m new; git push -q origin HEAD:main || echo refused";
    // The host does not know the authority.
    let finished = bash(fixture, &["agent/*"], script);
    assert_eq!(finished.success(), "refused", "{}", finished.stderr);
    assert!(finished.stderr.contains("certificate"), "{}", finished.stderr);
    assert_eq!(server.subject("agent/a"), "");
    fixture.write(".gitconfig", &format!("{config}[http]\n\tsslCAInfo = {}\n", tls.authority.display()));
    let finished = bash(fixture, &["agent/*"], script);
    assert_eq!(finished.success(), "fetched\npushed\nrefused", "{}", finished.stderr);
    assert_eq!((server.subject("agent/a").as_str(), server.subject("main").as_str()), ("first", "first"));
    // Git's variable is as good as its setting.
    fixture.write(".gitconfig", &config);
    let mut command = fixture.run();
    command.env("GIT_SSL_CAINFO", &tls.authority).args(["--push", "agent/*", "--", "bash", "-c", script]);
    assert!(command.finish().stdout.starts_with("fetched"));
    fixture.write(".gitconfig", &format!("{config}[http]\n\tsslCAInfo = {}\n", tls.authority.display()));
    let clone = format!("git clone -q {} /tmp/clone && git -C /tmp/clone log -1 --format=%s", tls.url);
    assert_eq!(bash(fixture, &["agent/*"], &clone).success(), "first");
}
