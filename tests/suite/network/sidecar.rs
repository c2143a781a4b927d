//! For engines in a virtual machine, as on macOS, the proxy runs in a second container, and passes
//! its socket to the guest through a volume. The tests use the engines of this machine with
//! `--assume-host macos`.

use std::path::PathBuf;
use std::process::Command;

use super::server::ASK;
use crate::for_every_container_engine;
use crate::support::{Fixture, IMAGE, RunToEnd, Running, binary, eventually, install_program};

for_every_container_engine!(
    the_proxy_is_a_container_of_its_own,
    a_proxy_command_is_in_that_container,
    prune_removes_what_a_kill_left
);

/// Installs sandpen with the Linux helper beside it and returns its path.
fn installed(fixture: &Fixture) -> PathBuf {
    let directory = fixture.outside("bin");
    for name in ["sandpen", "sandpen-linux-amd64", "sandpen-linux-arm64"] {
        if !directory.join(name).exists() {
            install_program(binary(), directory.join(name));
        }
    }
    directory.join("sandpen")
}

fn run(fixture: &Fixture) -> Command {
    let mut command = fixture.host_command(installed(fixture));
    command.args(["run", "--assume-host", "macos", "--engine", fixture.engine().flag(), "--image", IMAGE]);
    command
}

fn volumes(fixture: &Fixture) -> Vec<String> {
    let finished = fixture.client().args(["volume", "ls", "--format", "{{.Name}}"]).finish();
    finished.success().lines().filter(|name| name.starts_with("sandpen-")).map(str::to_owned).collect()
}

/// Returns whether the volume and the containers of this test are removed.
fn is_gone(fixture: &Fixture, name: &str) -> bool {
    !volumes(fixture).iter().any(|volume| volume == name) && fixture.containers().is_empty()
}

fn the_proxy_is_a_container_of_its_own(fixture: &Fixture) {
    let script = format!(
        "{ASK} ls /sys/class/net; echo $SANDBOX; connect evil.example:443 | head -1; connect 127.0.0.1:9 | head -1"
    );
    let finished = run(fixture).args(["-v", "--allow-host", "127.0.0.1:9", "--", "bash", "-c", &script]).finish();
    let lines: Vec<&str> = finished.success().lines().collect();
    assert_eq!(lines[0], "lo", "{}", finished.stdout);
    assert!(
        lines[2].starts_with("HTTP/1.1 403 sandpen: evil.example:443: the host is not allowed"),
        "{}",
        finished.stdout
    );
    // The listed host does not answer, and the status shows that the proxy tried to connect.
    assert!(lines[3].starts_with("HTTP/1.1 502 sandpen: 127.0.0.1:9: failed to connect"), "{}", finished.stdout);
    assert!(finished.stderr.contains("sandpen: proxy: refused evil.example:443: "), "{}", finished.stderr);
    assert!(finished.stderr.contains("the proxy refused connections to evil.example:443 (1)"), "{}", finished.stderr);
    assert!(is_gone(fixture, lines[1]), "{:?} {:?}", volumes(fixture), fixture.containers());
}

fn a_proxy_command_is_in_that_container(fixture: &Fixture) {
    let proxy = r#"socat TCP-LISTEN:8877,fork,reuseaddr SYSTEM:"read x; echo from the proxy""#;
    let finished = run(fixture)
        .args(["--proxy-command", proxy, "--", "bash", "-c", &format!("{ASK} echo $SANDBOX; ask 'hello\\n'")])
        .finish();
    let (name, answer) = finished.success().split_once('\n').expect("two lines");
    assert_eq!(answer, "from the proxy", "{}", finished.stderr);
    assert!(is_gone(fixture, name), "{:?} {:?}", volumes(fixture), fixture.containers());
}

fn prune_removes_what_a_kill_left(fixture: &Fixture) {
    let mut running = Running::start(run(fixture).args([
        "--allow-host",
        "example.org",
        "--",
        "bash",
        "-c",
        "echo $SANDBOX; sleep 300",
    ]));
    let name = running.line();
    // `prune` skips the session until its launcher has exited.
    running.kill_alone();
    fixture.host_command(installed(fixture)).args(["prune"]).finish().success();
    eventually("nothing is left in the engine", || is_gone(fixture, &name));
    assert!(fixture.sessions().is_empty(), "{:?}", fixture.sessions());
}
