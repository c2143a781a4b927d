//! Decides whether a connection goes straight to its host or through the proxy of this machine's
//! network, which `HTTPS_PROXY` and `NO_PROXY` name.

use std::net::IpAddr;

use base64ct::{Base64, Encoding};

use super::TlsError;
use crate::config::value::HostName;
use crate::host::Environment;

/// Looked up in this order, as curl does.
const PROXY_VARIABLES: &[&str] = &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const EXCEPTION_VARIABLES: &[&str] = &["no_proxy", "NO_PROXY"];

/// How hosts are reached.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Route {
    proxy: Option<NetworkProxy>,
    exceptions: Vec<String>,
}

/// The proxy of this machine's network.
#[derive(Clone, PartialEq, Eq)]
pub struct NetworkProxy {
    pub host: HostName,
    pub port: u16,
    /// The value of `Proxy-Authorization`, which is secret.
    authorization: Option<String>,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let proxy = self.proxy.as_ref().map(|proxy| format!("{}:{}", proxy.host, proxy.port));
        f.debug_struct("Route").field("proxy", &proxy).field("exceptions", &self.exceptions).finish()
    }
}

impl Route {
    pub fn read(env: &Environment) -> Result<Self, TlsError> {
        let named = PROXY_VARIABLES.iter().find_map(|name| Some((*name, env.text(name)?)));
        let proxy = named
            .map(|(name, value)| NetworkProxy::parse(value).map_err(|reason| TlsError::NotAProxy { name, reason }));
        let exceptions = EXCEPTION_VARIABLES.iter().find_map(|name| env.text(name)).unwrap_or_default();
        let exceptions = exceptions.split([',', ' ']).filter(|entry| !entry.is_empty()).map(str::to_ascii_lowercase);
        Ok(Route { proxy: proxy.transpose()?, exceptions: exceptions.collect() })
    }

    /// Returns the network's proxy, whatever the host.
    pub fn proxy(&self) -> Option<&NetworkProxy> {
        self.proxy.as_ref()
    }

    /// Returns the proxy for a host; `None` if it is reached straight.
    pub fn proxy_for(&self, host: &HostName, port: u16) -> Option<&NetworkProxy> {
        let is_own = match host {
            HostName::Name(name) => name == "localhost",
            HostName::Address(address) => address.is_loopback(),
        };
        let is_exception = || self.exceptions.iter().any(|entry| excepts(entry, host, port));
        self.proxy.as_ref().filter(|_| !is_own && !is_exception())
    }
}

impl NetworkProxy {
    fn parse(value: &str) -> Result<Self, &'static str> {
        let rest = match value.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) => return Err("only proxies of the form `http://` are supported"),
            None => value,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, authority),
        };
        let after = address.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match address[after..].find(':') {
            Some(colon) => {
                let port = address[after + colon + 1..].parse().ok().filter(|port| *port > 0);
                (&address[..after + colon], port.ok_or("its port is not a number from 1 to 65535")?)
            }
            None => (address, 80),
        };
        let host = HostName::parse(host)?;
        let authorization = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            let pair = [decoded(user), b":".to_vec(), decoded(password)].concat();
            format!("Basic {}", Base64::encode_string(&pair))
        });
        Ok(NetworkProxy { host, port, authorization })
    }

    /// Returns the request for a tunnel to a host.
    pub fn request(&self, host: &HostName, port: u16) -> String {
        let login = self.authorization.as_ref().map(|value| format!("Proxy-Authorization: {value}\r\n"));
        format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{}\r\n", login.unwrap_or_default())
    }
}

/// Replaces `%XX`.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

/// Whether an entry of `NO_PROXY` names a host: `*`, a name that includes its subdomains, an
/// address, or a range of addresses; names and addresses may have a port.
fn excepts(entry: &str, host: &HostName, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let HostName::Address(address) = host
        && let Some((network, bits)) = entry.split_once('/')
    {
        return is_in_network(*address, network, bits);
    }
    let (name, entry_port) = match entry.rsplit_once(':') {
        Some((name, digits)) if name.ends_with(']') || !name.contains(':') => (name, digits.parse::<u16>().ok()),
        _ => (entry, None),
    };
    if entry_port.is_some_and(|entry_port| entry_port != port) {
        return false;
    }
    match host {
        HostName::Address(address) => {
            let name = name.trim_start_matches('[').trim_end_matches(']');
            name.parse::<IpAddr>().is_ok_and(|named| named == *address)
        }
        HostName::Name(host) => {
            let name = name.trim_start_matches("*.").trim_start_matches('.');
            let below = host.strip_suffix(name);
            !name.is_empty() && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
        }
    }
}

fn is_in_network(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(pairs: &[(&str, &str)]) -> Result<Route, TlsError> {
        Route::read(&pairs.iter().copied().collect())
    }

    fn is_proxied(route: &Route, host: &str, port: u16) -> bool {
        HostName::parse(host).is_ok_and(|host| route.proxy_for(&host, port).is_some())
    }

    #[test]
    fn a_proxy_is_used_for_all_hosts_but_the_exceptions() -> Result<(), TlsError> {
        let route = route(&[
            ("HTTPS_PROXY", "http://me:p%40ss@proxy.example:3128/"),
            ("NO_PROXY", "intern.example,.corp.example, 10.0.0.0/8,odd.example:8443"),
        ])?;
        for (host, port) in [("api.example", 443), ("xintern.example", 443), ("11.0.0.1", 443), ("odd.example", 443)] {
            assert!(is_proxied(&route, host, port), "{host}:{port}");
        }
        for (host, port) in [
            ("intern.example", 443),
            ("a.intern.example", 443),
            ("git.corp.example", 443),
            ("10.1.2.3", 443),
            ("odd.example", 8443),
            ("localhost", 443),
            ("127.0.0.1", 443),
        ] {
            assert!(!is_proxied(&route, host, port), "{host}:{port}");
        }
        let host = HostName::Name("api.example".into());
        let request = route.proxy_for(&host, 443).map(|proxy| proxy.request(&host, 443)).unwrap_or_default();
        let login = Base64::encode_string(b"me:p@ss");
        assert!(request.contains(&format!("\r\nProxy-Authorization: Basic {login}\r\n")), "{request}");
        assert!(!format!("{route:?}").contains("p%40ss") && !format!("{route:?}").contains(&login));
        Ok(())
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_an_error() {
        for value in ["socks5://proxy", "https://proxy", "http://", "http://a:0", "http://a:b"] {
            assert!(
                matches!(route(&[("https_proxy", value)]), Err(TlsError::NotAProxy { name: "https_proxy", .. })),
                "{value}"
            );
        }
        assert!(route(&[("NO_PROXY", "*"), ("ALL_PROXY", "proxy")]).is_ok_and(|route| !is_proxied(
            &route,
            "a.example",
            443
        )));
        assert!(route(&[]).is_ok_and(|route| !is_proxied(&route, "a.example", 443)));
    }
}
