//! Every byte of stdin, stdout and stderr arrives, the streams stay separate, and there is a
//! terminal only if the caller has one.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::support::{Fixture, RunToEnd, eventually};
use crate::{for_every_engine, for_kubernetes, for_native_image};

for_every_engine!(
    stdin_arrives_byte_by_byte,
    a_hundred_megabytes_arrive_unchanged,
    stdout_and_stderr_stay_apart,
    without_a_terminal_the_guest_has_none,
    without_a_command_there_is_a_shell,
    a_reader_that_goes_away_ends_the_sandbox,
);
for_native_image!(without_a_command_there_is_a_shell);

for_kubernetes!(
    stdin_arrives_byte_by_byte,
    a_hundred_megabytes_arrive_unchanged,
    without_a_terminal_the_guest_has_none,
    without_a_command_there_is_a_shell,
);

/// Returns ten megabytes of pseudo-random bytes, the same in every run.
fn noise() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..10 * 1024 * 1024 / 8).flat_map(step).collect()
}

fn stdin_arrives_byte_by_byte(fixture: &Fixture) {
    let sent = noise();
    let mut command = fixture.run();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).args(["--", "cat"]);
    let mut child = command.spawn().expect("start");
    let mut stdin = child.stdin.take().expect("stdin");
    let writer = thread::spawn({
        let sent = sent.clone();
        move || stdin.write_all(&sent)
    });
    let mut received = Vec::new();
    child.stdout.take().expect("stdout").read_to_end(&mut received).expect("read");
    writer.join().expect("thread").expect("write");
    assert!(child.wait().expect("wait").success());
    assert!(received == sent, "{} bytes came back of {}", received.len(), sent.len());
}

/// Sends ten megabytes ten times, each time from another offset.
fn a_hundred_megabytes_arrive_unchanged(fixture: &Fixture) {
    let noise = noise();
    let sum_of = |mut command: Command| {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start");
        let mut stdin = child.stdin.take().expect("stdin");
        for round in 0..10 {
            stdin.write_all(&noise[round..]).expect("write");
        }
        drop(stdin);
        let output = child.wait_with_output().expect("wait");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    let mut inside = fixture.run();
    inside.args(["--", "sha256sum"]);
    assert_eq!(sum_of(inside), sum_of(Command::new("sha256sum")));
}

fn stdout_and_stderr_stay_apart(fixture: &Fixture) {
    let finished = fixture.bash("echo out; echo err >&2; printf 'no newline'");
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\nno newline", "err\n"));
}

fn without_a_terminal_the_guest_has_none(fixture: &Fixture) {
    let script = "for fd in 0 1 2; do test -t $fd && echo \"$fd is a terminal\"; done; readlink /proc/self/fd/0; true";
    let finished = fixture.run().stdin(Stdio::piped()).args(["--", "bash", "-c", script]).finish();
    assert!(!finished.success().contains("terminal") && !finished.stdout.contains("/dev/pts"), "{}", finished.stdout);
}

fn without_a_command_there_is_a_shell(fixture: &Fixture) {
    let mut command = fixture.run();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start");
    child.stdin.take().expect("stdin").write_all(b"echo hi from $BASH; exit 3\n").expect("write");
    let output = child.wait_with_output().expect("wait");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hi from /usr/bin/bash\n");
}

/// As in `yes | head`, the client ends by the closed pipe, and the container must end with it.
fn a_reader_that_goes_away_ends_the_sandbox(fixture: &Fixture) {
    let mut command = fixture.run();
    command.stdout(Stdio::piped()).stderr(Stdio::null()).args(["--", "yes"]);
    let mut child = command.spawn().expect("start");
    let mut some = [0; 4];
    child.stdout.as_mut().expect("stdout").read_exact(&mut some).expect("read");
    assert_eq!(&some, b"y\ny\n");
    drop(child.stdout.take());
    let ended = crate::support::holds_within(crate::support::TIMEOUT, || child.try_wait().expect("wait").is_some());
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
    }
    assert!(ended, "sandpen still runs");
    eventually("the container is gone", || fixture.containers().is_empty());
    assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
}
