//! The URL of a remote that sandpen can reach for a sandbox: SSH, HTTPS, or HTTP on the loopback.

use core::net::IpAddr;
use std::fmt;

/// Where a remote's repository is. Holds only what can be neither an option nor a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteUrl {
    Ssh(SshRemote),
    Http(HttpRemote),
}

/// A repository that `ssh` reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshRemote {
    pub user: Option<String>,
    pub host: String,
    pub port: Option<u16>,
    /// Relative to the home directory on the server unless it begins with `/`.
    pub path: String,
}

/// A repository behind a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRemote {
    pub is_encrypted: bool,
    /// User and password as in the URL, still escaped.
    user_information: Option<String>,
    /// The host, and the port if it is named.
    pub authority: String,
    /// Begins with `/` and does not end with one.
    pub path: String,
}

impl RemoteUrl {
    /// Parses a URL as Git does; returns `None` for everything that sandpen does not handle.
    pub fn parse(text: &str) -> Option<Self> {
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return None;
        }
        if let Some(rest) = text.strip_prefix("ssh://") {
            return ssh_url(rest).map(RemoteUrl::Ssh);
        }
        if let Some(rest) = text.strip_prefix("https://") {
            return http_url(rest, true).map(RemoteUrl::Http);
        }
        if let Some(rest) = text.strip_prefix("http://") {
            return http_url(rest, false).filter(HttpRemote::is_loopback).map(RemoteUrl::Http);
        }
        scp_form(text).map(RemoteUrl::Ssh)
    }
}

/// Shows no password.
impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteUrl::Ssh(ssh) => {
                let port = ssh.port.map_or(String::new(), |port| format!(":{port}"));
                let host = if ssh.host.contains(':') { format!("[{}]", ssh.host) } else { ssh.host.clone() };
                let slash = if ssh.path.starts_with('/') { "" } else { "/~/" };
                let user = ssh.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
                write!(f, "ssh://{user}{host}{port}{slash}{}", ssh.path)
            }
            RemoteUrl::Http(http) => f.write_str(&http.public_url()),
        }
    }
}

impl SshRemote {
    /// Returns the argument by which `ssh` finds the host. It does not begin with `-`.
    pub fn destination(&self) -> String {
        self.user.as_ref().map_or(self.host.clone(), |user| format!("{user}@{}", self.host))
    }
}

impl HttpRemote {
    /// Returns the URL without user and password.
    pub fn public_url(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    pub fn protocol(&self) -> &'static str {
        if self.is_encrypted { "https" } else { "http" }
    }

    /// Returns the user and the password of the URL.
    pub fn login(&self) -> (Option<String>, Option<String>) {
        let Some(information) = &self.user_information else { return (None, None) };
        match information.split_once(':') {
            Some((user, password)) => (unescaped(user), unescaped(password)),
            None => (unescaped(information), None),
        }
    }

    fn is_loopback(&self) -> bool {
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

fn ssh_url(rest: &str) -> Option<SshRemote> {
    let (authority, path) = rest.split_at(rest.find('/')?);
    let (user, server) = match authority.rsplit_once('@') {
        Some((user, server)) => (Some(unescaped(user)?), server),
        None => (None, authority),
    };
    let (host, port) = host_and_port(server)?;
    let path = unescaped(path)?;
    // `/~user/path` is relative to a home directory.
    let path = path.strip_prefix('/').filter(|path| path.starts_with('~')).map_or(path.clone(), str::to_owned);
    checked(SshRemote { user, host, port, path })
}

/// Parses `[user@]host:path`. A text with a slash before the first colon is a path for Git.
fn scp_form(text: &str) -> Option<SshRemote> {
    let (server, path) = text.split_once(':')?;
    if server.contains('/') || path.starts_with(':') || path.starts_with("//") {
        return None;
    }
    let (user, host) = match server.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, server),
    };
    checked(SshRemote { user, host: host.to_owned(), port: None, path: path.to_owned() })
}

/// Refuses what `ssh` could take for an option, or the server for something else than a path.
fn checked(remote: SshRemote) -> Option<SshRemote> {
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    let is_user = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '@' | '%' | '=' | '~');
    let is_plain = !remote.host.is_empty()
        && remote.host.chars().all(is_host)
        && remote.user.as_ref().is_none_or(|user| !user.is_empty() && user.chars().all(is_user))
        && !remote.destination().starts_with('-')
        && !remote.host.starts_with('-')
        && !remote.path.is_empty()
        && !remote.path.starts_with('-')
        && !remote.path.chars().any(char::is_control);
    is_plain.then_some(remote)
}

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<core::net::Ipv6Addr>().ok()?;
        let port = match port.strip_prefix(':') {
            Some(port) => Some(number(port)?),
            None if port.is_empty() => None,
            None => return None,
        };
        return Some((host.to_owned(), port));
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host.to_owned(), if port.is_empty() { None } else { Some(number(port)?) })),
        None => Some((text.to_owned(), None)),
    }
}

fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn http_url(rest: &str, is_encrypted: bool) -> Option<HttpRemote> {
    let (authority, path) = rest.split_at(rest.find('/')?);
    let (user_information, server) = match authority.rsplit_once('@') {
        Some((information, server)) => (Some(information.to_owned()), server),
        None => (None, authority),
    };
    let (host, port) = host_and_port(server)?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    let is_path = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@%/".contains(c);
    let path = path.trim_end_matches('/');
    if host.is_empty() || !host.chars().all(is_host) || path.is_empty() || !path.chars().all(is_path) {
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_ascii_lowercase() };
    let authority = port.map_or(host.clone(), |port| format!("{host}:{port}"));
    Some(HttpRemote { is_encrypted, user_information, authority, path: path.to_owned() })
}

/// Resolves `%41`. Returns `None` if the result is not text without control characters.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(rest.next()?)? * 16 + digit(rest.next()?)?);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ssh(user: Option<&str>, host: &str, port: Option<u16>, path: &str) -> Option<RemoteUrl> {
        let user = user.map(str::to_owned);
        Some(RemoteUrl::Ssh(SshRemote { user, host: host.into(), port, path: path.into() }))
    }

    #[test]
    fn ssh_is_read_as_git_reads_it() {
        for (text, expected) in [
            ("git@example.org:me/app.git", ssh(Some("git"), "example.org", None, "me/app.git")),
            ("host:/srv/app", ssh(None, "host", None, "/srv/app")),
            ("ssh://git@host:2222/srv/a%20b", ssh(Some("git"), "host", Some(2222), "/srv/a b")),
            ("ssh://host/~me/app", ssh(None, "host", None, "~me/app")),
            ("ssh://[::1]:22/a", ssh(None, "::1", Some(22), "/a")),
        ] {
            assert_eq!(RemoteUrl::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn everything_else_is_not_handled() {
        for text in [
            "",
            "/srv/app",
            "../app",
            "./a:b",
            "file:///srv/app",
            "git://host/a",
            "ext::sh -c id",
            "-oProxyCommand=id:a",
            "-a@host:b",
            "ssh://-oProxyCommand=id/a",
            "ssh://host",
            "ssh://host/a%0ab",
            "ssh://host:0/a",
            "ssh://host:99999/a",
            "host:-a",
            "host:",
            "ho st:a",
            "http://example.com/a",
            "http://127.0.0.1.example.com/a",
            "https://host/a?b=c",
            "https://host/a#b",
            "https://host",
            "https:///a",
            "https://host/a\"b",
        ] {
            assert_eq!(RemoteUrl::parse(text), None, "{text}");
        }
    }

    #[test]
    fn http_keeps_the_login_to_itself() {
        let url = RemoteUrl::parse("https://me:pass%40word@Git.example:8443/a/b/").expect("a URL");
        assert_eq!(url.to_string(), "https://git.example:8443/a/b");
        let RemoteUrl::Http(http) = url else { panic!("not HTTP") };
        assert_eq!(http.login(), (Some("me".into()), Some("pass@word".into())));
        for text in ["http://127.0.0.1:80/a", "http://localhost/a", "http://[::1]:1/a"] {
            assert!(RemoteUrl::parse(text).is_some(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_part_becomes_an_option(text in "(ssh://)?[-a@:/.%~ 0-9\\[\\]]{0,20}") {
            if let Some(RemoteUrl::Ssh(remote)) = RemoteUrl::parse(&text) {
                prop_assert!(!remote.destination().starts_with('-') && !remote.path.starts_with('-'));
            }
        }

        #[test]
        fn any_text_is_read_or_not_handled(text in any::<String>()) {
            let _ = RemoteUrl::parse(&text);
        }
    }
}
