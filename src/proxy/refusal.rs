//! Why a connection is refused, as the guest, the log and the user read it. All of it is ASCII on one line: it may end in a
//! status line, and names come from the guest.

use std::fmt::{self, Write};
use std::net::IpAddr;

use crate::config::value::{HostName, HostRule};

/// The longest name that is repeated.
const LONGEST: usize = 256;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The target as it was asked for, as far as it could be read.
    pub target: String,
    /// Why, and what would allow it.
    pub reason: String,
}

impl Refusal {
    /// The request is malformed, or tries a trick.
    pub fn malformed(target: &[u8], reason: impl fmt::Display) -> Self {
        Refusal { status: 400, target: one_line(target), reason: one_line(reason.to_string().as_bytes()) }
    }

    /// No rule allows the host.
    pub fn not_listed(host: &HostName, port: u16) -> Self {
        let flag = HostRule::wanted(host, port);
        Self::forbidden(host, port, format!("the host is not allowed; `--allow-host {flag}` would allow it"))
    }

    /// The host leads to an address that is not the internet's.
    pub fn local_address(host: &HostName, port: u16, address: IpAddr) -> Self {
        let flag = HostRule::wanted(&HostName::Address(address), port);
        let reason = format!(
            "it leads to {address}, which is not a public address; `--allow-host {flag}` beside it would allow that"
        );
        Self::forbidden(host, port, reason)
    }

    /// The name has no address.
    pub fn no_such_host(host: &HostName, port: u16) -> Self {
        Refusal { status: 502, ..Self::forbidden(host, port, "the name has no address".into()) }
    }

    /// The name cannot be resolved, or the host not be reached.
    pub fn unreachable(host: &HostName, port: u16, error: &std::io::Error) -> Self {
        let reason = one_line(format!("it cannot be reached: {error}").as_bytes());
        Refusal { status: 502, ..Self::forbidden(host, port, reason) }
    }

    fn forbidden(host: &HostName, port: u16, reason: String) -> Self {
        Refusal { status: 403, target: format!("{host}:{port}"), reason }
    }

    /// Whether the policy said no, as opposed to the network.
    pub fn is_by_policy(&self) -> bool {
        self.status < 500
    }

    /// The whole answer to the guest. Many programs show the status line and nothing else, so it says all.
    pub fn response(&self) -> String {
        let line = self.to_string();
        format!(
            "HTTP/1.1 {} {line}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{line}\n",
            self.status,
            line.len() + 1
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { target, reason, .. } = self;
        if target.is_empty() { write!(f, "sandpen: {reason}") } else { write!(f, "sandpen: {target}: {reason}") }
    }
}

/// Printable ASCII, everything else escaped, cut to a length that a log can bear.
pub fn one_line(bytes: &[u8]) -> String {
    let mut line = String::new();
    for byte in bytes.iter().take(LONGEST) {
        let _ = write!(line, "{}", byte.escape_ascii());
    }
    if bytes.len() > LONGEST {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_reads_the_host_and_the_flag() {
        let host = HostName::Name("example.org".into());
        let line = |port| Refusal::not_listed(&host, port).to_string();
        assert_eq!(
            line(443),
            "sandpen: example.org:443: the host is not allowed; `--allow-host example.org` would allow it"
        );
        assert_eq!(
            line(22),
            "sandpen: example.org:22: the host is not allowed; `--allow-host example.org:22` would allow it"
        );
    }

    #[test]
    fn nothing_from_the_guest_breaks_out_of_the_line() {
        let refusal = Refusal::malformed(b"a\r\nX: y\x1b[31m\xff", "no");
        let head = refusal.response();
        assert_eq!(head.matches("\r\n").count(), 5, "{head}");
        assert!(head.bytes().all(|byte| byte.is_ascii_graphic() || b" \r\n".contains(&byte)), "{head}");
        assert!(Refusal::malformed(&[b'a'; 100_000], "no").response().len() < 1200);
    }
}
