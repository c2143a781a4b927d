//! Streams and large bodies pass the proxy as they come, and their connections are used again. Each order is
//! proved by a server that goes on only when the client has what was sent before.

use std::process::Stdio;

use super::rig::{Rig, VALUE};
use crate::support::{Engine, Fixture, Running};

/// How much the launcher's peak of memory may grow, whatever passes, in KiB.
const MAX_GROWTH: u64 = 16 * 1024;
const MEGABYTES: usize = 64;

#[test]
fn events_are_passed_on_one_by_one() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let script = r#"
            curl -sSN https://api.vendor.example/events | while read -r line; do
                case $line in "data: "*) echo "$line"; curl -sS -o /dev/null "https://api.vendor.example/received/${line#data: }";; esac
            done"#;
        let finished = rig.bash(fixture, &[], script);
        assert_eq!(finished.success(), "data: 1\ndata: 2\ndata: 3", "{finished:?}");
    });
}

#[test]
fn a_websocket_passes_message_by_message() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        // The client answers only after the whole message.
        let script = r#"
s = connect()
s.sendall(b"GET /socket HTTP/1.1\r\nHost: api.vendor.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
    b"Sec-WebSocket-Protocol: realtime, insecure-api-key.attackers-key\r\n\r\n")
f = s.makefile("rb")
head = b""
while not head.endswith(b"\r\n\r\n"): head += f.readline()
def message():
    text, final = b"", False
    while not final:
        first, length = f.read(2)
        final, text = first & 128, text + f.read(length)
    return text.decode()
welcome = message()
s.sendall(bytes([0x81, 0x80 + 5, 1, 2, 3, 4]) + bytes(b ^ m for b, m in zip(b"hello", [1, 2, 3, 4, 1])))
print(head.split()[1].decode(), welcome == f"welcome Bearer {KEY} sk-test", message())
"#;
        let finished = rig.python(fixture, script);
        assert_eq!(finished.success().trim(), "101 True hello", "{finished:?}");
        let request = &rig.requests()[0];
        assert!(request.contains(VALUE) && request.contains("Sec-WebSocket-Protocol: realtime\r\n"), "{request}");
        assert!(!request.contains("attackers-key") && !request.contains("permessage-deflate"), "{request}");
    });
}

#[test]
fn bodies_of_any_size_need_the_same_memory() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let size = MEGABYTES << 20;
        let script = format!(
            "curl -sS https://api.vendor.example/small -o /dev/null; echo small; read -r _
             curl -sS 'https://api.vendor.example/big?n={size}' | wc -c
             head -c {size} /dev/zero | curl -sS -X POST -T - https://api.vendor.example/drained; echo; read -r _; true"
        );
        let mut command = fixture.run();
        command.envs(rig.host()).args(["--secret", "A_TEST_KEY@api.vendor.example", "--", "bash", "-c", &script]);
        let mut running = Running::start(command.stdin(Stdio::piped()));
        assert_eq!(running.line(), "small");
        let before = peak_of_memory(running.pid());
        running.write("\n");
        assert_eq!([running.line(), running.line()], [size.to_string(), size.to_string()]);
        let after = peak_of_memory(running.pid());
        running.close_stdin();
        running.finish().success();
        assert!(after - before < MAX_GROWTH, "{before} KiB, then {after} KiB");
    });
}

/// Returns the largest memory that a process has had, in KiB.
fn peak_of_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn two_hundred_streams_are_held_at_once() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        // The server ends none before all have begun.
        let script = r#"
complete = []
def stream():
    if b"last" in ask(b"GET /held?n=200 HTTP/1.1\r\nHost: api.vendor.example\r\nConnection: close\r\n\r\n"): complete.append(1)
threads = [threading.Thread(target=stream) for _ in range(200)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(complete))
"#;
        let finished = rig.python(fixture, script);
        assert_eq!(finished.success().trim(), "200", "{finished:?}");
    });
}

#[test]
fn one_connection_serves_many_requests() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let urls = "https://api.vendor.example/[1-9]";
        let script =
            format!("curl -sS -d x -o /dev/null -w '%{{num_connects}}' '{urls}'; curl -sS '{urls}' -o /dev/null");
        let finished = rig.bash(fixture, &[], &script);
        assert_eq!(finished.success().trim(), "100000000", "{finished:?}");
        assert_eq!((rig.requests().len(), rig.tunnels().len()), (18, 2), "neither does the host see more");
    });
}

#[test]
fn a_value_that_is_not_accepted_is_explained() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let finished = rig.bash(fixture, &[], "curl -sS -i https://api.vendor.example/stale");
        let inside = "HTTP/1.1 401 Unauthorized (sandpen: the value of A_TEST_KEY on the host was not accepted; it may have expired)";
        assert_eq!(finished.success().lines().find(|line| line.contains(" 401 ")).map(str::trim_end), Some(inside));
        let outside =
            "api.vendor.example did not accept the value of A_TEST_KEY on the host (401); it may have expired";
        assert!(finished.stderr.contains(outside), "{}", finished.stderr);
    });
}
