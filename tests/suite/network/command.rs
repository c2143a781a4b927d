//! The user's proxy command starts before the guest, is the guest's only way out, and ends with it.

use std::process::Stdio;

use rustix::process::Signal;

use super::server::ASK;
use crate::support::{Engine, Fixture, RunToEnd, Running, eventually, is_running, signal};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    the_users_proxy_serves_the_guest_and_nothing_else_does,
    a_proxy_that_ends_takes_the_guest_along,
    a_proxy_that_does_not_start_is_an_error,
    the_users_proxy_is_gone_after_a_kill,
);
for_every_container_engine!(two_proxies_at_once);

/// Returns a command that answers every request with a word. With the native engine the port can
/// differ from 8877, because tests run concurrently.
fn proxy(word: &str) -> String {
    format!(
        r#"sh -c 'exec socat TCP-LISTEN:${{SANDPEN_PROXY_PORT:-8877}},fork,reuseaddr SYSTEM:"read x; echo {word}"'"#
    )
}

fn the_users_proxy_serves_the_guest_and_nothing_else_does(fixture: &Fixture) {
    let script = format!("{ASK} env | grep ^HTTPS_PROXY; ask 'hello\\n'; ls /sys/class/net 2>/dev/null || true");
    let word = format!("proxy-{}-{}", fixture.engine().name(), std::process::id());
    let finished = fixture.run().args(["--proxy-command", &proxy(&word), "--", "bash", "-c", &script]).finish();
    let network = if fixture.engine().is_container() { "\nlo" } else { "" };
    assert_eq!(
        finished.success(),
        format!("HTTPS_PROXY=http://127.0.0.1:8877\n{word}{network}"),
        "{}",
        finished.stderr
    );
    eventually("the proxy is gone", || !is_running(&word));
    assert!(fixture.containers().is_empty() && fixture.sessions().is_empty());
}

fn two_proxies_at_once(fixture: &Fixture) {
    let start = |word: &str| {
        let script = format!("{ASK} ask 'hello\\n'; echo done; cat >/dev/null; ask 'hello\\n'");
        let mut command = fixture.run();
        command.args(["--proxy-command", &proxy(word), "--", "bash", "-c", &script]).stdin(Stdio::piped());
        Running::start(&mut command)
    };
    let (mut first, mut second) = (start("first"), start("second"));
    for (running, word) in [(&mut first, "first"), (&mut second, "second")] {
        assert_eq!((running.line().as_str(), running.line().as_str()), (word, "done"));
    }
    for (mut running, word) in [(first, "first"), (second, "second")] {
        running.close_stdin();
        assert_eq!(running.line(), word);
        running.finish().success();
    }
    assert!(fixture.containers().is_empty(), "{:?}", fixture.containers());
}

fn a_proxy_that_ends_takes_the_guest_along(fixture: &Fixture) {
    // The proxy exits when the guest has sent it a line.
    let end = format!("/tmp/end-{}", fixture.root.file_name().expect("a name").display());
    let proxy = format!(
        r#"sh -c 'socat TCP-LISTEN:${{SANDPEN_PROXY_PORT:-8877}},fork,reuseaddr SYSTEM:"grep -q end && touch {end}" &
            until [ -e {end} ]; do sleep 0.1; done; rm {end}; echo its last words >&2; kill $!; exit 3'"#
    );
    let mark = format!("sleep 301.{}", std::process::id());
    let mut running = Running::start(fixture.run().args([
        "--proxy-command",
        &proxy,
        "--",
        "bash",
        "-c",
        &format!("echo ready; exec 3<>/dev/tcp/127.0.0.1/8877; echo end >&3; {mark}; true"),
    ]));
    assert_eq!(running.line(), "ready");
    let finished = running.finish();
    finished.failure(44);
    assert!(finished.stderr.contains("error: the proxy ended, so the guest was stopped"), "{}", finished.stderr);
    assert!(finished.stderr.contains("its last words"), "{}", finished.stderr);
    eventually("the guest is gone", || !is_running(&mark));
}

fn a_proxy_that_does_not_start_is_an_error(fixture: &Fixture) {
    let finished =
        fixture.run().args(["--proxy-command", "sh -c 'echo cannot >&2; exit 1'", "--", "echo", "started"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(44), ""), "{}", finished.stderr);
    assert!(finished.stderr.contains("ended at once") && finished.stderr.contains("cannot"), "{}", finished.stderr);
    assert!(fixture.containers().is_empty() && fixture.sessions().is_empty());
}

fn the_users_proxy_is_gone_after_a_kill(fixture: &Fixture) {
    let word = format!("killed-{}-{}", fixture.engine().name(), std::process::id());
    let mut running = Running::start(fixture.run().args([
        "--proxy-command",
        &proxy(&word),
        "--",
        "bash",
        "-c",
        "echo ready; sleep 300",
    ]));
    assert_eq!(running.line(), "ready");
    signal(running.pid(), Signal::KILL);
    eventually("the proxy is gone", || !is_running(&word));
    eventually("the container is removed", || fixture.containers().is_empty());
    assert!(
        fixture.engine() != Engine::NativeRoot || fixture.sessions().len() == 1,
        "a killed launcher leaves its session to the next launch"
    );
    // A launch leaves it to a later one while the killed launcher's client still works on the container.
    eventually("a launch removes the directory", || {
        fixture.run().args(["--", "true"]).finish().success();
        fixture.sessions().is_empty()
    });
}
