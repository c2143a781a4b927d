//! Some networks require a proxy: the host's proxy variables and certificates work inside.

use crate::for_every_engine;
use crate::support::{Fixture, RunToEnd};

for_every_engine!(
    the_hosts_proxy_and_certificates_arrive,
    a_proxy_on_the_hosts_loopback_is_found_inside,
    without_a_network_there_is_no_proxy,
);

const SHOW: &str = "env | grep -iE 'proxy|cert' | LC_ALL=C sort; cat \"$SSL_CERT_FILE\" 2>/dev/null || true";

fn the_hosts_proxy_and_certificates_arrive(fixture: &Fixture) {
    let bundle = fixture.outside("certificates").join("bundle.pem");
    std::fs::write(&bundle, "a certificate\n").expect("written");
    let mut command = fixture.run();
    command.envs([
        ("HTTPS_PROXY", "http://proxy:3128"),
        ("all_proxy", "socks5h://proxy:1080"),
        ("NO_PROXY", "intranet"),
    ]);
    command.env("http_proxy", "http://me:hunter2@proxy:3128").env("SSL_CERT_FILE", &bundle);
    let finished = command.env("CURL_CA_BUNDLE", "/nonexistent/x").args(["--", "bash", "-c", SHOW]).finish();
    let expected = format!(
        "HTTPS_PROXY=http://proxy:3128\nNO_PROXY=intranet\nSSL_CERT_FILE={}\nall_proxy=socks5h://proxy:1080\nhttp_proxy=http://me:hunter2@proxy:3128\na certificate",
        bundle.display()
    );
    assert_eq!(finished.success(), expected);
    assert_eq!(
        finished.stderr,
        "sandpen: warning: env CURL_CA_BUNDLE: `/nonexistent/x` does not exist, so it is not set inside\n"
    );
    // A login is a secret.
    let shown = fixture
        .sandpen(["explain", "--engine", fixture.engine().flag()])
        .env("http_proxy", "http://me:hunter2@proxy:3128")
        .finish();
    assert!(!shown.success().contains("hunter2") && shown.stdout.contains("http_proxy"), "{}", shown.stdout);
}

fn a_proxy_on_the_hosts_loopback_is_found_inside(fixture: &Fixture) {
    let finished = fixture
        .run()
        .env("HTTP_PROXY", "http://127.0.0.1:3128/x")
        .args(["--", "bash", "-c", "echo $HTTP_PROXY; cat /etc/hosts"])
        .finish();
    let name = match (fixture.engine().is_container(), fixture.engine().flag()) {
        (false, _) => "127.0.0.1",
        (true, "podman") => "host.containers.internal",
        _ => "host.docker.internal",
    };
    assert!(finished.success().starts_with(&format!("http://{name}:3128/x\n")), "{}", finished.stdout);
    assert_eq!(
        finished.stderr.contains("must also listen on the engine's bridge"),
        fixture.engine().is_container(),
        "{}",
        finished.stderr
    );
    assert!(
        finished.stdout.lines().skip(1).any(|line| line.contains(name)),
        "/etc/hosts must contain the name: {}",
        finished.stdout
    );
}

fn without_a_network_there_is_no_proxy(fixture: &Fixture) {
    let mut command = fixture.run();
    command.env("HTTP_PROXY", "http://proxy:3128").args(["--network", "off"]);
    assert_eq!(command.args(["--", "bash", "-c", SHOW]).finish().success(), "");
    let finished = fixture.run().env("HTTP_PROXY", "http://proxy:port").args(["--", "true"]).finish();
    finished.failure(2);
    assert!(
        finished.stderr.contains("env HTTP_PROXY: `http://proxy:port` is not the address of a proxy"),
        "{}",
        finished.stderr
    );
}
