//! Decides whether a connection is allowed: by the requested name, and by the address that it
//! resolves to. Pure.

use std::net::IpAddr;

use super::address::is_public;
use super::refusal::Refusal;
use crate::config::value::{HostName, HostRule};

/// An allow-list. Without a rule nothing is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<HostRule>,
    /// Whether every host is allowed, except for this machine itself.
    is_open: bool,
}

impl Policy {
    pub fn new(rules: Vec<HostRule>) -> Self {
        Policy { rules, is_open: false }
    }

    /// Allows every host, for a guest whose network is open. The loopback is the proxy's and not the
    /// guest's.
    pub fn open() -> Self {
        Policy { rules: Vec::new(), is_open: true }
    }

    /// Decides on the name, before it is resolved.
    pub fn check_host(&self, host: &HostName, port: u16) -> Result<(), Refusal> {
        if self.is_open || self.lists(host, port) { Ok(()) } else { Err(Refusal::not_listed(host, port)) }
    }

    /// Returns the addresses of an allowed host that may be connected to, at least one. A name
    /// server outside could make an allowed name resolve to an address in the local network; such
    /// an address is refused unless the list contains it.
    pub fn check_addresses(&self, host: &HostName, port: u16, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Refusal> {
        if self.is_open {
            let is_other = |address: &&IpAddr| !address.to_canonical().is_loopback() && !address.is_unspecified();
            let others: Vec<IpAddr> = addresses.iter().filter(is_other).copied().collect();
            return match (others.is_empty(), addresses.is_empty()) {
                (false, _) => Ok(others),
                (true, false) => Err(Refusal::loopback(host, port)),
                (true, true) => Err(Refusal::no_address(host, port)),
            };
        }
        let is_allowed = |address: &&IpAddr| {
            is_public(**address)
                || self.lists(&HostName::Address(**address), port)
                || (is_localhost(host) && address.is_loopback())
        };
        let allowed: Vec<IpAddr> = addresses.iter().filter(is_allowed).copied().collect();
        match (allowed.is_empty(), addresses.first()) {
            (false, _) => Ok(allowed),
            (true, Some(address)) => Err(Refusal::local_address(host, port, *address)),
            (true, None) => Err(Refusal::no_address(host, port)),
        }
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    fn lists(&self, host: &HostName, port: u16) -> bool {
        self.rules.iter().any(|rule| rule.allows(host, port))
    }
}

/// `localhost` always means this machine, whatever a name server answers.
pub fn is_localhost(host: &HostName) -> bool {
    matches!(host, HostName::Name(name) if name == "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Value;

    fn policy(rules: &[&str]) -> Policy {
        Policy::new(rules.iter().filter_map(|rule| HostRule::parse(rule).ok()).collect())
    }

    fn reaches(policy: &Policy, host: &str, port: u16, address: &str) -> bool {
        let (Ok(host), Ok(address)) = (HostName::parse(host), address.parse()) else { return false };
        policy.check_host(&host, port).is_ok() && policy.check_addresses(&host, port, &[address]).is_ok()
    }

    #[test]
    fn without_a_rule_nothing_is_allowed() {
        assert!(!reaches(&Policy::default(), "example.org", 443, "1.1.1.1"));
    }

    #[test]
    fn attack_23_a_listed_name_does_not_lead_into_the_local_network() {
        let listed = policy(&["example.org", "*.example.org", "intranet.example"]);
        assert!(
            reaches(&listed, "example.org", 443, "1.1.1.1") && reaches(&listed, "a.example.org", 80, "2606:4700::1")
        );
        for address in ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:10.0.0.1"]
        {
            assert!(!reaches(&listed, "example.org", 443, address), "{address}");
            assert!(!reaches(&listed, "a.example.org", 443, address), "{address}");
        }
        // The address listed itself, on the port that is listed with it.
        let literal = policy(&["intranet.example", "10.1.2.3"]);
        assert!(
            reaches(&literal, "intranet.example", 443, "10.1.2.3") && reaches(&literal, "10.1.2.3", 80, "10.1.2.3")
        );
        assert!(!reaches(&literal, "intranet.example", 443, "10.1.2.4"));
        let other_port = policy(&["intranet.example:22", "10.1.2.3"]);
        assert!(!reaches(&other_port, "intranet.example", 22, "10.1.2.3"));
    }

    #[test]
    fn localhost_means_this_machine_and_only_when_listed() {
        let listed = policy(&["localhost:3000"]);
        assert!(reaches(&listed, "localhost", 3000, "127.0.0.1") && reaches(&listed, "localhost", 3000, "::1"));
        assert!(!reaches(&listed, "localhost", 3000, "10.0.0.1") && !reaches(&listed, "localhost", 80, "127.0.0.1"));
        assert!(!reaches(&listed, "127.0.0.1", 3000, "127.0.0.1"));
    }

    #[test]
    fn of_several_addresses_only_the_allowed_ones_are_used() {
        let public: IpAddr = IpAddr::from([1, 1, 1, 1]);
        let mixed = [IpAddr::from([10, 0, 0, 1]), public];
        let host = HostName::Name("example.org".into());
        assert_eq!(policy(&["example.org"]).check_addresses(&host, 443, &mixed), Ok(vec![public]));
    }
}
