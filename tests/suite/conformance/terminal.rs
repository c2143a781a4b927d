//! Tests a sandbox in a real terminal: its size, its keys, and its settings afterwards.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::pty::{Pty, children};
use crate::support::{Engine, Fixture, eventually, holds_within, signal};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    in_a_terminal_the_guest_has_one_of_its_size,
    a_resize_reaches_the_guest,
    a_pipe_on_either_side_is_no_terminal,
    the_settings_are_restored_after_any_end,
    ctrl_c_and_ctrl_backslash_end_a_program_as_outside,
    a_program_may_handle_ctrl_c_itself,
    no_key_detaches,
    a_pipeline_keeps_the_settings_of_its_other_members,
);
for_every_container_engine!(ctrl_z_leaves_a_container_running);

fn bash(fixture: &Fixture, script: &str) -> Command {
    let mut command = fixture.run();
    command.args(["--", "bash", "-c", script]);
    command
}

#[track_caller]
fn assert_nothing_left(fixture: &Fixture) {
    eventually("nothing is left", || fixture.containers().is_empty() && fixture.sessions().is_empty());
}

fn in_a_terminal_the_guest_has_one_of_its_size(fixture: &Fixture) {
    // Docker's client sets the size a moment after the start.
    let script = "for fd in 0 1 2; do test -t $fd && echo \"$fd is one\"; done;
        for i in {1..50}; do [ \"$(stty size)\" = '0 0' ] || break; sleep 0.1; done; stty size; exit 7";
    let mut pty = Pty::start(&bash(fixture, script));
    for text in ["0 is one", "1 is one", "2 is one", "30 100", "[ended 7]"] {
        pty.expect(text);
    }
    assert_nothing_left(fixture);
}

fn a_resize_reaches_the_guest(fixture: &Fixture) {
    let script = "trap 'echo now $(stty size)' WINCH; echo ready; for i in {1..300}; do sleep 0.1; done";
    let mut pty = Pty::start(&bash(fixture, script));
    pty.expect("ready");
    // Docker's client loses a signal that comes before it follows the size, and Podman's is slow to
    // follow many.
    pty.resize(41, 121);
    let has_size = |pty: &Pty| holds_within(Duration::from_secs(3), || pty.said().contains("now 41 121"));
    for _ in 0..8 {
        if has_size(&pty) {
            break;
        }
        pty.resize(40, 120);
        pty.resize(41, 121);
    }
    pty.expect("now 41 121");
    pty.resize(24, 80);
    pty.expect("now 24 80");
    pty.send("\u{3}");
    pty.expect("[ended 130]");
}

fn a_pipe_on_either_side_is_no_terminal(fixture: &Fixture) {
    let script = "test -t 0 && echo zero; test -t 1 && echo one; echo said";
    let mut pty = Pty::script("\"$@\" | cat", &bash(fixture, script));
    pty.expect("[ended 0]");
    // The native engine passes its stdin on. A container has a terminal only if stdin and stdout
    // both are one; otherwise its stdin is a pipe of the client.
    let expected = if fixture.engine().is_container() { "said\r\n" } else { "zero\r\nsaid\r\n" };
    assert!(pty.said().starts_with(expected), "{:?}", pty.said());
    let mut pty = Pty::script("echo input | \"$@\"", &bash(fixture, &format!("cat; {script}")));
    pty.expect("[ended 0]");
    let expected = if fixture.engine().is_container() { "input\r\nsaid\r\n" } else { "input\r\none\r\nsaid\r\n" };
    assert!(pty.said().starts_with(expected), "{:?}", pty.said());
}

fn the_settings_are_restored_after_any_end(fixture: &Fixture) {
    for (script, ended) in [("echo ready; read _", 0), ("stty raw -echo; echo ready; read -n1 _; exit 3", 3)] {
        let mut pty = Pty::start(&bash(fixture, script));
        let before = pty.initial_settings.clone();
        pty.expect("ready");
        assert!(pty.is_raw(), "{script}");
        pty.send("\r");
        pty.expect(&format!("[ended {ended}]"));
        assert_eq!(pty.settings(), before, "{script}");
    }
    // The engine's client, or the first process inside, crashes.
    let mut pty = Pty::start(&bash(fixture, "stty raw -echo; echo ready; sleep 300"));
    let before = pty.initial_settings.clone();
    pty.expect("ready");
    assert!(pty.is_raw());
    let [crashing] = children(pty.child())[..] else { panic!("one child expected") };
    signal(crashing, Signal::KILL);
    pty.expect("[ended 137]");
    assert_eq!(pty.settings(), before);
    assert_nothing_left(fixture);
}

fn ctrl_c_and_ctrl_backslash_end_a_program_as_outside(fixture: &Fixture) {
    for (key, code) in [("\u{3}", 130), ("\u{1c}", 131)] {
        // Bash itself ignores SIGQUIT.
        let mut pty = Pty::start(&bash(fixture, "exec sh -c 'ulimit -c 0; echo ready; exec sleep 300'"));
        pty.expect("ready");
        pty.send(key);
        pty.expect(&format!("[ended {code}]"));
    }
    assert_nothing_left(fixture);
}

fn a_program_may_handle_ctrl_c_itself(fixture: &Fixture) {
    let script = "trap 'echo caught' INT; echo ready; for i in {1..300}; do sleep 0.1; read -t 0.1 x && exit 4; done";
    let mut pty = Pty::start(&bash(fixture, script));
    pty.expect("ready");
    pty.send("\u{3}");
    pty.expect("caught");
    pty.send("\u{3}");
    pty.expect("caught");
    pty.send("end\r");
    pty.expect("[ended 4]");
}

/// The pager changes the settings while the sandbox runs, and continues after it has ended.
fn a_pipeline_keeps_the_settings_of_its_other_members(fixture: &Fixture) {
    let pager = "{ read line; stty -icanon </dev/tty; cat; stty -a </dev/tty | grep -o -- '[^ ]*icanon'; }";
    let mut pty = Pty::script(&format!("\"$@\" | {pager}"), &bash(fixture, "echo ready; sleep 1"));
    pty.expect("icanon");
    assert!(pty.said().contains("-icanon"), "{:?}", pty.said());
}

/// Docker's default detach keys are Ctrl-P Ctrl-Q.
fn no_key_detaches(fixture: &Fixture) {
    let script = "stty raw -echo; echo ready; head -c 3 | od -An -tx1; exit 6";
    let mut pty = Pty::start(&bash(fixture, script));
    pty.expect("ready");
    pty.send("\u{10}\u{11}x");
    pty.expect("10 11 78");
    pty.expect("[ended 6]");
    assert_nothing_left(fixture);
}

/// A shell outside could not resume it, so it is resumed at once.
fn ctrl_z_leaves_a_container_running(fixture: &Fixture) {
    let mut pty = Pty::start(&bash(fixture, "echo ready; exec cat"));
    pty.expect("ready");
    pty.send("\u{1a}");
    pty.expect("^Z");
    pty.send("still\r");
    // The first comes from the terminal's echo, the second from cat.
    pty.expect("still");
    pty.expect("still");
    pty.send("\u{4}");
    pty.expect("[ended 0]");
    assert_nothing_left(fixture);
}

/// With the native engine, the shell outside suspends and resumes it like any other program.
fn ctrl_z_suspends(fixture: &Fixture) {
    let mut command = fixture.run();
    fixture.write_script("project/ready-and-cat", "#!/bin/sh\necho ready\nexec cat\n");
    command.args(["--", "./ready-and-cat"]);
    let mut pty = Pty::interactive(&command);
    pty.expect("[prompt] ");
    pty.send("$run\r");
    pty.expect("ready");
    pty.send("one\r");
    pty.expect("one");
    pty.expect("one");
    pty.send("\u{1a}");
    pty.expect("Stopped");
    pty.expect("[prompt] ");
    pty.send("fg\r");
    // The shell prints the job's command line after it has left its line editor.
    pty.expect("$run");
    pty.send("two\r");
    pty.expect("two");
    pty.expect("two");
    pty.send("\u{4}");
    pty.expect("[prompt] ");
    pty.send("echo \"code=$?\"\r");
    pty.expect("code=0");
    assert_nothing_left(fixture);
}

/// A sandbox that ends in the background must not take the terminal from the shell.
fn after_bg_the_shell_keeps_the_terminal(fixture: &Fixture) {
    fixture.write_script("project/ready-and-sleep", "#!/bin/sh\necho ready\nexec sleep 1\n");
    let mut command = fixture.run();
    command.args(["--", "./ready-and-sleep"]);
    let mut pty = Pty::interactive(&command);
    pty.expect("[prompt] ");
    pty.send("$run\r");
    pty.expect("ready");
    pty.send("\u{1a}");
    pty.expect("Stopped");
    pty.expect("[prompt] ");
    pty.send("bg\r");
    pty.expect("[prompt] ");
    // The shell waits for sandpen itself, not only for its sandbox.
    pty.send("wait\r");
    pty.expect("[prompt] ");
    for word in ["one", "two"] {
        pty.send(&format!("echo \"still $((40 + 2)) {word}\"\r"));
        pty.expect(&format!("still 42 {word}"));
    }
    assert_nothing_left(fixture);
}

#[test]
fn after_bg_the_shell_keeps_the_terminal_native() {
    Fixture::on(Engine::Native, after_bg_the_shell_keeps_the_terminal);
}

#[test]
fn after_bg_the_shell_keeps_the_terminal_native_root() {
    Fixture::on(Engine::NativeRoot, after_bg_the_shell_keeps_the_terminal);
}

#[test]
fn ctrl_z_suspends_native() {
    Fixture::on(Engine::Native, ctrl_z_suspends);
}

#[test]
fn ctrl_z_suspends_native_root() {
    Fixture::on(Engine::NativeRoot, ctrl_z_suspends);
}
