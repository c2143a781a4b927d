//! Resolves a host to its addresses, once per connection; the guest itself cannot reach a name
//! server.

use std::io;
#[cfg(target_os = "linux")]
use std::net::SocketAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::policy::is_localhost;
use crate::config::value::HostName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// A file in the format of `/etc/hosts`.
    pub hosts: std::path::PathBuf,
    /// A file in the format of `/etc/resolv.conf`. Its search list is ignored: names must be
    /// complete.
    pub servers: std::path::PathBuf,
}

impl Default for Resolver {
    fn default() -> Self {
        Resolver { hosts: "/etc/hosts".into(), servers: "/etc/resolv.conf".into() }
    }
}

impl Resolver {
    /// Returns all addresses, IPv4 first.
    pub fn resolve(&self, host: &HostName) -> io::Result<Vec<IpAddr>> {
        let name = match host {
            HostName::Address(address) => return Ok(vec![*address]),
            // Neither the file nor a name server may redefine it.
            host if is_localhost(host) => return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            HostName::Name(name) => name,
        };
        let text = std::fs::read_to_string(&self.hosts).unwrap_or_default();
        let mut addresses = in_hosts(&text, name);
        if addresses.is_empty() {
            addresses = self.ask(name)?;
        }
        addresses.sort_by_key(IpAddr::is_ipv6);
        Ok(addresses)
    }

    #[cfg(target_os = "linux")]
    fn ask(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let text = std::fs::read_to_string(&self.servers).unwrap_or_default();
        super::dns::lookup(&servers(&text), name)
    }

    /// Uses the system's resolver: the program is not static here.
    #[cfg(not(target_os = "linux"))]
    fn ask(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        std::net::ToSocketAddrs::to_socket_addrs(&(name, 0)).map(|found| found.map(|address| address.ip()).collect())
    }
}

fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let found = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    });
    found.collect()
}

/// Follows the C library: three servers at most, this machine if there is none.
#[cfg(target_os = "linux")]
fn servers(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        // The address of a link-local server names its interface, as in `fe80::1%eth0`.
        let (address, zone) = address.split_once('%').map_or((address, None), |(address, zone)| (address, Some(zone)));
        match (address.parse().ok()?, zone) {
            (IpAddr::V6(address), Some(zone)) => {
                Some(std::net::SocketAddrV6::new(address, 53, 0, interface(zone)?).into())
            }
            (address, _) => Some(SocketAddr::new(address, 53)),
        }
    });
    let servers: Vec<SocketAddr> = addresses.take(3).collect();
    if servers.is_empty() { vec![(Ipv4Addr::LOCALHOST, 53).into()] } else { servers }
}

#[cfg(target_os = "linux")]
fn interface(zone: &str) -> Option<u32> {
    let by_name = || std::fs::read_to_string(format!("/sys/class/net/{zone}/ifindex")).ok()?.trim().parse().ok();
    zone.parse().ok().or_else(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_parsed_like_the_c_library_does() {
        let text =
            "# comment\n10.0.0.1\tA.example a # b.example\n::1 b.example\n10.0.0.2 a.example\nnonsense a.example\n";
        assert_eq!(in_hosts(text, "a.example"), [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])]);
        assert_eq!(in_hosts(text, "b.example"), [IpAddr::V6(Ipv6Addr::LOCALHOST)]);
        assert!(in_hosts(text, "c.example").is_empty());
    }

    #[test]
    fn localhost_is_not_looked_up_in_a_file() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), "6.6.6.6 localhost\n")?;
        let resolver = Resolver { hosts: file.path().into(), servers: "/nonexistent".into() };
        let addresses = resolver.resolve(&HostName::Name("localhost".into()))?;
        assert!(addresses.iter().all(IpAddr::is_loopback));
        Ok(())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn name_servers_are_listed_in_resolv_conf() {
        let text = "search example\nnameserver 10.0.0.1\nnameserver fe80::1%1\noptions x\nnameserver x\n";
        let expected = ["10.0.0.1:53", "[fe80::1%1]:53"].map(|text| text.parse().ok());
        assert_eq!(servers(text).into_iter().map(Some).collect::<Vec<_>>(), expected);
        assert_eq!(servers("").first().map(ToString::to_string), Some("127.0.0.1:53".into()));
    }
}
