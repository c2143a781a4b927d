//! Tries to reach the host, other networks and the proxy.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use super::ProbeOutcome;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// RFC 5737 reserves the address for documentation.
const REMOTE_ADDRESS: &str = "192.0.2.1:9";
/// RFC 2606 reserves `.invalid`, so no list of allowed hosts contains this one.
const UNLISTED_HOST: &str = "sandpen-selftest.invalid:443";

/// Lists the network interfaces other than loopback.
pub fn interfaces() -> ProbeOutcome<Vec<String>> {
    let table = fs::read_to_string("/proc/self/net/dev").map_err(|error| format!("/proc/self/net/dev: {error}"))?;
    let names = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    // Kernels with built-in tunnel drivers create these unused interfaces in every network namespace.
    let unused = ["lo", "sit0", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0"];
    Ok(names.filter(|name| !unused.contains(&name.as_str())).collect())
}

/// Tells whether there is a route to another network, without sending a packet.
pub fn has_route() -> bool {
    UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(REMOTE_ADDRESS)).is_ok()
}

/// Sends a datagram to each address; the launcher sees which arrive.
pub fn send_datagrams(addresses: &[String], token: &str) {
    if let Ok(socket) = UdpSocket::bind("0.0.0.0:0") {
        for address in addresses {
            let _ = socket.send_to(token.as_bytes(), address);
        }
    }
}

/// Sends the token to each address and returns those that accepted the connection.
pub fn connect(addresses: &[String], token: &str) -> Vec<String> {
    let accepts = |address: &&String| {
        let address: Option<SocketAddr> = address.parse().ok();
        let stream = address.and_then(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok());
        stream.is_some_and(|mut stream| stream.write_all(token.as_bytes()).is_ok())
    };
    addresses.iter().filter(accepts).cloned().collect()
}

/// Asks the proxy that the environment names for a host that cannot be allowed, and returns its status
/// line.
pub fn ask_proxy() -> Option<ProbeOutcome<String>> {
    let proxy = std::env::var("HTTPS_PROXY").or_else(|_| std::env::var("https_proxy")).ok()?;
    let address = proxy.trim_start_matches("http://").trim_end_matches('/');
    let address = address.rsplit_once('@').map_or(address, |(_, address)| address).to_owned();
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT * 5))?;
        write!(stream, "CONNECT {UNLISTED_HOST} HTTP/1.1\r\nHost: {UNLISTED_HOST}\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    };
    Some(ask().map_err(|error| error.to_string()))
}
