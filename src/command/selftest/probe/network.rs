//! Tries the network.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::command::selftest::probe::Seen;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Reserved for documentation (RFC 5737, RFC 2606): nobody can have allowed them.
const ELSEWHERE: &str = "192.0.2.1:9";
const NOBODYS_HOST: &str = "sandpen-selftest.invalid:443";

/// The interfaces besides loopback.
pub fn interfaces() -> Seen<Vec<String>> {
    let table = fs::read_to_string("/proc/self/net/dev").map_err(|error| format!("/proc/self/net/dev: {error}"))?;
    let names = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    // Kernels with tunnels built in show their dead ends in every new network.
    let dead = ["lo", "sit0", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0"];
    Ok(names.filter(|name| !dead.contains(&name.as_str())).collect())
}

/// Whether a packet to another network would find a way. None is sent.
pub fn has_route() -> bool {
    UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(ELSEWHERE)).is_ok()
}

/// Sends a word to each address.
pub fn send(addresses: &[String], word: &str) {
    if let Ok(socket) = UdpSocket::bind("0.0.0.0:0") {
        for address in addresses {
            // Whether it arrives is seen outside.
            let _ = socket.send_to(word.as_bytes(), address);
        }
    }
}

/// Connects to each address and leaves the word there; the ones that accepted.
pub fn reach(addresses: &[String], word: &str) -> Vec<String> {
    let reach = |address: &&String| {
        let address: Option<SocketAddr> = address.parse().ok();
        let stream = address.and_then(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok());
        stream.is_some_and(|mut stream| stream.write_all(word.as_bytes()).is_ok())
    };
    addresses.iter().filter(reach).cloned().collect()
}

/// Asks the proxy that the environment names for a host that nobody can have allowed.
pub fn ask_proxy() -> Option<Seen<String>> {
    let proxy = std::env::var("HTTPS_PROXY").or_else(|_| std::env::var("https_proxy")).ok()?;
    let address = proxy.trim_start_matches("http://").trim_end_matches('/');
    let address = address.rsplit_once('@').map_or(address, |(_, address)| address).to_owned();
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT * 5))?;
        write!(stream, "CONNECT {NOBODYS_HOST} HTTP/1.1\r\nHost: {NOBODYS_HOST}\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    };
    Some(ask().map_err(|error| error.to_string()))
}
