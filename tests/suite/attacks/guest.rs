//! Tests attacks of a guest on its launcher: attack 25, and attacks through the directory that both
//! use.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Fixture, Running, TIMEOUT, eventually, holds_within, is_running, signal};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    attack_25_a_killed_launcher_takes_the_guest_along,
    attack_25_the_guest_cannot_prevent_its_termination,
    the_guests_report_cannot_hang_the_launcher,
    the_guests_report_cannot_lead_the_launcher_elsewhere,
);
for_native_image!(attack_25_a_killed_launcher_takes_the_guest_along);
for_every_container_engine!(the_helper_and_the_accounts_cannot_be_changed,);

/// Returns a command line that no other process has.
fn mark(fixture: &Fixture) -> String {
    let digits: String = fixture.root.display().to_string().bytes().map(|byte| (byte % 10).to_string()).collect();
    format!("sleep 7{digits}")
}

fn kill_launcher(fixture: &Fixture, script: &str, mark: &str) {
    let mut running = Running::start(fixture.run().stdin(Stdio::piped()).args(["--", "bash", "-c", script]));
    assert_eq!(running.line(), "ready");
    eventually("the guest runs", || is_running(mark));
    signal(running.pid(), Signal::KILL);
    let ended = holds_within(Duration::from_secs(8), || !is_running(mark));
    assert!(ended, "the guest runs on without its launcher");
    eventually("the container is gone", || fixture.containers().is_empty());
}

pub(crate) fn attack_25_a_killed_launcher_takes_the_guest_along(fixture: &Fixture) {
    let mark = mark(fixture);
    kill_launcher(fixture, &format!("echo ready; exec {mark}"), &mark);
}

/// The guest tries to take the launcher's lock, to stop its first process, and to detach processes.
pub(crate) fn attack_25_the_guest_cannot_prevent_its_termination(fixture: &Fixture) {
    let mark = mark(fixture);
    let script = format!(
        r#"trap '' TERM HUP INT
        perl -e 'open F, "<", "/.sandpen/owner"; flock F, 2; sleep 600' &
        perl -e 'open F, "+<", "/.sandpen/owner" or exit; sleep 600' &
        rm -f /.sandpen/owner 2>&-; mv /.sandpen/owner /.sandpen/x 2>&-
        kill -STOP 1; kill -KILL 1
        setsid {mark} & setsid nohup {mark} > /dev/null &
        echo ready; exec {mark}"#
    );
    kill_launcher(fixture, &script, &mark);
}

/// The helper reports through a directory that the guest can write to.
fn the_guests_report_cannot_hang_the_launcher(fixture: &Fixture) {
    for trick in [
        "rm -f status; mkfifo status",
        "rm -f status; ln -s /dev/zero status",
        "rm -f status; mkdir status",
        "rm -f status; perl -e 'open F, q(>), q(status); truncate F, 1 << 40'",
        "rm -f status; mkfifo real; ln -s real status",
    ] {
        let script = format!("cd /.sandpen && {{ {trick}; }}; exit 7");
        let mut running = Running::start(fixture.run().args(["--", "bash", "-c", &script]));
        let ended = holds_within(TIMEOUT, || running.children().is_empty() && !is_alive(running.pid()));
        assert!(ended, "sandpen hangs after the guest did: {trick}");
        let finished = running.finish();
        assert_eq!(finished.code, Some(7), "{trick}: {}", finished.stderr);
        assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new(), "{trick}");
    }
}

/// Returns whether a process runs and is not a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn the_guests_report_cannot_lead_the_launcher_elsewhere(fixture: &Fixture) {
    let secret = fixture.write("secret", "hunter2 not-found");
    for trick in [
        format!("ln -sf {} status", secret.display()),
        "rm -f status; printf not-found > status".into(),
        "rm -f status; printf '\\033[31mnot-found' > status".into(),
        "rm -f status; printf wrong-architecture > status".into(),
        "rm -f status".into(),
    ] {
        let finished = fixture.bash(&format!("cd /.sandpen && {{ {trick}; }}; exit 125"));
        // A forged report may change the guest's own exit code, but must not reveal data of the
        // host.
        assert!(
            !finished.stderr.contains("hunter2") && !finished.stderr.contains('\u{1b}'),
            "{trick}: {}",
            finished.stderr
        );
        assert!(matches!(finished.code, Some(125 | 44)), "{trick}: {:?} {}", finished.code, finished.stderr);
        assert!(secret.exists());
    }
}

fn the_helper_and_the_accounts_cannot_be_changed(fixture: &Fixture) {
    let before = std::fs::read(crate::support::binary()).expect("the program");
    let script = r#"
        for file in /.sandpen/sandpen /.sandpen/owner /etc/passwd /etc/group; do
            (echo x >> $file) 2>&- && echo "$file can be changed"
            rm -f $file 2>&- && echo "$file can be removed"
            mv $file /tmp/moved 2>&- && echo "$file can be moved"
        done
        cat /proc/1/environ /proc/1/mem 2>&- | head -c 1
        true"#;
    assert_eq!(fixture.bash(script).success(), "");
    assert!(std::fs::read(crate::support::binary()).expect("the program") == before);
}
