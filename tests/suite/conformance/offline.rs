//! Tests that npm, cargo and pip install without a network what a sandbox has installed before. Their
//! registries are played on loopback.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::for_every_engine;
use crate::support::{Engine, Finished, Fixture, RunToEnd};

for_every_engine!(what_pip_has_cached_is_served_without_a_network);

/// What a registry answers to a request for a path that ends so.
type Answers = Vec<(String, Vec<u8>)>;

/// Serves a registry; returns its port. `answers` learns the port.
fn serve(answers: impl FnOnce(u16) -> Answers) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("address").port();
    let answers = Arc::new(answers(port));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = answers.clone();
            // npm also opens connections that it does not use.
            std::thread::spawn(move || answer(&stream, &answers));
        }
    });
    port
}

fn answer(mut stream: &TcpStream, answers: &Answers) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let found = answers.iter().find(|(end, _)| path.ends_with(end.as_str()));
    let (status, body) = found.map_or(("404 Not Found", &[][..]), |(_, body)| ("200 OK", body));
    let kind = if path.ends_with('/') { "text/html" } else { "application/octet-stream" };
    let head = format!(
        "HTTP/1.1 {status}\r\ndate: {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\ncache-control: max-age=31536000\r\nconnection: close\r\n\r\n",
        now(),
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// Returns the time as HTTP writes it. Without it pip does not know how old a response is.
fn now() -> String {
    let mut date = Command::new("date");
    let output = date.env("LC_ALL", "C").args(["-u", "+%a, %d %b %Y %H:%M:%S GMT"]).output();
    String::from_utf8_lossy(&output.expect("date").stdout).trim().to_owned()
}

/// Packs a directory of the fixture's root.
fn tarball(fixture: &Fixture, directory: &str) -> Vec<u8> {
    let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(&fixture.root).arg(directory).output();
    packed.expect("tar").stdout
}

fn without_network(command: &mut Command, script: &str) -> Finished {
    command.args(["--network", "off", "--", "bash", "-ec", script]).finish()
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
        let port = serve(|port| {
            let tarball_url = format!("http://127.0.0.1:{port}/s.tgz");
            let version = format!(r#"{{"name": "small", "version": "1.0.0", "dist": {{"tarball": "{tarball_url}"}}}}"#);
            let package = format!(
                r#"{{"name": "small", "dist-tags": {{"latest": "1.0.0"}}, "versions": {{"1.0.0": {version}}}}}"#
            );
            vec![("/s.tgz".into(), tarball(fixture, "package")), ("/small".into(), package.into_bytes())]
        });
        fixture.write(
            "project/package.json",
            r#"{"name": "app", "version": "1.0.0", "dependencies": {"small": "1.0.0"}}"#,
        );
        fixture.write(
            "project/.npmrc",
            &format!("registry=http://127.0.0.1:{port}/\naudit=false\nfund=false\nupdate-notifier=false\n"),
        );
        fixture.bash("npm install 2>&1 && rm -r node_modules").success();
        let install = "npm ci --prefer-offline 2>&1 > /dev/null; node -p 'require(\"small\")'";
        assert_eq!(without_network(&mut fixture.run(), install).success(), "42");
        // The host has nothing of it, nor has a sandbox without the cache.
        assert_eq!(fs::read_dir(fixture.home.join(".npm/_cacache")).expect("cache").count(), 1);
        let cold = without_network(fixture.run().args(["--cache", "off"]), "npm ci --offline");
        assert_ne!(cold.code, Some(0));
    });
}

#[test]
fn cargo_builds_without_a_network_what_it_has_built_before() {
    // `cargo test` names the cargo of a toolchain; the ordinary test user may not be able to read it.
    let Some(toolchain) =
        std::env::var("CARGO").ok().and_then(|cargo| Some(Path::new(&cargo).parent()?.parent()?.to_owned()))
    else {
        return crate::support::skip("cargo", "the variable CARGO is not set");
    };
    Fixture::on(Engine::NativeRoot, |fixture| {
        fixture.write(".cargo/registry/placeholder", "");
        let package = fixture.outside("small-1.0.0");
        fs::create_dir(package.join("src")).expect("directory");
        fs::write(package.join("Cargo.toml"), "[package]\nname = \"small\"\nversion = \"1.0.0\"\nedition = \"2021\"\n")
            .expect("manifest");
        fs::write(package.join("src/lib.rs"), "pub fn text() -> &'static str { \"from a registry\" }\n")
            .expect("source");
        let archive = tarball(fixture, "small-1.0.0");
        let sum: String = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
        let port = serve(|port| {
            let entry = format!(
                r#"{{"name":"small","vers":"1.0.0","deps":[],"cksum":"{sum}","features":{{}},"yanked":false}}"#
            );
            vec![
                ("/config.json".into(), format!(r#"{{"dl":"http://127.0.0.1:{port}/dl"}}"#).into_bytes()),
                ("/sm/al/small".into(), entry.into_bytes()),
                ("/dl/small/1.0.0/download".into(), archive),
            ]
        });
        let sources = format!(
            "[source.crates-io]\nreplace-with = \"local\"\n[source.local]\nregistry = \"sparse+http://127.0.0.1:{port}/\"\n"
        );
        fixture.write("project/.cargo/config.toml", &sources);
        fixture.write(
            "project/Cargo.toml",
            "[package]\nname = \"app\"\nedition = \"2021\"\n[dependencies]\nsmall = \"1\"\n",
        );
        fixture.write("project/src/main.rs", "fn main() { println!(\"{}\", small::text()) }\n");
        let run = || {
            let mut run = fixture.run();
            run.arg("--mount").arg(&toolchain);
            run.args(["--env", &format!("PATH={}/bin:/usr/bin:/bin", toolchain.display())]);
            run
        };
        run().args(["--", "bash", "-ec", "cargo run --quiet; rm -r target"]).finish().success();
        assert_eq!(without_network(&mut run(), "cargo run --quiet; rm -r target").success(), "from a registry");
        assert_eq!(fs::read_dir(fixture.home.join(".cargo/registry")).expect("cache").count(), 1);
        let cold = without_network(run().args(["--cache", "off"]), "cargo build --quiet");
        assert_ne!(cold.code, Some(0));
    });
}

/// Makes a wheel, an archive with a list of its files.
const MAKE_WHEEL: &str = r#"
import sys, zipfile
info = 'tiny-1.0.dist-info/'
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('tiny.py', 'print("tiny works")\n')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(info + 'RECORD', 'tiny.py,,\n' + ''.join(info + name + ',,\n' for name in ('METADATA', 'WHEEL', 'RECORD')))
"#;

#[test]
fn pip_installs_without_a_network_what_it_has_installed_before() {
    Fixture::on(Engine::Native, |fixture| {
        fixture.write(".cache/pip/placeholder", "");
        let wheel = fixture.outside("wheels").join("tiny-1.0-py3-none-any.whl");
        let made = Command::new("python3").args(["-c", MAKE_WHEEL]).arg(&wheel).output().expect("python3");
        assert!(made.status.success(), "{made:?}");
        let page = "<a href='/tiny-1.0-py3-none-any.whl'>tiny-1.0-py3-none-any.whl</a>";
        let port =
            serve(|_| vec![(".whl".into(), fs::read(&wheel).expect("wheel")), ("/simple/tiny/".into(), page.into())]);
        // pip caches no plain HTTP, except of trusted hosts.
        let index =
            format!("[global]\nindex-url = http://127.0.0.1:{port}/simple/\ntrusted-host = 127.0.0.1\nretries = 0\n");
        fixture.write("project/pip.conf", &index);
        fixture.bash("python3 -m venv .venv && mv pip.conf .venv").success();
        let install = ".venv/bin/pip install --quiet --disable-pip-version-check Tiny; .venv/bin/python -m tiny
            .venv/bin/pip uninstall --quiet --yes tiny";
        assert_eq!(fixture.bash(install).success(), "tiny works");
        assert_eq!(without_network(&mut fixture.run(), install).success(), "tiny works");
        assert_eq!(fs::read_dir(fixture.home.join(".cache/pip")).expect("cache").count(), 1);
        let cold = without_network(fixture.run().args(["--cache", "off"]), install);
        assert_ne!(cold.code, Some(0));
        // An index that the user names is asked.
        let other = without_network(fixture.run().args(["--env", "PIP_INDEX_URL=http://127.0.0.1:9/"]), install);
        assert_ne!(other.code, Some(0));
    });
}

/// Asks for a path of the index inside.
const GET: &str = r#"get() { exec 3<>/dev/tcp/127.0.0.1/8878; printf 'GET %s HTTP/1.1\r\n\r\n' "$1" >&3; cat <&3; }"#;

fn what_pip_has_cached_is_served_without_a_network(fixture: &Fixture) {
    fixture.write(".cache/pip/wheels/aa/bb/Tiny-1.0-py3-none-any.whl", "the content");
    fixture.write(".cache/pip/wheels/aa/secret", "no distribution");
    let ask = |script: &str| without_network(&mut fixture.run(), &format!("{GET}; {script}"));
    let file = "/file/wheels/aa/bb/Tiny-1.0-py3-none-any.whl/Tiny-1.0-py3-none-any.whl";
    let page = ask("get /simple/tiny/");
    assert!(page.stdout.contains(&format!("<a href=\"{file}\">Tiny-1.0-py3-none-any.whl</a>")), "{page:?}");
    assert!(ask(&format!("get {file}")).success().ends_with("the content"));
    for path in ["/simple/other/", "/file/wheels/aa/secret", "/file/../../etc/passwd", "/file//etc/passwd", "/"] {
        let answer = ask(&format!("get {path}"));
        assert!(answer.success().starts_with("HTTP/1.1 404 "), "{path}: {answer:?}");
    }
    // With a network pip's own index is asked, and nothing listens.
    let open = fixture.bash("(exec 3<>/dev/tcp/127.0.0.1/8878) 2>&- || echo closed; echo $PIP_INDEX_URL");
    assert_eq!(open.success(), "closed");
}
