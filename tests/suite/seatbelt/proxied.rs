//! Under Seatbelt with a filtered network, the proxy runs on the host, and the guest can reach only
//! its port. Each test has its own network namespace, because the port is fixed.

use std::process::Command;

use crate::support::{Finished, Fixture, RunToEnd, is_root_or_skip};

/// Requests two servers on the loopback from the proxy; one of them is listed.
const ASK: &str = r#"
for port in 9000 9001; do
    perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:'$port'", Listen => 1); $c = $s->accept;
        while (<$c>) { last if /^\r?$/ } print $c "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved"' &
done
for port in 2328 2329; do until grep -q " 0100007F:$port 00000000:0000 0A " /proc/net/tcp; do sleep 0.05; done; done
echo $HTTPS_PROXY
for port in 9000 9001; do
    exec 3<>/dev/tcp/127.0.0.1/8877
    printf 'GET http://127.0.0.1:%s/ HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' $port $port >&3
    head -n 1 <&3 | tr -d '\r'
    exec 3>&-
done
kill %1 %2 2> /dev/null
true
"#;

fn alone(fixture: &Fixture, options: &[&str], script: &str) -> Finished {
    let run = fixture.run();
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--net", "sh", "-c", r#"ip link set lo up && exec "$@""#, "sh"]).arg(run.get_program());
    command.args(run.get_args()).args(options).args(["--", "bash", "-c", script]);
    command.env_clear().envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = run.get_current_dir() {
        command.current_dir(directory);
    }
    command.finish()
}

#[test]
fn sandpens_own_proxy_is_the_only_way_out() {
    if !is_root_or_skip("a private network namespace") {
        return;
    }
    let fixture = Fixture::new().with_macos_seatbelt();
    let finished = alone(&fixture, &["--allow-host", "127.0.0.1:9000"], ASK);
    assert!(finished.success().starts_with("http://127.0.0.1:8877\nHTTP/1.1 200 OK\nHTTP/1.1 403 "), "{finished:?}");
    assert!(finished.stderr.contains("127.0.0.1:9001"), "{}", finished.stderr);
    let argv = std::fs::read_to_string(fixture.root.join("argv")).expect("argv");
    assert!(argv.contains("profile.sb"), "{argv}");
    assert_eq!(fixture.sessions().len(), 0, "{finished:?}");
}

#[test]
fn a_proxy_of_the_users_own_is_started_and_ended() {
    if !is_root_or_skip("a private network namespace") {
        return;
    }
    let fixture = Fixture::new().with_macos_seatbelt();
    let proxy = r#"perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:8877", Listen => 9, ReuseAddr => 1); while ($c = $s->accept) { print $c "mine\n"; close $c }'"#;
    let script = "exec 3<>/dev/tcp/127.0.0.1/8877; cat <&3";
    let finished = alone(&fixture, &["--proxy-command", proxy], script);
    assert_eq!(finished.success(), "mine", "{}", finished.stderr);
    assert_eq!(fixture.sessions().len(), 0, "{finished:?}");
    // If the proxy exits, sandpen stops the guest and reports an error.
    let finished = alone(&fixture, &["--proxy-command", "echo broken"], "echo started; sleep 20");
    assert!(finished.code == Some(44) && finished.stderr.contains("broken"), "{finished:?}");
    assert_eq!(fixture.sessions().len(), 0, "{finished:?}");
}
