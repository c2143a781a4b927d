//! Every long wait prints a progress message to stderr.

use crate::support::pty::Pty;
use crate::support::{Fixture, RunToEnd};

const WAITING: &str = "sandpen: waiting for docker to start the sandbox\n";

fn slow(image: &str) -> Fixture {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install("docker", &format!("#!/bin/sh\ncase $1 in image) {image};; run) /bin/sleep 5;; esac\n"));
    fixture
}

#[test]
fn a_slow_start_shows_progress() {
    let fixture = slow("echo '[{}]'");
    let finished = fixture.sandpen(["run", "--", "true"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str(), finished.progress.as_str()), (Some(0), "", WAITING));
    let finished = fixture.sandpen(["run", "--quiet", "--", "true"]).finish();
    assert_eq!((finished.stdout.as_str(), finished.progress.as_str()), ("", ""));
}

/// The engine shows the progress of a pull itself.
#[test]
fn a_pull_is_left_to_the_engines_own_progress() {
    let finished = slow("exit 1").sandpen(["run", "--", "true"]).finish();
    assert_eq!((finished.code, finished.progress.as_str()), (Some(0), ""));
}

#[test]
fn slow_engines_show_progress() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install("docker", "#!/bin/sh\n[ \"$1\" = info ] && exec /bin/sleep 3\nexit 1\n");
    let finished = fixture.sandpen(["doctor"]).finish();
    assert_eq!((finished.code, finished.progress.as_str()), (Some(1), "sandpen: waiting for the engines to answer\n"));
    let finished = fixture.sandpen(["doctor", "-q"]).finish();
    assert_eq!((finished.code, finished.progress.as_str()), (Some(1), ""));
    // At a terminal the message counts seconds, in a line that is removed afterwards.
    let mut terminal = Pty::start(&fixture.sandpen(["doctor"]));
    terminal.expect("Not ready");
    let said = terminal.said();
    for second in ["(0 s)", "(1 s)", "(2 s)"] {
        assert!(said.contains(&format!("\r\u{1b}[Ksandpen: waiting for the engines to answer {second}")), "{said:?}");
    }
    assert!(said.contains("\r\u{1b}[KSandbox\r\n"), "{said:?}");
}
