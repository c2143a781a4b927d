//! A host in its canonical spelling, so that the proxy compares the name that it connects to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A name in lower case without a trailing dot, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl HostName {
    /// Parses the canonical spelling in any case, and refuses all others. It corrects nothing else: a
    /// filter can be bypassed where two programs correct a name differently. Upper and lower case are
    /// the same to every resolver.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(inner) = text.strip_prefix('[') {
            return ipv6(inner.strip_suffix(']').ok_or("the bracket is not closed")?);
        }
        if text.is_empty() {
            return Err("the host is empty");
        }
        if text.contains('@') {
            return Err("user information is not allowed");
        }
        if !text.is_ascii() {
            return Err("it is not ASCII; an international name is written as `xn--…`");
        }
        if text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
            return Err("it contains control characters or blanks");
        }
        if text.ends_with('.') {
            return Err("it ends with a dot");
        }
        if text.len() > 253 || !text.split('.').all(is_label) {
            return Err("it is not a host name");
        }
        let text = &text.to_ascii_lowercase();
        if !ends_in_a_number(text) {
            return Ok(HostName::Name(text.to_owned()));
        }
        // C libraries read these as addresses: `127.1`, `2130706433`, `0x7f.1`, `0177.0.0.1`.
        let address = text.parse::<Ipv4Addr>().map_err(|_| "an IPv4 address is written as four decimal numbers")?;
        Ok(HostName::Address(IpAddr::V4(address)))
    }

    /// Whether any label is an encoded international name.
    pub fn is_international(name: &str) -> bool {
        name.split('.').any(|label| label.starts_with("xn--"))
    }
}

fn ipv6(text: &str) -> Result<HostName, &'static str> {
    let address = text.parse::<Ipv6Addr>().map_err(|_| "it is not an IPv6 address")?;
    if carries_ipv4(address) {
        return Err("an IPv4 address is not written as IPv6");
    }
    if address.to_string() != text {
        return Err("the IPv6 address is not in its canonical form");
    }
    Ok(HostName::Address(IpAddr::V6(address)))
}

/// Whether an address is mapped (`::ffff:a.b.c.d`) or compatible (`::a.b.c.d`); `::` and `::1` are
/// not.
fn carries_ipv4(address: Ipv6Addr) -> bool {
    let is_compatible = address.segments()[..6] == [0; 6] && address.segments()[6] != 0;
    address.to_ipv4_mapped().is_some() || is_compatible
}

fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hexadecimal || last.bytes().all(|b| b.is_ascii_digit())
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostName::Name(name) => f.write_str(name),
            HostName::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            HostName::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_spelling_only() {
        for text in ["example.org", "a_b.c-d.e", "xn--bcher-kva.de", "localhost", "127.0.0.1", "[::1]", "[2001:db8::1]"]
        {
            assert_eq!(HostName::parse(text).map(|host| host.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(HostName::parse("Example.ORG"), HostName::parse("example.org"));
        for text in [
            "",
            ".",
            "example.org.",
            "0X7F000001",
            "me@example.org",
            "bücher.de",
            "exam\u{0}ple.org",
            "a\r\nb",
            "a b",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.0.0.1.",
            "127.0.0.01",
            "1.2.3.4.5",
            "0x7f.0.0.1",
            "a.0x1",
            "[::ffff:127.0.0.1]",
            "[::7f00:1]",
            "[::127.0.0.1]",
            "[0:0::1]",
            "[::1",
            "[::1%1]",
            "[FE80::1]",
            "::1",
            "a..b",
            "-a.b",
            "a/b",
            "a\\b",
            "a#b",
            "a?b",
            "a%2e",
            "*.example.org",
        ] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_parses_is_already_canonical(text in "[a-z0-9.:x\\[\\]-]{0,24}") {
            if let Ok(host) = HostName::parse(&text) {
                prop_assert_eq!(host.to_string(), text);
            }
        }

        #[test]
        fn what_any_text_parses_to_holds_no_surprise(text in any::<String>()) {
            if let Ok(HostName::Name(name)) = HostName::parse(&text) {
                prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)));
            }
        }
    }
}
