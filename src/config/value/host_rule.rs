//! One entry of the proxy's allow-list: `HOST[:PORT]`, `*.example.org`.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value as Toml;

use super::{HostName, Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// A host, or the subdomains of one, and the ports that may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    host: HostName,
    /// Whether the rule allows the host's subdomains, and not the host itself.
    subdomains: bool,
    /// The port; `None` means 80 and 443.
    port: Option<u16>,
}

impl HostRule {
    /// Whether the rule allows this host on this port.
    pub fn allows(&self, host: &HostName, port: u16) -> bool {
        let name = match (&self.host, host) {
            // International names can imitate others, so each must be listed itself.
            (HostName::Name(listed), HostName::Name(asked)) if self.subdomains => asked
                .strip_suffix(listed.as_str())
                .is_some_and(|below| below.len() > 1 && below.ends_with('.') && !HostName::is_international(below)),
            (listed, asked) => listed == asked,
        };
        name && self.port.map_or(port == 80 || port == 443, |wanted| wanted == port)
    }

    /// Whether the rule names this host; an IPv6 address is given without brackets.
    pub fn names(&self, host: &str) -> bool {
        !self.subdomains && self.host.to_string().trim_matches(['[', ']']) == host
    }

    /// Returns the host that the rule names, and its port if there is one; `None` for subdomains.
    pub fn target(&self) -> Option<(&HostName, Option<u16>)> {
        (!self.subdomains).then_some((&self.host, self.port))
    }

    /// Returns the rule that would allow a host on a port, for `--allow-host`.
    pub fn wanted(host: &HostName, port: u16) -> Self {
        HostRule { host: host.clone(), subdomains: false, port: Some(port).filter(|port| ![80, 443].contains(port)) }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.subdomains { "*." } else { "" };
        match self.port {
            Some(port) => write!(f, "{star}{}:{port}", self.host),
            None => write!(f, "{star}{}", self.host),
        }
    }
}

impl Serialize for HostRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

read_as_text!(HostRule: { "type": "string" });

impl OptionValue for HostRule {
    fn to_toml(&self) -> Toml {
        Toml::String(self.to_string())
    }
}

/// The launcher passes rules to the proxy's process as JSON.
impl<'de> Deserialize<'de> for HostRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_text(&text).map_err(serde::de::Error::custom)
    }
}

impl Value for HostRule {
    const NAME: &'static str = "an allowed host";
    const FORM: &'static str = "`HOST`, `HOST:PORT` or `*.example.org`; names in ASCII, IPv6 in brackets";

    fn parse(text: &str) -> Result<Self, Reason> {
        // A URL copied from a browser.
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split('/').next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
            return Err(format!("write the host only: `{host}`").into());
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
            _ => (text, None),
        };
        let port = match port.map(super::Port::parse) {
            None => None,
            Some(Ok(port)) => Some(port.0),
            Some(Err(_)) => return Err("the port is not a number from 1 to 65535".into()),
        };
        let lower = name.to_ascii_lowercase();
        let (subdomains, host) = match lower.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, lower.as_str()),
        };
        // IPv6 addresses have several spellings, which users may choose from; the canonical one is
        // compared.
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')?.parse::<Ipv6Addr>().ok());
        let host = address.map_or(host.to_owned(), |address| format!("[{address}]"));
        // Without brackets the last part would be taken for a port.
        let host = HostName::parse(&host).map_err(|reason| {
            if host.contains(':') && !host.starts_with('[') { Reason::Form } else { reason.into() }
        })?;
        if subdomains && !matches!(host, HostName::Name(_)) {
            return Err("an address has no subdomains".into());
        }
        Ok(HostRule { host, subdomains, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(text: &str) -> Option<HostRule> {
        HostRule::parse(text).ok()
    }

    fn allows(rule: &str, host: &str, port: u16) -> bool {
        HostRule::parse(rule).is_ok_and(|rule| HostName::parse(host).is_ok_and(|host| rule.allows(&host, port)))
    }

    #[test]
    fn a_host_without_a_port_means_http_and_https() {
        let asked = |host, port| allows("Example.org", host, port);
        assert!(asked("example.org", 80) && asked("example.org", 443));
        assert!(!asked("example.org", 22) && !asked("a.example.org", 443) && !asked("badexample.org", 443));
    }

    #[test]
    fn a_star_means_subdomains_only() {
        let asked = |host, port| allows("*.example.org:22", host, port);
        assert!(asked("a.example.org", 22) && asked("a.b.example.org", 22));
        assert!(!asked("example.org", 22) && !asked("aexample.org", 22) && !asked("a.example.org", 443));
        assert!(!asked("xn--e1afmkfd.example.org", 22), "an international name is listed itself or not at all");
        assert!(allows("xn--e1afmkfd.example.org", "xn--e1afmkfd.example.org", 443));
    }

    #[test]
    fn addresses_are_compared_as_addresses() {
        assert!(allows("[0:0:0:0:0:0:0:1]:80", "[::1]", 80) && allows("127.0.0.1:3000", "127.0.0.1", 3000));
        assert!(!allows("*.0.0.1", "127.0.0.1", 80));
    }

    #[test]
    fn refuses_what_is_not_a_host() {
        for text in [
            "",
            "*",
            "*.",
            "a..b",
            "a.",
            "http://a",
            "a/b",
            "me@a",
            "a:0",
            "a:x",
            "a b",
            "*.*.a",
            "ü.de",
            "[::g]",
            "::1",
            "*.[::1]",
            "a\n",
            "127.1",
            "0x7f000001",
            "[::ffff:127.0.0.1]",
            "*.0.0.1",
        ] {
            assert_eq!(rule(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_rule_allows_what_it_names_and_nothing_that_merely_ends_like_it(
            name in "[a-z][a-z0-9]{0,8}(\\.[a-z][a-z0-9]{0,8}){1,3}", other in "[a-z][a-z0-9.-]{0,20}", port in 1..=u16::MAX,
        ) {
            let (exact, below) = (format!("{name}:{port}"), format!("*.{name}:{port}"));
            prop_assert!(allows(&exact, &name, port));
            prop_assert!(!allows(&below, &name, port));
            prop_assert_eq!(allows(&exact, &other, port), other == name);
            let glued = format!("{other}{name}");
            let is_below = other.ends_with('.') && HostName::parse(&glued).is_ok() && !HostName::is_international(&other);
            prop_assert_eq!(allows(&below, &glued, port), is_below);
        }

        #[test]
        fn what_is_shown_is_read_back(text in any::<String>()) {
            if let Ok(rule) = HostRule::parse(&text) {
                prop_assert_eq!(HostRule::parse(&rule.to_string()), Ok(rule));
            }
        }
    }
}
