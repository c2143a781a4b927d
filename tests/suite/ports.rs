//! Tests `sandpen ports`: what listens in a sandbox, and connections to it, whatever the network is.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Engine, Fixture, RunToEnd, Running, eventually};
use crate::{for_every_engine, for_kubernetes};

for_every_engine!(
    ports_are_listed_and_forwarded_with_the_network_on,
    ports_are_listed_and_forwarded_without_a_network,
    ports_are_listed_and_forwarded_through_a_filtered_network,
    a_login_returns_from_the_browser_through_a_filtered_network,
    forwarding_ends_with_the_sandbox,
    a_forwarded_port_leads_into_the_sandbox_only,
);

for_kubernetes!(ports_are_listed_and_forwarded_with_the_network_on);

/// A server on an address and a port; it answers what it is sent, in upper case.
const SERVER: &str = r#"
use Socket; $| = 1;
my ($address, $port) = @ARGV;
my $v6 = $address =~ /:/;
socket(my $server, $v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0) or die "socket $!";
setsockopt($server, SOL_SOCKET, SO_REUSEADDR, 1);
my $ip = Socket::inet_pton($v6 ? AF_INET6 : AF_INET, $address);
bind($server, $v6 ? Socket::pack_sockaddr_in6($port, $ip) : sockaddr_in($port, $ip)) or die "bind $!";
listen($server, 128) or die; print substr($ENV{SANDBOX}, 8), "\n"; $SIG{CHLD} = 'IGNORE';
while (accept(my $client, $server)) {
    if (fork == 0) { local $/; my $text = <$client>; print $client uc $text; close $client; exit }
    close $client;
}
"#;

/// Returns a port of the host that is free now, outside the range from which the kernel chooses.
fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 21_000 + (std::process::id() % 50) as u16 * 100 + NEXT.fetch_add(1, Ordering::Relaxed) % 100;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Starts a sandbox with a server in it; returns its id as well.
fn start(fixture: &Fixture, options: &[&str], address: &str, port: u16) -> (Running, String) {
    fixture.write("project/server.pl", SERVER);
    let mut command = fixture.run();
    command.args(options);
    let mut running = Running::start(command.args(["--", "perl", "server.pl", address, &port.to_string()]));
    let id = running.line();
    (running, id)
}

/// Starts `sandpen ports`, and waits until it forwards.
fn forward(fixture: &Fixture, id: &str, spelling: &str, port: u16) -> Running {
    let running = Running::start(&mut fixture.sandpen(["ports", id, spelling]));
    eventually("the port is open", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    running
}

fn ask(port: u16, text: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut answer = String::new();
    let sent = stream.write_all(text.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
    let _ = sent.and_then(|()| stream.read_to_string(&mut answer).map(drop));
    answer
}

fn check(fixture: &Fixture, options: &[&str], address: &str) {
    let (inside, outside) = (free_port(), free_port());
    let (mut running, id) = start(fixture, options, address, inside);
    let list = fixture.sandpen(["ports", &id, "--format", "json"]).finish().json();
    let expected = serde_json::json!({"port": inside, "address": address, "program": "perl"});
    assert_eq!(list, serde_json::json!([expected]), "{options:?} {address}");
    let table = fixture.sandpen(["ports", &id]).finish();
    assert!(table.success().lines().any(|line| line.split_whitespace().eq([&*inside.to_string(), address, "perl"])));
    let mut forwarding = forward(fixture, &id, &format!("{outside}:{inside}"), outside);
    assert_eq!(ask(outside, "hello"), "HELLO", "{options:?} {address}");
    let long = "x".repeat(300_000);
    assert!(ask(outside, &long) == long.to_uppercase());
    forwarding.signal(Signal::TERM);
    forwarding.finish();
    assert!(TcpStream::connect(("127.0.0.1", outside)).is_err(), "the port is closed");
    running.signal(Signal::TERM);
    running.finish();
}

fn ports_are_listed_and_forwarded_with_the_network_on(fixture: &Fixture) {
    check(fixture, &["--network", "on"], "0.0.0.0");
}

fn ports_are_listed_and_forwarded_without_a_network(fixture: &Fixture) {
    check(fixture, &["--network", "off"], "127.0.0.1");
}

fn ports_are_listed_and_forwarded_through_a_filtered_network(fixture: &Fixture) {
    check(fixture, &["--allow-host", "example.org"], "127.0.0.1");
}

/// Waits for a login as agents do: on a port that the kernel chooses, for one request of a browser.
const LOGIN: &str = r#"
use Socket; $| = 1;
socket(my $server, AF_INET, SOCK_STREAM, 0) or die;
bind($server, sockaddr_in(0, INADDR_LOOPBACK)) or die; listen($server, 1) or die;
print substr($ENV{SANDBOX}, 8), "\n";
accept(my $client, $server) or die;
my $request = ''; until ($request =~ /\r\n\r\n/) { sysread($client, $request, 4096, length $request) or die }
syswrite $client, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nsigned in";
shutdown($client, 1); 1 while sysread($client, my $rest, 4096);
print "code ", $request =~ m|^GET /auth/callback\?code=(\w+)|, "\n";
"#;

fn a_login_returns_from_the_browser_through_a_filtered_network(fixture: &Fixture) {
    fixture.write("project/login.pl", LOGIN);
    let mut command = fixture.run();
    command.args(["--agent", "codex", "--network", "proxied", "--", "perl", "login.pl"]);
    let mut running = Running::start(&mut command);
    let id = running.line();
    let list = fixture.sandpen(["ports", &id, "--format", "json"]).finish().json();
    let port = list[0]["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
    let browser = |id: &str| {
        let _forwarding = Running::start(&mut fixture.sandpen(["ports", id, &port.to_string()]));
        let mut answer = String::new();
        eventually("the browser's request is answered", || {
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            // The browser leaves its side of the connection open.
            let request = format!("GET /auth/callback?code=abc123&state=x HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
            stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)).is_ok()
        });
        answer
    };
    assert!(browser(&id).ends_with("signed in"));
    assert_eq!(running.line(), "code abc123");
    assert_eq!(running.finish().code, Some(0));
}

/// Containers have no IPv6 where the engine's network has none.
#[test]
fn a_server_on_the_loopback_of_ipv6_is_reached() {
    Fixture::on(Engine::Native, |fixture| check(fixture, &["--network", "off"], "::1"));
}

fn forwarding_ends_with_the_sandbox(fixture: &Fixture) {
    let port = free_port();
    let (mut running, id) = start(fixture, &["--network", "off"], "127.0.0.1", port);
    let mut forwarding = forward(fixture, &id, &port.to_string(), port);
    let busy = fixture.sandpen(["ports", &id, &port.to_string()]).finish();
    let message = busy.failure(44);
    assert!(message.contains(&format!("127.0.0.1:{port}")) && message.contains("in use"), "{message}");
    let mut clients: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("a connection")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        client.write_all(format!("client {number}").as_bytes()).expect("sent");
        client.shutdown(Shutdown::Write).expect("shut down");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, format!("CLIENT {number}"));
    }
    running.signal(Signal::TERM);
    running.finish();
    let finished = forwarding.finish();
    assert!(finished.code == Some(0) && finished.stderr.contains(&format!("{id} has ended")), "{}", finished.stderr);
    for arguments in [&["ports", "nothing"][..], &["ports", "nothing", "3000"]] {
        fixture.sandpen(arguments).finish().failure(44);
    }
    for wrong in ["0", "x", "1:2:3", "127.0.0.1:80"] {
        fixture.sandpen(["ports", &id, wrong]).finish().failure(2);
    }
}

/// A service of the host on the same port is not reached, although nothing in the sandbox listens.
fn a_forwarded_port_leads_into_the_sandbox_only(fixture: &Fixture) {
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let secret = service.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut client in service.incoming().flatten() {
            let _ = client.write_all(b"SECRET");
        }
    });
    for network in ["on", "off"] {
        let (mut running, id) = start(fixture, &["--network", network], "127.0.0.1", free_port());
        let port = free_port();
        let mut forwarding = forward(fixture, &id, &format!("{port}:{secret}"), port);
        assert_eq!(ask(port, ""), "", "{network}");
        let list = fixture.sandpen(["ports", &id, "--format", "json"]).finish().json();
        assert!(list.as_array().is_some_and(|list| list.iter().all(|entry| entry["port"] != secret)), "{list}");
        forwarding.signal(Signal::TERM);
        forwarding.finish();
        running.signal(Signal::TERM);
        running.finish();
    }
}
