//! Parses the addresses that sandpen requests.

use std::fmt;

use crate::config::value::HostName;

/// An address with `http://` or `https://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub is_secure: bool,
    pub host: HostName,
    pub port: u16,
    /// With the query, and a `/` at the start.
    pub target: String,
}

impl Url {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let is_secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err("its scheme is neither https nor http"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err("it contains a login");
        }
        let target = target.split('#').next().unwrap_or_default();
        if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it contains characters that must be escaped");
        }
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let after = authority.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match authority[after..].find(':') {
            Some(colon) => {
                let port = authority[after + colon + 1..].parse().ok().filter(|port| *port > 0);
                (&authority[..after + colon], port.ok_or("its port is not a number from 1 to 65535")?)
            }
            None => (authority, if is_secure { 443 } else { 80 }),
        };
        Ok(Url { is_secure, host: HostName::parse(host)?, port, target })
    }

    /// Completes an address that a server names, which may be only a path.
    pub fn join(&self, location: &str) -> Result<Self, &'static str> {
        if location.starts_with("//") {
            return Url::parse(&format!("{}:{location}", if self.is_secure { "https" } else { "http" }));
        }
        if location.starts_with('/') {
            return Url::parse(&format!("{}{location}", self.origin()));
        }
        Url::parse(location)
    }

    /// Tells whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            HostName::Name(name) => name == "localhost",
            HostName::Address(address) => address.is_loopback(),
        }
    }

    pub fn is_same_server(&self, other: &Url) -> bool {
        (self.is_secure, &self.host, self.port) == (other.is_secure, &other.host, other.port)
    }

    /// Returns the value of the header `Host`.
    pub fn authority(&self) -> String {
        let host = match &self.host {
            HostName::Address(address) if address.is_ipv6() => format!("[{address}]"),
            host => host.to_string(),
        };
        let usual = if self.is_secure { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    fn origin(&self) -> String {
        format!("{}://{}", if self.is_secure { "https" } else { "http" }, self.authority())
    }
}

impl fmt::Display for Url {
    /// Without the query, which may contain a signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.target.split('?').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_completed() -> Result<(), &'static str> {
        let url = Url::parse("https://ghcr.io/v2/a/b?x=y#z")?;
        assert_eq!((url.port, url.target.as_str(), url.authority().as_str()), (443, "/v2/a/b?x=y", "ghcr.io"));
        assert_eq!(url.to_string(), "https://ghcr.io/v2/a/b");
        assert_eq!(url.join("/other")?.to_string(), "https://ghcr.io/other");
        assert_eq!(url.join("https://cdn.example:8443/x?sig=1")?.port, 8443);
        assert!(Url::parse("http://127.0.0.1:5000")?.is_loopback() && !url.is_loopback());
        assert_eq!(Url::parse("http://[::1]:5000/")?.authority(), "[::1]:5000");
        for wrong in
            ["ghcr.io", "ftp://x/", "https://", "https://u:p@x/", "https://x:0/", "https://x/a b", "https://x/\r\nA:"]
        {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }
}
