//! Tests the stand-in in a real terminal: signals of its keys, and its settings afterwards.

use crate::support::pty::Pty;
use crate::support::{Fixture, eventually};

/// Runs a shell script at a terminal; its `"$@"` is `sandpen run … -- sh -c INSIDE`.
fn at_terminal(fixture: &Fixture, script: &str, inside: &str) -> Pty {
    let mut run = fixture.run();
    Pty::script(&format!("trap : INT; {script}"), run.args(["--", "sh", "-c", inside]))
}

#[test]
fn ctrl_c_reaches_the_command_and_the_terminal_comes_back() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let script = "\"$@\"; echo code $?; read answer; echo back $answer";
    let mut terminal = at_terminal(&fixture, script, "echo ready; exec sleep 1000");
    terminal.expect("ready");
    terminal.send("\x03");
    terminal.expect("code 130");
    terminal.send("again\n");
    terminal.expect("back again");
    eventually("the session is gone", || fixture.sessions().is_empty());
}

#[test]
fn ctrl_c_comes_once() {
    let fixture = Fixture::new().with_macos_seatbelt();
    // A shell would handle two signals that arrive together as one.
    let count = "$| = 1; $SIG{INT} = sub { $n++ }; print qq(ready\\n); select(undef, undef, undef, 0.1) for 1..6; print qq(got $n.)";
    let inside = &format!("exec perl -e '{count}'");
    let mut terminal = at_terminal(&fixture, "\"$@\"", inside);
    terminal.expect("ready");
    terminal.send("\x03");
    terminal.expect("[ended 0]");
    assert!(terminal.said().contains("got 1."), "{}", terminal.said());
}

#[test]
fn ctrl_z_does_not_hang_the_terminal() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut terminal = at_terminal(&fixture, "\"$@\"", "echo ready; read word; echo read $word");
    terminal.expect("ready");
    terminal.send("\x1a");
    terminal.expect("^Z");
    terminal.send("on\n");
    terminal.expect("read on");
    terminal.expect("[ended 0]");
}

#[test]
fn settings_that_the_command_changed_are_put_back() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut terminal = at_terminal(&fixture, "\"$@\"", "stty -isig -icanon; exit 4");
    let before = terminal.initial_settings.clone();
    terminal.expect("[ended 4]");
    assert_eq!(terminal.settings(), before);
}

/// As in `git log | less`, another process of the pipeline reads from the terminal.
#[test]
fn in_a_pipeline_the_terminal_is_left_to_the_others() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let other = "\"$@\" | sh -c 'cat; read word </dev/tty; echo other $word'";
    let mut terminal = at_terminal(&fixture, other, "echo text");
    terminal.expect("text");
    terminal.send("typed\n");
    terminal.expect("other typed");
    // A command that reads from the terminal gets the input.
    let mut terminal = at_terminal(&fixture, "\"$@\" | cat", "read word; echo own $word");
    terminal.send("typed\n");
    terminal.expect("own typed");
}
