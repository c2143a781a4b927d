//! Engines in a virtual machine, as on macOS: the proxy is a container of its own, and the guest's port changes hands in a volume.
//! Played on the engines of this machine with `--assume-host macos`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::server::ASK;
use crate::for_every_container_engine;
use crate::support::{IMAGE, Pen, RunToEnd, Running, binary, eventually};

for_every_container_engine!(
    the_proxy_is_a_container_of_its_own,
    a_proxy_command_is_in_that_container,
    what_a_kill_leaves_is_pruned
);

/// sandpen with the Linux helper beside it.
fn installed(pen: &Pen) -> PathBuf {
    let directory = pen.outside("bin");
    for name in ["sandpen", "sandpen-linux-amd64", "sandpen-linux-arm64"] {
        if directory.join(name).exists() {
            continue;
        }
        fs::copy(binary(), directory.join(name)).expect("copied");
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    directory.join("sandpen")
}

fn run(pen: &Pen) -> Command {
    let mut command = pen.host_command(installed(pen));
    command.args(["run", "--assume-host", "macos", "--engine", pen.engine.flag(), "--image", IMAGE]);
    command
}

fn volumes(pen: &Pen) -> Vec<String> {
    let ran = pen.client().args(["volume", "ls", "--format", "{{.Name}}"]).ran();
    ran.ok().lines().filter(|name| name.starts_with("sandpen-")).map(str::to_owned).collect()
}

/// The volume that belongs to a sandbox of this test.
fn is_gone(pen: &Pen, name: &str) -> bool {
    !volumes(pen).iter().any(|volume| volume == name) && pen.containers().is_empty()
}

fn the_proxy_is_a_container_of_its_own(pen: &Pen) {
    let script = format!(
        "{ASK} ls /sys/class/net; echo $SANDBOX; connect evil.example:443 | head -1; connect 127.0.0.1:9 | head -1"
    );
    let ran = run(pen).args(["-v", "--allow-host", "127.0.0.1:9", "--", "bash", "-c", &script]).ran();
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert_eq!(lines[0], "lo", "{}", ran.stdout);
    assert!(lines[2].starts_with("HTTP/1.1 403 sandpen: evil.example:443: the host is not allowed"), "{}", ran.stdout);
    // Listed, and nobody is there: the proxy itself has tried.
    assert!(lines[3].starts_with("HTTP/1.1 502 sandpen: 127.0.0.1:9: it cannot be reached"), "{}", ran.stdout);
    assert!(ran.stderr.contains("sandpen: proxy: refused evil.example:443: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("the proxy refused connections to evil.example:443 (1)"), "{}", ran.stderr);
    assert!(is_gone(pen, lines[1]), "{:?} {:?}", volumes(pen), pen.containers());
}

fn a_proxy_command_is_in_that_container(pen: &Pen) {
    let proxy = r#"socat TCP-LISTEN:8877,fork,reuseaddr SYSTEM:"read x; echo from the proxy""#;
    let ran = run(pen)
        .args(["--proxy-command", proxy, "--", "bash", "-c", &format!("{ASK} echo $SANDBOX; ask 'hello\\n'")])
        .ran();
    let (name, answer) = ran.ok().split_once('\n').expect("two lines");
    assert_eq!(answer, "from the proxy", "{}", ran.stderr);
    assert!(is_gone(pen, name), "{:?} {:?}", volumes(pen), pen.containers());
}

fn what_a_kill_leaves_is_pruned(pen: &Pen) {
    let mut running =
        Running::start(run(pen).args(["--allow-host", "example.org", "--", "bash", "-c", "echo $SANDBOX; sleep 300"]));
    let name = running.line();
    // A launcher that has not quite ended has not left anything yet.
    running.kill_alone();
    pen.host_command(installed(pen)).args(["prune"]).ran().ok();
    eventually("nothing is left in the engine", || is_gone(pen, &name));
    assert!(pen.sessions().is_empty(), "{:?}", pen.sessions());
}
