//! One entry of the proxy's allow-list: `HOST[:PORT]`, `*.example.org`.

use std::fmt;

use serde::{Serialize, Serializer};

use super::{Value, deserialize_as_value};

/// A host, or the subdomains of one, and the ports that may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// The host in lower case, without a trailing dot and without `*.`.
    host: String,
    /// Whether subdomains are meant, and the host itself is not.
    subdomains: bool,
    /// The port; `None` means 80 and 443.
    port: Option<u16>,
}

impl HostRule {
    /// Whether the rule allows this host, given in lower case without a trailing dot, on this port.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        let name = if self.subdomains {
            host.strip_suffix(&self.host).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
        } else {
            host == self.host
        };
        name && self.port.map_or(port == 80 || port == 443, |wanted| wanted == port)
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

deserialize_as_value!(HostRule);

impl Value for HostRule {
    const NAME: &'static str = "an allowed host";
    const FORM: &'static str = "`HOST`, `HOST:PORT` or `*.example.org`; names in ASCII, IPv6 in brackets";

    fn parse(text: &str) -> Result<Self, String> {
        // An address from a browser is what a newcomer pastes.
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split('/').next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
            return Err(format!("write the host only: `{host}`"));
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
        let is_ipv6 = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
        let is_name = host.len() <= 253 && host.split('.').all(is_label);
        if !(is_name || is_ipv6 && !subdomains) {
            return Err(String::new());
        }
        Ok(HostRule { host: host.to_owned(), subdomains, port })
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(text: &str) -> Option<HostRule> {
        HostRule::parse(text).ok()
    }

    #[test]
    fn a_host_without_a_port_means_http_and_https() {
        let rule = rule("Example.org");
        let allows = |host, port| rule.as_ref().is_some_and(|rule| rule.allows(host, port));
        assert!(allows("example.org", 80) && allows("example.org", 443));
        assert!(!allows("example.org", 22) && !allows("a.example.org", 443) && !allows("badexample.org", 443));
    }

    #[test]
    fn a_star_means_subdomains_only() {
        let rule = rule("*.example.org:22");
        let allows = |host, port| rule.as_ref().is_some_and(|rule| rule.allows(host, port));
        assert!(allows("a.example.org", 22) && allows("a.b.example.org", 22));
        assert!(
            !allows("example.org", 22)
                && !allows(".example.org", 22)
                && !allows("aexample.org", 22)
                && !allows("a.example.org", 443)
        );
    }

    #[test]
    fn refuses_what_is_not_a_host() {
        for text in [
            "", "*", "*.", "a..b", "a.", "http://a", "a/b", "me@a", "a:0", "a:x", "a b", "*.*.a", "ü.de", "[::g]",
            "::1", "*.[::1]", "a\n",
        ] {
            assert_eq!(rule(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(text in any::<String>()) {
            if let Ok(rule) = HostRule::parse(&text) {
                prop_assert_eq!(HostRule::parse(&rule.to_string()), Ok(rule));
            }
        }
    }
}
