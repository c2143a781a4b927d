//! Only listed hosts are reachable through sandpen's own proxy; the guest, the log and the user are
//! informed of refused connections.

use std::fs;
use std::process::Stdio;

use super::server::{ASK, Server};
use crate::for_every_engine;
use crate::support::{Fixture, RunToEnd, Running, eventually, is_running, signal};
use rustix::process::Signal;

for_every_engine!(
    a_listed_server_is_reached_and_no_other,
    decisions_are_logged_while_the_guest_runs,
    proxy_variables_are_set,
    two_filtered_sandboxes_at_once,
    a_filtered_sandbox_ends_with_its_launcher,
    exec_uses_the_same_filter,
    ports_of_a_filtered_guest_cannot_be_published,
    many_connections_at_once,
);

pub fn a_listed_server_is_reached_and_no_other(fixture: &Fixture) {
    let (listed, other) = (Server::start("the listed one"), Server::start("another"));
    let script = format!("{ASK} get {}; echo; get {}; connect 127.0.0.1:{}", listed.port, other.port, other.port);
    let finished = fixture.run().args(["--allow-host", &listed.rule(), "--", "bash", "-c", &script]).finish();
    let line = format!(
        "sandpen: 127.0.0.1:{0}: the host is not allowed; `--allow-host 127.0.0.1:{0}` would allow it",
        other.port
    );
    assert!(finished.success().contains("\r\n\r\nthe listed one\n"), "{}", finished.stdout);
    assert_eq!(finished.stdout.matches(&format!("HTTP/1.1 403 {line}\r\n")).count(), 2, "{}", finished.stdout);
    assert_eq!(finished.stdout.matches(&format!("\r\n\r\n{line}\n")).count(), 2, "{}", finished.stdout);
    let said = format!(
        "sandpen: the proxy refused connections to 127.0.0.1:{} (2); allow a host with `--allow-host HOST[:PORT]`\n",
        other.port
    );
    assert_eq!(finished.stderr, said);
    assert_eq!((listed.asked(), other.asked()), (1, 0));
}

fn decisions_are_logged_while_the_guest_runs(fixture: &Fixture) {
    let server = Server::start("hello");
    let script = format!("{ASK} get {}; connect evil.example:443; echo; echo done; cat >/dev/null", server.port);
    let mut command = fixture.run();
    command.args(["-v", "--allow-host", &server.rule(), "--", "bash", "-c", &script]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    while running.line() != "done" {}
    let [session] = &fixture.sessions()[..] else { panic!("{:?}", fixture.sessions()) };
    let target = format!("127.0.0.1:{}", server.port);
    let log = || fs::read_to_string(session.join("proxy.log")).expect("the log");
    eventually("every decision is logged", || log().lines().count() == 3);
    let log = log();
    let found: Vec<&str> = log.lines().filter_map(|line| line.split_once("Z ")).map(|(_, text)| text).collect();
    assert!(log.lines().all(|line| line.starts_with("20") && line.as_bytes()[10] == b'T'), "{log}");
    assert_eq!(found[0], format!("allowed {target}"));
    assert!(
        found.iter().any(|line| line.starts_with(&format!("ended {target}, ")) && line.ends_with(" received")),
        "{log}"
    );
    assert!(found.iter().any(|line| line.starts_with("refused evil.example:443: ")), "{log}");
    running.close_stdin();
    let finished = running.finish();
    for line in found {
        assert!(finished.stderr.contains(&format!("sandpen: proxy: {line}\n")), "{}", finished.stderr);
    }
}

fn proxy_variables_are_set(fixture: &Fixture) {
    let script = "env | grep -i proxy | sort";
    let expected = "HTTPS_PROXY=http://127.0.0.1:8877\nHTTP_PROXY=http://127.0.0.1:8877\nNODE_USE_ENV_PROXY=1
NO_PROXY=localhost,127.0.0.1,::1\nhttp_proxy=http://127.0.0.1:8877\nhttps_proxy=http://127.0.0.1:8877\nno_proxy=localhost,127.0.0.1,::1";
    let mut command = fixture.run();
    // The guest must not use the host's own proxy.
    command.env("HTTP_PROXY", "http://me:pw@proxy:3128").args([
        "--allow-host",
        "example.org",
        "--env",
        "https_proxy=x",
    ]);
    let finished = command.args(["--", "bash", "-c", &format!("export LC_ALL=C; {script}")]).finish();
    assert_eq!(finished.success(), expected);
    assert!(
        finished.stderr.contains("flag --env: https_proxy is always http://127.0.0.1:8877 inside"),
        "{}",
        finished.stderr
    );
    // `localhost` in the list means the host, so the guest must reach it through the proxy.
    let finished = fixture.run().args(["--allow-host", "localhost:3000", "--", "sh", "-c", "echo $NO_PROXY"]).finish();
    assert_eq!(finished.success(), "127.0.0.1,::1");
}

fn two_filtered_sandboxes_at_once(fixture: &Fixture) {
    let servers = [Server::start("one"), Server::start("two")];
    let mut running: Vec<Running> = servers
        .iter()
        .map(|server| {
            let script = format!(
                "{ASK} get {}; get {}; echo; echo done; cat >/dev/null; get {}; echo",
                servers[0].port, servers[1].port, server.port
            );
            let mut command = fixture.run();
            command.args(["--allow-host", &server.rule(), "--", "bash", "-c", &script]).stdin(Stdio::piped());
            Running::start(&mut command)
        })
        .collect();
    for (running, word) in running.iter_mut().zip(["one", "two"]) {
        let lines: Vec<String> = std::iter::from_fn(|| Some(running.line()).filter(|line| line != "done")).collect();
        assert_eq!(lines.iter().filter(|line| line.contains(" 403 ")).count(), 1, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains(word)), "{lines:?}");
    }
    let [mut first, mut second] = <[Running; 2]>::try_from(running).ok().expect("two");
    first.close_stdin();
    first.finish().success();
    // The end of one sandbox does not affect the other.
    second.close_stdin();
    while second.line() != "two" {}
    second.finish().success();
    assert!(fixture.sessions().is_empty());
}

fn a_filtered_sandbox_ends_with_its_launcher(fixture: &Fixture) {
    let mark = format!("sleep 300.{}", std::process::id());
    let mut running = Running::start(fixture.run().args([
        "--allow-host",
        "example.org",
        "--",
        "bash",
        "-c",
        &format!("echo ready; {mark}; true"),
    ]));
    assert_eq!(running.line(), "ready");
    signal(running.pid(), Signal::KILL);
    eventually("the guest is gone", || !is_running(&mark));
    eventually("the container is removed", || fixture.containers().is_empty());
}

pub fn exec_uses_the_same_filter(fixture: &Fixture) {
    let server = Server::start("hello");
    let mut command = fixture.run();
    command
        .args(["--allow-host", &server.rule(), "--", "bash", "-c", "echo ready; cat >/dev/null"])
        .stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    assert_eq!(running.line(), "ready");
    let session = fixture.sessions().pop().expect("a session");
    let id = session.file_name().and_then(|name| name.to_str()).expect("an id").to_owned();
    let script = format!("{ASK} echo $HTTP_PROXY; get {}; echo; connect evil.example:443", server.port);
    let finished = fixture.sandpen(["exec", &id, "--", "bash", "-c", &script]).finish();
    assert!(
        finished.success().starts_with("http://127.0.0.1:8877\n") && finished.stdout.contains("\r\n\r\nhello\n"),
        "{}",
        finished.stdout
    );
    assert!(finished.stdout.contains("HTTP/1.1 403 sandpen: evil.example:443: "), "{}", finished.stdout);
    running.close_stdin();
    running.finish().success();
}

fn ports_of_a_filtered_guest_cannot_be_published(fixture: &Fixture) {
    let finished = fixture.run().args(["--allow-host", "example.org", "--publish", "3000", "--", "true"]).finish();
    finished.failure(2);
    assert!(
        finished.stderr.contains("flag --publish: port 3000 cannot be published with the network filtered"),
        "{}",
        finished.stderr
    );
}

/// The guest holds 400 connections open at once; the proxy's own tests hold a thousand.
pub fn many_connections_at_once(fixture: &Fixture) {
    let server = Server::start("hello");
    let script = format!(
        r#"use IO::Socket::INET; my @all; for (1..400) {{
            my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:8877") or die "$_: $!";
            print $s "CONNECT 127.0.0.1:{0} HTTP/1.1\r\n\r\n"; push @all, $s; }}
        my $n = 0; for my $s (@all) {{ my $l = <$s>; $n++ if $l =~ / 200 /; <$s>; }}
        for my $s (@all) {{ print $s "GET / HTTP/1.1\r\n\r\n"; }}
        my $m = 0; for my $s (@all) {{ local $/; $m++ if <$s> =~ /hello/; }} print "$n $m\n";"#,
        server.port
    );
    let finished = fixture.run().args(["--allow-host", &server.rule(), "--", "perl", "-e", &script]).finish();
    assert_eq!(finished.success(), "400 400", "{}", finished.stderr);
}
