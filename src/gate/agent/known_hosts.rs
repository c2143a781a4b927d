//! Searches `known_hosts` for a server's key: plain and hashed names, patterns, authorities and revoked
//! keys, as OpenSSH does. The names are given, so hashed ones need not be reversed.

use std::time::SystemTime;

use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::certificate::HostCertificate;

/// The names under which a server may be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerNames {
    /// Without its port, for certificates.
    pub host: String,
    /// With its port, in the form of `known_hosts`.
    pub with_port: String,
}

impl ServerNames {
    pub fn new(host: &str, port: u16) -> Self {
        let host = host.to_ascii_lowercase();
        let with_port = if port == 22 { host.clone() } else { format!("[{host}]:{port}") };
        ServerNames { host, with_port }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    None,
    Authority,
    Revoked,
}

struct Line<'a> {
    marker: Marker,
    hosts: &'a str,
    key: Vec<u8>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut first = words.next().filter(|word| !word.starts_with('#'))?;
        let marker = match first {
            "@cert-authority" => Marker::Authority,
            "@revoked" => Marker::Revoked,
            word if word.starts_with('@') => return None,
            _ => Marker::None,
        };
        if marker != Marker::None {
            first = words.next()?;
        }
        let _kind = words.next()?;
        Some(Line { marker, hosts: first, key: Base64::decode_vec(words.next()?).ok()? })
    }

    fn is_for(&self, names: &ServerNames) -> bool {
        // OpenSSH looks for the name without the port, too.
        matches_list(self.hosts, &names.with_port) || matches_list(self.hosts, &names.host)
    }
}

/// Returns whether the text of `known_hosts` has the key, or its authority, for a server.
pub fn knows(text: &str, names: &ServerNames, key: &[u8], now: SystemTime) -> bool {
    let certificate = HostCertificate::parse(key);
    let lines = || text.lines().filter_map(Line::parse).filter(|line| line.is_for(names));
    let accepts = |line: &Line<'_>| match (line.marker, &certificate) {
        (Marker::None, None) => line.key == key,
        (Marker::Authority, Some(certificate)) => {
            line.key == certificate.authority && certificate.is_valid_for(&[&names.host], now)
        }
        _ => false,
    };
    !is_revoked(text, names, key) && lines().any(|line| accepts(&line))
}

/// Returns whether the text revokes the key, or the authority of the certificate.
pub fn is_revoked(text: &str, names: &ServerNames, key: &[u8]) -> bool {
    let authority = HostCertificate::parse(key).map(|certificate| certificate.authority);
    text.lines()
        .filter_map(Line::parse)
        .filter(|line| line.marker == Marker::Revoked && line.is_for(names))
        .any(|line| line.key == key || authority.is_some_and(|authority| line.key == authority))
}

/// Returns a plain name under which the text has the key.
pub fn name_of(text: &str, key: &[u8]) -> Option<String> {
    let mut lines = text.lines().filter_map(Line::parse);
    let line = lines.find(|line| line.marker == Marker::None && line.key == key && !line.hosts.starts_with('|'))?;
    line.hosts.split(',').next().map(ToOwned::to_owned)
}

/// Matches a name with a list of patterns. One that begins with `!` excludes what it matches.
fn matches_list(list: &str, name: &str) -> bool {
    if let Some(hashed) = list.strip_prefix("|1|") {
        return matches_hash(hashed, name).unwrap_or(false);
    }
    let mut is_match = false;
    for pattern in list.split(',') {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches_pattern(pattern.as_bytes(), name.as_bytes()) => return false,
            None if matches_pattern(pattern.as_bytes(), name.as_bytes()) => is_match = true,
            _ => {}
        }
    }
    is_match
}

fn matches_hash(hashed: &str, name: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let mut mac = Hmac::<Sha1>::new_from_slice(&Base64::decode_vec(salt).ok()?).ok()?;
    mac.update(name.as_bytes());
    Some(mac.verify_slice(&Base64::decode_vec(hash).ok()?).is_ok())
}

/// Matches `*` and `?`, without regard to case, in time linear in the product of both lengths.
fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut star) = ((0, 0), None);
    while at.1 < name.len() {
        match pattern.get(at.0) {
            Some(b'*') => {
                star = Some((at.0 + 1, at.1));
                at.0 += 1;
            }
            Some(c) if *c == b'?' || c.eq_ignore_ascii_case(&name[at.1]) => at = (at.0 + 1, at.1 + 1),
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                at = (after, from + 1);
            }
        }
    }
    pattern[at.0.min(pattern.len())..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

    fn key() -> Vec<u8> {
        Base64::decode_vec(KEY).expect("a key")
    }

    fn known(hosts: &str, host: &str, port: u16) -> bool {
        knows(&format!("{hosts} ssh-ed25519 {KEY} comment\n"), &ServerNames::new(host, port), &key(), SystemTime::now())
    }

    #[test]
    fn names_patterns_and_ports_are_matched() {
        for (hosts, host, port) in [
            ("github.com", "github.com", 22),
            ("github.com", "GitHub.com", 22),
            ("other,github.com", "github.com", 22),
            ("*.example.org,!evil.example.org", "good.example.org", 22),
            ("[example.org]:2222", "example.org", 2222),
            ("example.org", "example.org", 2222),
            ("10.0.0.?", "10.0.0.4", 22),
        ] {
            assert!(known(hosts, host, port), "{hosts} {host} {port}");
        }
        for (hosts, host, port) in [
            ("github.com", "github.com.evil.example", 22),
            ("github.com", "xgithub.com", 22),
            ("*.example.org,!evil.example.org", "evil.example.org", 22),
            ("[example.org]:2222", "example.org", 22),
            ("[example.org]:2222", "example.org", 2223),
            ("!github.com", "github.com", 22),
            ("# github.com", "github.com", 22),
            ("@revoked github.com", "github.com", 22),
            ("@cert-authority github.com", "github.com", 22),
            ("@unknown github.com", "github.com", 22),
        ] {
            assert!(!known(hosts, host, port), "{hosts} {host} {port}");
        }
    }

    #[test]
    fn hashed_names_are_matched() {
        // Made by `ssh-keygen -H` for `github.com`.
        let mut mac = Hmac::<Sha1>::new_from_slice(&[7; 20]).expect("a key");
        mac.update(b"github.com");
        let hash = Base64::encode_string(&mac.finalize().into_bytes());
        let hosts = format!("|1|{}|{hash}", Base64::encode_string(&[7; 20]));
        assert!(known(&hosts, "github.com", 22) && known(&hosts, "GITHUB.com", 22));
        assert!(!known(&hosts, "github.org", 22));
        assert!(!known("|1|x|y", "github.com", 22) && !known("|1|", "github.com", 22));
    }

    #[test]
    fn a_revoked_key_is_not_known_whatever_else_the_file_says() {
        let text = format!("github.com ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {KEY}\n");
        assert!(!knows(&text, &ServerNames::new("github.com", 22), &key(), SystemTime::now()));
    }

    proptest! {
        #[test]
        fn any_text_is_searched(text in "[ -~\n]{0,200}", pattern in "[a*?!,|]{0,20}", name in "[a-c]{0,10}") {
            let _ = knows(&text, &ServerNames::new("a", 22), &key(), SystemTime::now());
            let _ = matches_list(&pattern, &name);
        }

        #[test]
        fn a_pattern_matches_itself(name in "[a-z0-9.-]{1,20}") {
            prop_assert!(matches_pattern(name.as_bytes(), name.as_bytes()));
            prop_assert!(matches_pattern(b"*", name.as_bytes()));
        }
    }
}
