//! A session is removed in this order: the container, the tunnel, the directory.

use rustix::process::Signal;

use super::podman_machine::PodmanMachine;
use crate::support::{Running, Shim, signal};

/// Wrappers around the real programs log when those finish, and whether the session's directory
/// still exists.
#[test]
fn r7_9_the_container_goes_before_the_tunnel_and_the_tunnel_before_the_directory() {
    PodmanMachine::on(|machine| {
        let fixture = &machine.fixture;
        let sessions = fixture.home.join(".local/state/sandpen/sessions");
        let note = |what: &str| {
            let log = fixture.outside("shim").join("log");
            format!("echo \"NOTE {what}, directories: $(ls {} | wc -l)\" >>{}", sessions.display(), log.display())
        };
        let removed = note("container removed");
        let podman =
            format!("case \"$*\" in *' rm --force '*) /usr/bin/podman \"$@\"; code=$?; {removed}; exit $code ;; esac");
        Shim::new(fixture, "podman", &podman);
        let ssh = format!("/usr/bin/ssh \"$@\"; code=$?; {}; exit $code", note("tunnel closed"));
        let shim = Shim::new(fixture, "ssh", &ssh);
        let mut command = machine.sh("echo up; exec sleep 300");
        let mut running = Running::start(command.env("PATH", shim.path()));
        assert_eq!(running.line(), "up");
        // The client is killed, so that sandpen itself must remove the container.
        let is_client = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("podman\0--connection")
        };
        let client = running.children().into_iter().find(is_client).expect("Podman's client");
        signal(client, Signal::KILL);
        let finished = running.finish();
        finished.failure(137);
        let mut notes: Vec<String> = shim.calls().into_iter().filter(|line| line.starts_with("NOTE ")).collect();
        // A killed client may still have been creating the container, which is then removed twice;
        // only the order matters.
        notes.dedup();
        assert_eq!(notes, ["NOTE container removed, directories: 1", "NOTE tunnel closed, directories: 1"]);
        assert_eq!(fixture.sessions().len(), 0);
        assert_eq!(fixture.containers().len(), 0);
    });
}
