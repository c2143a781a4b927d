//! sandpen's own proxy: what is listed is reached, nothing else is, and the guest, the log and the user are told.

use std::fs;
use std::process::Stdio;

use super::server::{ASK, Server};
use crate::for_every_engine;
use crate::support::{Pen, RunToEnd, Running, comes_true, eventually, is_running, signal};
use rustix::process::Signal;
use std::time::Duration;

for_every_engine!(
    a_listed_server_is_reached_and_no_other,
    decisions_are_logged_while_the_guest_runs,
    programs_are_told_where_the_proxy_is,
    two_filtered_sandboxes_at_once,
    a_filtered_sandbox_ends_with_its_launcher,
    a_further_command_is_filtered_alike,
    ports_of_a_filtered_guest_cannot_be_published,
    many_connections_at_once,
);

fn a_listed_server_is_reached_and_no_other(pen: &Pen) {
    let (listed, other) = (Server::start("the listed one"), Server::start("another"));
    let script = format!("{ASK} get {}; echo; get {}; connect 127.0.0.1:{}", listed.port, other.port, other.port);
    let ran = pen.run().args(["--allow-host", &listed.rule(), "--", "bash", "-c", &script]).ran();
    let line = format!(
        "sandpen: 127.0.0.1:{0}: the host is not allowed; `--allow-host 127.0.0.1:{0}` would allow it",
        other.port
    );
    assert!(ran.ok().contains("\r\n\r\nthe listed one\n"), "{}", ran.stdout);
    assert_eq!(ran.stdout.matches(&format!("HTTP/1.1 403 {line}\r\n")).count(), 2, "{}", ran.stdout);
    assert_eq!(ran.stdout.matches(&format!("\r\n\r\n{line}\n")).count(), 2, "{}", ran.stdout);
    let said = format!(
        "sandpen: the proxy refused connections to 127.0.0.1:{} (2); --allow-host HOST[:PORT] allows one\n",
        other.port
    );
    assert_eq!(ran.stderr, said);
    assert_eq!((listed.asked(), other.asked()), (1, 0));
}

fn decisions_are_logged_while_the_guest_runs(pen: &Pen) {
    let server = Server::start("hello");
    let script = format!("{ASK} get {}; connect evil.example:443; echo; echo done; cat >/dev/null", server.port);
    let mut command = pen.run();
    command.args(["-v", "--allow-host", &server.rule(), "--", "bash", "-c", &script]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    while running.line() != "done" {}
    let [session] = &pen.sessions()[..] else { panic!("{:?}", pen.sessions()) };
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
    let ran = running.ran();
    for line in found {
        assert!(ran.stderr.contains(&format!("sandpen: proxy: {line}\n")), "{}", ran.stderr);
    }
}

fn programs_are_told_where_the_proxy_is(pen: &Pen) {
    let script = "env | grep -i proxy | sort";
    let expected = "HTTPS_PROXY=http://127.0.0.1:8877\nHTTP_PROXY=http://127.0.0.1:8877\nNODE_USE_ENV_PROXY=1
NO_PROXY=localhost,127.0.0.1,::1\nhttp_proxy=http://127.0.0.1:8877\nhttps_proxy=http://127.0.0.1:8877\nno_proxy=localhost,127.0.0.1,::1";
    let mut command = pen.run();
    // The host's own proxy is not the guest's.
    command.env("HTTP_PROXY", "http://me:pw@proxy:3128").args([
        "--allow-host",
        "example.org",
        "--env",
        "https_proxy=x",
    ]);
    let ran = command.args(["--", "bash", "-c", &format!("export LC_ALL=C; {script}")]).ran();
    assert_eq!(ran.ok(), expected);
    assert!(ran.stderr.contains("flag --env: https_proxy is always http://127.0.0.1:8877 inside"), "{}", ran.stderr);
    // A listed name of this machine is on the other side, not the guest's own.
    let ran = pen.run().args(["--allow-host", "localhost:3000", "--", "sh", "-c", "echo $NO_PROXY"]).ran();
    assert_eq!(ran.ok(), "127.0.0.1,::1");
}

fn two_filtered_sandboxes_at_once(pen: &Pen) {
    let servers = [Server::start("one"), Server::start("two")];
    let mut running: Vec<Running> = servers
        .iter()
        .map(|server| {
            let script = format!(
                "{ASK} get {}; get {}; echo; echo done; cat >/dev/null; get {}; echo",
                servers[0].port, servers[1].port, server.port
            );
            let mut command = pen.run();
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
    first.ran().ok();
    // The end of one is nothing to the other.
    second.close_stdin();
    while second.line() != "two" {}
    second.ran().ok();
    assert!(pen.sessions().is_empty());
}

fn a_filtered_sandbox_ends_with_its_launcher(pen: &Pen) {
    let mark = format!("sleep 300.{}", std::process::id());
    let mut running = Running::start(pen.run().args([
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
    assert!(comes_true(Duration::from_secs(20), || pen.containers().is_empty()), "{:?}", pen.containers());
}

fn a_further_command_is_filtered_alike(pen: &Pen) {
    let server = Server::start("hello");
    let mut command = pen.run();
    command
        .args(["--allow-host", &server.rule(), "--", "bash", "-c", "echo ready; cat >/dev/null"])
        .stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    assert_eq!(running.line(), "ready");
    let session = pen.sessions().pop().expect("a session");
    let id = session.file_name().and_then(|name| name.to_str()).expect("an id").to_owned();
    let script = format!("{ASK} echo $HTTP_PROXY; get {}; echo; connect evil.example:443", server.port);
    let ran = pen.sandpen().args(["exec", &id, "--", "bash", "-c", &script]).ran();
    assert!(
        ran.ok().starts_with("http://127.0.0.1:8877\n") && ran.stdout.contains("\r\n\r\nhello\n"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("HTTP/1.1 403 sandpen: evil.example:443: "), "{}", ran.stdout);
    running.close_stdin();
    running.ran().ok();
}

fn ports_of_a_filtered_guest_cannot_be_published(pen: &Pen) {
    let ran = pen.run().args(["--allow-host", "example.org", "--publish", "3000", "--", "true"]).ran();
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("flag --publish: port 3000 cannot be published with the network filtered"),
        "{}",
        ran.stderr
    );
}

/// 400 at once from inside, all held open; the proxy's own tests hold a thousand.
fn many_connections_at_once(pen: &Pen) {
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
    let ran = pen.run().args(["--allow-host", &server.rule(), "--", "perl", "-e", &script]).ran();
    assert_eq!(ran.ok(), "400 400", "{}", ran.stderr);
}
