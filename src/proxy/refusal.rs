//! The refusal of a request, as the guest, the log and the user read it. It is a single line of
//! ASCII, because it is sent as an HTTP status line and contains text from the guest.

use std::fmt::{self, Write};
use std::net::IpAddr;

use crate::config::value::{HostName, HostRule};

/// How many bytes of the guest's text are repeated.
const MAX_TEXT: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code.
    pub status: u16,
    /// The requested target; empty if it could not be read.
    pub target: String,
    /// The reason, and the flag that would allow the request.
    pub reason: String,
    /// The address that an allowed host leads to, if it is refused for that address.
    pub address: Option<IpAddr>,
}

impl Refusal {
    /// Refuses a request that is malformed or ambiguous.
    pub fn malformed(target: &[u8], reason: impl fmt::Display) -> Self {
        let reason = one_line(reason.to_string().as_bytes());
        Refusal { status: 400, target: one_line(target), reason, address: None }
    }

    /// Refuses a client that does not know the password of the session.
    pub fn no_login() -> Self {
        Refusal { status: 407, ..Self::malformed(b"", "this proxy is for one sandbox, which knows its password") }
    }

    /// Refuses an address of this machine, which is another one inside.
    pub fn loopback(host: &HostName, port: u16) -> Self {
        Self::forbidden(host, port, "it is this machine's loopback, which is reached without a proxy".to_owned())
    }

    /// Refuses a host that no rule allows.
    pub fn not_listed(host: &HostName, port: u16) -> Self {
        let flag = HostRule::wanted(host, port);
        Self::forbidden(host, port, format!("the host is not allowed; `--allow-host {flag}` would allow it"))
    }

    /// Refuses a host that resolves to an address outside the public internet.
    pub fn local_address(host: &HostName, port: u16, address: IpAddr) -> Self {
        let flag = HostRule::wanted(&HostName::Address(address), port);
        let reason =
            format!("it resolves to {address}, which is not a public address; add `--allow-host {flag}` to allow it");
        Refusal { address: Some(address), ..Self::forbidden(host, port, reason) }
    }

    pub fn no_address(host: &HostName, port: u16) -> Self {
        Self::bad_gateway(host, port, "could not resolve host: the name has no address")
    }

    pub fn unresolved(host: &HostName, port: u16, error: &std::io::Error) -> Self {
        Self::bad_gateway(host, port, &format!("could not resolve host: {error}"))
    }

    pub fn unreachable(host: &HostName, port: u16, error: &std::io::Error) -> Self {
        Self::bad_gateway(host, port, &format!("failed to connect: {error}"))
    }

    fn bad_gateway(host: &HostName, port: u16, reason: &str) -> Self {
        Refusal { status: 502, ..Self::forbidden(host, port, one_line(reason.as_bytes())) }
    }

    fn forbidden(host: &HostName, port: u16, reason: String) -> Self {
        Refusal { status: 403, target: format!("{host}:{port}"), reason, address: None }
    }

    /// Whether the policy refused the request, as opposed to the network.
    pub fn is_by_policy(&self) -> bool {
        self.status < 500
    }

    /// Formats the HTTP response. Many programs show nothing but the status line, so it contains
    /// the whole message.
    pub fn response(&self) -> String {
        let line = self.to_string();
        let login = if self.status == 407 { "Proxy-Authenticate: Basic realm=\"sandpen\"\r\n" } else { "" };
        format!(
            "HTTP/1.1 {} {line}\r\n{login}Content-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{line}\n",
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

/// Escapes everything but printable ASCII, and truncates.
pub fn one_line(bytes: &[u8]) -> String {
    let mut line = String::new();
    for byte in bytes.iter().take(MAX_TEXT) {
        let _ = write!(line, "{}", byte.escape_ascii());
    }
    if bytes.len() > MAX_TEXT {
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
    fn text_from_the_guest_stays_in_the_line() {
        let refusal = Refusal::malformed(b"a\r\nX: y\x1b[31m\xff", "no");
        let head = refusal.response();
        assert_eq!(head.matches("\r\n").count(), 5, "{head}");
        assert!(head.bytes().all(|byte| byte.is_ascii_graphic() || b" \r\n".contains(&byte)), "{head}");
        assert!(Refusal::malformed(&[b'a'; 100_000], "no").response().len() < 1200);
    }
}
