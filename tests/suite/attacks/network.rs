//! Tests attacks of a guest on the network policy: 21, 22, 23.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::network::{ASK, Server, outer_address};
use crate::support::{Fixture, RunToEnd};
use crate::{for_every_engine, for_native_image};

for_every_engine!(
    attack_21_odd_names_and_addresses_are_refused_and_logged,
    attack_22_no_way_out_but_the_proxy,
    attack_23_a_listed_name_does_not_lead_to_this_machine,
);
for_native_image!(attack_22_no_way_out_but_the_proxy);

pub(crate) fn attack_21_odd_names_and_addresses_are_refused_and_logged(fixture: &Fixture) {
    let server = Server::start("reached");
    let port = server.port;
    let targets: Vec<String> = [
        "exam\\000ple.org:PORT",
        "127.0.0.1\\000.evil.example:PORT",
        "example.org\\r\\nX:PORT",
        "me@127.0.0.1:PORT",
        "127.0.0.1:PORT@evil:443",
        "127.0.0.1.:PORT",
        "LOCALHOST:PORT",
        "localhost.:PORT",
        "l\\xc3\\xb6calhost:PORT",
        "xn--lcalhost-n4a:PORT",
        "2130706433:PORT",
        "0177.0.0.1:PORT",
        "0x7f.0.0.1:PORT",
        "127.1:PORT",
        "[\\:\\:ffff:127.0.0.1]:PORT",
        "[\\:\\:ffff:7f00:1]:PORT",
        "[0:0:0:0:0:0:0:1]:PORT",
        "127.0.0.1:0PORT",
        "127.0.0.1:+PORT",
        "localhost:PORT",
        "evil.example:443",
    ]
    .iter()
    .map(|target| target.replace("\\:", ":").replace("PORT", &port.to_string()))
    .collect();
    let mut script = ASK.to_owned();
    for target in &targets {
        script += &format!(
            "ask 'CONNECT {target} HTTP/1.1\\r\\n\\r\\n' | head -1; ask 'GET http://{target}/ HTTP/1.1\\r\\n\\r\\n' | head -1\n"
        );
    }
    let mismatches = [
        format!("CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\nHost: evil.example:{port}"),
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\nHost: evil.example"),
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nHost: evil.example"),
        "GET / HTTP/1.1\\r\\nHost: 127.0.0.1".to_owned(),
        format!("POST http://127.0.0.1:{port}/ HTTP/1.1\\r\\nContent-Length: 5\\r\\nTransfer-Encoding: chunked"),
    ];
    for head in &mismatches {
        script += &format!("ask '{head}\\r\\n\\r\\n' | head -1\n");
    }
    script += &format!("get {port} | tail -1");
    let finished = fixture.run().args(["-v", "--allow-host", &server.rule(), "--", "bash", "-c", &script]).finish();
    let mut answers: Vec<&str> = finished.success().lines().collect();
    assert_eq!(answers.pop(), Some("reached"), "the allowed request must be answered: {}", finished.stdout);
    assert_eq!(answers.len(), 2 * targets.len() + mismatches.len(), "{}", finished.stdout);
    for answer in &answers {
        assert!(
            answer.starts_with("HTTP/1.1 403 sandpen: ") || answer.starts_with("HTTP/1.1 400 sandpen: "),
            "{answer}"
        );
    }
    assert_eq!(server.asked(), 1, "another request reached the server");
    let logged = finished.stderr.lines().filter(|line| line.starts_with("sandpen: proxy: refused ")).count();
    assert_eq!(logged, answers.len(), "{}", finished.stderr);
}

/// Tries every way out except the proxy, and prints the ones that work.
const WAYS: &str = r#"
    use Socket; use IO::Socket::INET; my ($outer, $tcp, $udp, $abstract) = @ARGV;
    for my $host ($outer, "127.0.0.1", "172.17.0.1", "10.0.2.2", "10.88.0.1", "169.254.1.2", "1.1.1.1") {
        my $s = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $tcp, Timeout => 2); print "tcp $host\n" if $s;
        my $u = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $udp, Proto => "udp"); $u and $u->send("quic");
        my $d = IO::Socket::INET->new(PeerAddr => $host, PeerPort => 53, Proto => "udp"); print "dns $host\n" if $d and $d->send("x") and $host !~ /^127/;
    }
    print "raw\n" if socket(my $r, PF_INET, SOCK_RAW, 1);
    print "packet\n" if socket(my $p, 17, SOCK_RAW, 0);
    if (socket(my $i, PF_INET, SOCK_DGRAM, 1)) {
        print "icmp\n" if send($i, "\x08\0\0\0\0\0\0\0", 0, pack_sockaddr_in(0, inet_aton($outer)));
    }
    print "resolved\n" if gethostbyname("example.org");
    socket(my $a, PF_UNIX, SOCK_STREAM, 0); print "abstract\n" if connect($a, pack("S", AF_UNIX) . "\0$abstract");
    print "done\n";"#;

pub(crate) fn attack_22_no_way_out_but_the_proxy(fixture: &Fixture) {
    let tcp = TcpListener::bind("0.0.0.0:0").expect("listener");
    let udp = UdpSocket::bind("0.0.0.0:0").expect("socket");
    let name = format!("sandpen-test-{}-{}", std::process::id(), fixture.root.display());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("listener");
    let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("address").port().to_string();
    let outer = outer_address().to_string();
    let arguments = [outer.as_str(), &port(tcp.local_addr()), &port(udp.local_addr()), &name];
    udp.set_nonblocking(true).expect("nonblocking");
    for options in [&["--network", "off"][..], &["--allow-host", "example.org"]] {
        let finished = fixture.run().args(options).args(["--", "perl", "-e", WAYS]).args(arguments).finish();
        assert_eq!(finished.success(), "done", "{options:?}");
        assert!(udp.recv(&mut [0; 16]).is_err(), "a datagram left the sandbox with {options:?}");
    }
    tcp.set_nonblocking(true).expect("nonblocking");
    assert!(tcp.accept().is_err());
    // The script finds a way out if the network is on, so it can detect one.
    let finished = fixture.run().args(["--", "perl", "-e", WAYS]).args(arguments).finish();
    assert!(finished.success().contains(&format!("tcp {outer}\n")), "{}", finished.stdout);
}

/// Returns a name of this machine that resolves to an address that is not public. The test needs
/// one in /etc/hosts.
fn local_name() -> String {
    let hosts = std::fs::read_to_string("/etc/hosts").expect("/etc/hosts");
    let mut names = hosts.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: std::net::IpAddr = words.next()?.parse().ok()?;
        let is_local = address.is_loopback() || matches!(address, std::net::IpAddr::V4(v4) if v4.is_private());
        words.find(|name| {
            is_local
                && *name != "localhost"
                && name.bytes().all(|b| b.is_ascii_lowercase() || b"-0123456789".contains(&b))
        })
    });
    names.next().expect("a local name in /etc/hosts besides localhost").to_owned()
}

pub(crate) fn attack_23_a_listed_name_does_not_lead_to_this_machine(fixture: &Fixture) {
    let server = Server::start("reached");
    let (name, port) = (local_name(), server.port);
    let script = format!("{ASK} connect {name}:{port} | head -1");
    let finished =
        fixture.run().args(["-v", "--allow-host", &format!("{name}:{port}"), "--", "bash", "-c", &script]).finish();
    assert!(
        finished.success().starts_with(&format!("HTTP/1.1 403 sandpen: {name}:{port}: it resolves to ")),
        "{}",
        finished.stdout
    );
    assert!(finished.stdout.contains("which is not a public address"), "{}", finished.stdout);
    assert!(finished.stderr.contains(&format!("sandpen: proxy: refused {name}:{port} at ")), "{}", finished.stderr);
    assert_eq!(server.asked(), 0);
}
