//! Tests package caches: what a sandbox adds is kept for its project, and nothing else changes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;

use crate::for_every_engine;
use crate::support::{Engine, Fixture, RunToEnd, Running};

for_every_engine!(what_is_added_is_kept_for_the_project, without_caches_nothing_is_kept);

const CACHE: &str = ".npm/_cacache";

fn with_host_cache(fixture: &Fixture) {
    fixture.write(".npm/_cacache/content", "the host's");
    fixture.write(".npm/_logs/log", "not a cache");
    fixture.write(".cargo/registry/cache/crate", "the host's crate");
    fixture.write(".cargo/credentials.toml", "token");
    fixture.write(".m2/settings.xml", "password");
}

fn in_project(fixture: &Fixture, project: &Path, script: &str) -> String {
    let mut command = fixture.run();
    command.current_dir(project).args(["--", "bash", "-c", script]);
    command.finish().success().to_owned()
}

fn what_is_added_is_kept_for_the_project(fixture: &Fixture) {
    with_host_cache(fixture);
    let other = fixture.home.join("other");
    fs::create_dir(&other).expect("directory");
    fixture.give_to_user(&other);
    let add =
        format!("echo added > ~/{CACHE}/added; echo poisoned > ~/{CACHE}/content; rm -rf ~/.cargo/registry/cache");
    in_project(fixture, &fixture.project, &add);
    let see = format!("cat ~/{CACHE}/added ~/{CACHE}/content; ls ~/.cargo/registry");
    assert_eq!(in_project(fixture, &fixture.project, &see), "added\npoisoned");
    // Neither the host nor another project reads it.
    let host = |path: &str| fs::read_to_string(fixture.home.join(path)).expect(path);
    assert_eq!(host(".npm/_cacache/content"), "the host's");
    assert_eq!(host(".cargo/registry/cache/crate"), "the host's crate");
    assert_eq!(fs::read_dir(fixture.home.join(CACHE)).expect("cache").count(), 1);
    let elsewhere = in_project(fixture, &other, &format!("cat ~/{CACHE}/added 2>&-; cat ~/{CACHE}/content 2>&-; true"));
    assert_eq!(elsewhere, if fixture.engine().is_container() { "" } else { "the host's" });
    let removed = fixture.sandpen(["prune", "--cache"]).finish();
    assert!(removed.stderr.contains("package caches of 2 projects removed"), "{}", removed.stderr);
    let after = in_project(fixture, &fixture.project, &format!("ls ~/{CACHE}"));
    assert_eq!(after, if fixture.engine().is_container() { "" } else { "content" });
}

fn without_caches_nothing_is_kept(fixture: &Fixture) {
    with_host_cache(fixture);
    let finished = fixture.run().args(["--cache", "off", "--", "bash", "-c", "ls -A ~ | grep -v project"]).finish();
    assert_eq!(finished.stdout, "");
    assert!(!fixture.home.join(".local/state/sandpen/cache").exists());
    // Only the caches come along, not what is beside them.
    let beside = "cat ~/.npm/_logs/log ~/.cargo/credentials.toml ~/.m2/settings.xml 2>&-; true";
    assert_eq!(fixture.bash(beside).success(), "");
}

fn natively(test: fn(&Fixture)) {
    for engine in [Engine::Native, Engine::NativeRoot] {
        Fixture::on(engine, test);
    }
}

#[test]
fn two_sandboxes_of_a_project_do_not_share_a_layer() {
    natively(|fixture| {
        with_host_cache(fixture);
        let script = format!("echo first > ~/{CACHE}/first; echo ready; cat");
        let mut first = Running::start(fixture.run().stdin(Stdio::piped()).args(["--", "bash", "-c", &script]));
        assert_eq!(first.line(), "ready");
        let script = format!("ls ~/{CACHE}; echo second > ~/{CACHE}/second");
        let second = fixture.run().args(["--verbose", "--", "bash", "-c", &script]).finish();
        assert_eq!(second.success(), "content");
        assert!(second.stderr.contains("what this one adds to package caches is not kept"), "{}", second.stderr);
        let kept = fixture.sandpen(["prune", "--cache"]).finish();
        assert!(kept.stderr.contains("package caches of 0 projects removed"), "{}", kept.stderr);
        first.close_stdin();
        first.finish().success();
        assert_eq!(in_project(fixture, &fixture.project, &format!("ls ~/{CACHE}")), "content\nfirst");
    });
}

#[test]
fn a_cache_that_a_variable_names_is_found() {
    natively(|fixture| {
        fixture.write("tools/cargo/registry/crate", "here");
        fixture.write("tools/cargo/credentials.toml", "token");
        let cargo_home = fixture.home.join("tools/cargo");
        let mut command = fixture.run();
        command.env("CARGO_HOME", &cargo_home);
        let script = "cat $CARGO_HOME/registry/crate; ls $CARGO_HOME";
        assert_eq!(command.args(["--", "bash", "-c", script]).finish().success(), "hereregistry");
    });
}

#[test]
fn a_link_of_the_guest_chooses_no_cache() {
    natively(|fixture| {
        fixture.write("secret/key", "hunter2");
        fixture.write("project/cargo/placeholder", "");
        std::os::unix::fs::symlink(fixture.home.join("secret"), fixture.project.join("cargo/registry")).expect("link");
        let mut command = fixture.run();
        command.env("CARGO_HOME", fixture.project.join("cargo"));
        let finished = command.args(["--", "bash", "-c", "cat cargo/registry/key 2>&-; true"]).finish();
        assert_eq!(finished.success(), "");
    });
}

/// Serves a registry with one package, as npm asks for it.
fn serve_package(tarball: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("address").port();
    let versions = format!(
        r#"{{"1.0.0": {{"name": "small", "version": "1.0.0", "dist": {{"tarball": "http://127.0.0.1:{port}/s.tgz"}}}}}}"#
    );
    let package = format!(r#"{{"name": "small", "dist-tags": {{"latest": "1.0.0"}}, "versions": {versions}}}"#);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (package, tarball) = (package.clone().into_bytes(), tarball.clone());
            // npm also opens connections that it does not use.
            std::thread::spawn(move || answer(&stream, &package, &tarball));
        }
    });
    port
}

fn answer(mut stream: &TcpStream, package: &[u8], tarball: &[u8]) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let body = if request.contains(".tgz") { tarball } else { package };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

#[test]
fn npm_installs_without_a_network_what_it_has_installed_before() {
    if !Path::new("/usr/bin/npm").exists() {
        return crate::support::skip("npm", "there is no /usr/bin/npm");
    }
    Fixture::on(Engine::Native, |fixture| {
        fixture.write(".npm/_cacache/placeholder", "");
        let package = fixture.outside("package");
        fs::write(package.join("package.json"), r#"{"name": "small", "version": "1.0.0", "main": "index.js"}"#)
            .expect("json");
        fs::write(package.join("index.js"), "module.exports = 42").expect("js");
        let tarball =
            std::process::Command::new("tar").args(["-czf", "-", "-C"]).arg(&fixture.root).arg("package").output();
        let port = serve_package(tarball.expect("tar").stdout);
        fixture.write(
            "project/package.json",
            r#"{"name": "app", "version": "1.0.0", "dependencies": {"small": "1.0.0"}}"#,
        );
        fixture.write(
            "project/.npmrc",
            &format!("registry=http://127.0.0.1:{port}/\naudit=false\nfund=false\nupdate-notifier=false\n"),
        );
        fixture.bash("npm install 2>&1 && rm -r node_modules").success();
        let script = "npm ci --prefer-offline 2>&1 > /dev/null && node -p 'require(\"small\")'";
        let finished = fixture.run().args(["--network", "off", "--", "bash", "-c", script]).finish();
        assert_eq!(finished.success(), "42");
        // The host has nothing of it, nor has a sandbox without the cache.
        assert_eq!(fs::read_dir(fixture.home.join(CACHE)).expect("cache").count(), 1);
        let cold =
            fixture.run().args(["--network", "off", "--cache", "off", "--", "bash", "-c", "npm ci --offline"]).finish();
        assert_ne!(cold.code, Some(0));
    });
}
