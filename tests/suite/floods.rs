//! A guest floods everything through which it reaches the launcher: its terminal, the SSH agent, the
//! push gate, the proxy and the record of events. The launcher stays small and serves others.

use std::fs;
use std::path::PathBuf;

use crate::for_every_engine;
use crate::network::server::{ASK, Server};
use crate::support::pty::{Pty, children};
use crate::support::{Fixture, RunToEnd, eventually};

for_every_engine!(with_agent: attack_20_a_flood_of_every_channel_holds_up_nothing);

/// Connects as often as it can, sends parts of requests and closes nothing as long as it may have more
/// files. `$ARGV[0]` is the path of a socket or a port.
const FLOODER: &str = r#"#!/usr/bin/perl
use Socket; use Fcntl;
my $where = shift; my (@open, $round); $SIG{PIPE} = "IGNORE";
my @junk = ("\0\3\xff\xff" . "x" x 5000, "\0\0\0\1\13", "git-receive-pack 99999\n", "git-receive-pack 0",
    "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "CONNECT evil.example:443 HTTP/1.1\r\nHost: ",
    "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "\xff" x 70000, "");
until (-e "stop") {
    socket(my $s, $where =~ m{/} ? PF_UNIX : PF_INET, SOCK_STREAM, 0) or do { splice @open, 0, 200; next };
    fcntl($s, F_SETFL, O_NONBLOCK);
    connect($s, $where =~ m{/} ? sockaddr_un($where) : sockaddr_in($where, inet_aton("127.0.0.1")));
    push @open, $s;
    syswrite $_, $junk[$round++ % @junk] for @open[-3 .. -1];
    shift @open if @open > 900;
    select undef, undef, undef, 0.0005;
}
"#;

/// The answers to its queries are never read, and the terminal echoes them for some time after the end
/// of the flood. So the last text is printed again and again, until a line comes.
const GUEST: &str = r#"#!/bin/bash
port=${http_proxy##*:}
for place in "$SSH_AUTH_SOCK" /.sandpen/push "${port%/}" "${port%/}"; do perl flooder "$place" & done
yes $'\e[6n\e[c\e[31mflood\e]0;title\a' &
while [ ! -e stop ]; do sleep 0.2; done
kill %5; wait
until read -t 0.5 -r _; do printf '\e[0m\e[2J\e[Hcalm-%s' $((40 + 2)); done
"#;

/// Returns the launcher and its processes on the host.
fn launchers(fixture: &Fixture) -> Vec<u32> {
    let list = fixture.sandpen(["ps", "--format", "json"]).finish().json();
    let launcher = u32::try_from(list[0]["pid"].as_u64().expect("a pid")).expect("a pid");
    let is_sandpen =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("sandpen"));
    std::iter::once(launcher).chain(children(launcher).into_iter().filter(is_sandpen)).collect()
}

fn resident_kilobytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn attack_20_a_flood_of_every_channel_holds_up_nothing(fixture: &Fixture) {
    let server = Server::start("served");
    fixture.write("project/flooder", FLOODER);
    fixture.write_script("project/guest", GUEST);
    fixture.write("project/ask", &format!("{ASK} get {}", server.port));
    for words in [&["init", "--quiet", "."][..], &["remote", "add", "origin", "ssh://git@127.0.0.1:9/app.git"]] {
        fixture.host_command("git").args(words).finish().success();
    }
    let mut command = fixture.run();
    command.args(["-d", "--allow-host", &server.rule(), "--push", "agent/*", "--", "./guest"]);
    let id = command.finish().success().trim().to_owned();
    let exec = |words: &[&str]| fixture.sandpen(["exec", &id, "--"]).args(words).finish();
    // Others are served meanwhile.
    eventually("the agent lists the key", || exec(&["ssh-add", "-l"]).code == Some(0));
    eventually("the proxy leads to the listed server", || exec(&["bash", "ask"]).stdout.contains("served"));
    let mut pty = Pty::start(&fixture.sandpen(["attach", &id]));
    pty.expect("flood");
    pty.send("\u{1d}d");
    pty.expect_end(0);
    let record: PathBuf = fixture.home.join(format!(".local/state/sandpen/log/{id}.jsonl"));
    for pid in launchers(fixture) {
        let memory = resident_kilobytes(pid);
        assert!(memory < 160 << 10, "process {pid} has {memory} kB");
        let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        assert!(files < 4000, "process {pid} has {files} files");
    }
    assert!(fs::metadata(&record).is_ok_and(|meta| meta.len() <= 4 << 20));
    fixture.write("project/stop", "");
    let mut pty = Pty::start(&fixture.sandpen(["attach", &id]));
    pty.expect("calm-42");
    eventually("the guest ends", || {
        pty.send("\r");
        pty.said().contains("[ended 0]")
    });
    // `attach` returns before a launcher that takes long to exit.
    eventually("everything is removed", || {
        fixture.sandpen(["prune"]).finish().success();
        fixture.sessions().is_empty() && fixture.containers().is_empty()
    });
}
