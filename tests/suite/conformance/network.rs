//! Without a network the guest has only its loopback; published ports are reachable from this
//! machine only.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Fixture, RunToEnd, Running, eventually};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(published_ports_reach_every_listener, ports_without_a_network_are_refused,);
for_every_container_engine!(with_the_network_off_there_is_only_loopback, published_ports_are_closed_to_others,);

/// Returns an address of this machine that is not its loopback; no packet is sent.
fn outer_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("socket");
    socket.connect("192.0.2.200:9").expect("this machine needs a network interface with a route");
    socket.local_addr().expect("address").ip()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("socket").local_addr().expect("address").port()
}

fn with_the_network_off_there_is_only_loopback(fixture: &Fixture) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("listener");
    let port = listener.local_addr().expect("address").port();
    let address = outer_address();
    let script = format!(
        "ls /sys/class/net; for host in {address} 172.17.0.1 10.0.2.2 169.254.1.2; do
            socat -u OPEN:/dev/null TCP:$host:{port},connect-timeout=3 2>&- && echo \"reached $host\"; done; true"
    );
    for arguments in [&["--network", "off"][..], &["--profile", "offline"]] {
        let finished = fixture.run().args(arguments).args(["--", "bash", "-c", &script]).finish();
        assert_eq!(finished.success(), "lo", "{arguments:?}");
    }
    // With the network on, the same probe reaches the listener, so it can detect a connection.
    let probe = format!("socat -u OPEN:/dev/null TCP:{address}:{port},connect-timeout=3 && echo reached");
    assert_eq!(fixture.bash(&probe).success(), "reached");
}

/// Starts a guest that serves one line per connection until the test closes stdin.
fn serve(fixture: &Fixture, ports: &[(u16, &str)]) -> Running {
    let mut script = String::new();
    for (port, address) in ports {
        script += &format!("socat TCP-LISTEN:{port},bind={address},fork,reuseaddr SYSTEM:'echo {address}' & ");
    }
    script += "echo ready; cat > /dev/null; kill $(jobs -p)";
    let mut command = fixture.run();
    for (port, _) in ports {
        command.args(["--publish", &port.to_string()]);
    }
    let mut running = Running::start(command.stdin(Stdio::piped()).args(["--", "bash", "-c", &script]));
    assert_eq!(running.line(), "ready");
    running
}

fn fetch(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn published_ports_reach_every_listener(fixture: &Fixture) {
    let ports = [(free_port(), "127.0.0.1"), (free_port(), "0.0.0.0")];
    let mut running = serve(fixture, &ports);
    for (port, listens_on) in ports {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        eventually(&format!("a guest that listens on {listens_on} is reached at {address}"), || {
            fetch(address).is_ok_and(|text| text == format!("{listens_on}\n"))
        });
    }
    running.close_stdin();
    running.finish().success();
}

fn published_ports_are_closed_to_others(fixture: &Fixture) {
    let port = free_port();
    let mut running = serve(fixture, &[(port, "0.0.0.0")]);
    let loopback = SocketAddr::from(([127, 0, 0, 1], port));
    eventually("the port is open on loopback", || fetch(loopback).is_ok_and(|text| text == "0.0.0.0\n"));
    let outer = SocketAddr::new(outer_address(), port);
    assert!(fetch(outer).is_err(), "{outer} also answers");
    running.close_stdin();
    running.finish().success();
}

fn ports_without_a_network_are_refused(fixture: &Fixture) {
    let finished = fixture.run().env("SANDBOX_PORTS", "3000, 3001").args(["--network", "off", "--", "true"]).finish();
    finished.failure(2);
    assert!(finished.stderr.contains("env SANDBOX_PORTS") && finished.stderr.contains("3000"), "{}", finished.stderr);
}
