//! Parses and checks OpenSSH host certificates: kind, names, time and the authority's signature.

use std::time::{SystemTime, UNIX_EPOCH};

use super::public_key::PublicKey;
use super::wire::Reader;

/// The suffix of a certificate's kind.
const SUFFIX: &str = "-cert-v01@openssh.com";
/// A certificate for hosts, not for users.
const HOST: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCertificate<'a> {
    pub key: PublicKey<'a>,
    /// The authority's key.
    pub authority: &'a [u8],
    principals: Vec<&'a str>,
    valid_after: u64,
    valid_before: u64,
    has_critical_options: bool,
    is_signed: bool,
}

impl<'a> HostCertificate<'a> {
    /// Parses a certificate for hosts to its last byte.
    pub fn parse(blob: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(blob);
        let kind = reader.text()?.strip_suffix(SUFFIX)?;
        let _nonce = reader.string()?;
        let key = PublicKey::fields(kind, &mut reader)?;
        let _serial = reader.long_number()?;
        if reader.number()? != HOST {
            return None;
        }
        let _id = reader.string()?;
        let mut names = Reader(reader.string()?);
        let mut principals = Vec::new();
        while names.end().is_none() {
            principals.push(names.text()?);
        }
        let (valid_after, valid_before) = (reader.long_number()?, reader.long_number()?);
        let has_critical_options = !reader.string()?.is_empty();
        let (_extensions, _reserved, authority) = (reader.string()?, reader.string()?, reader.string()?);
        let signed = blob.get(..blob.len() - reader.0.len())?;
        let signature = reader.string()?;
        reader.end()?;
        let is_signed = PublicKey::parse(authority)?.verifies(signature, signed);
        Some(HostCertificate { key, authority, principals, valid_after, valid_before, has_critical_options, is_signed })
    }

    /// Returns whether it is valid now, for one of the names.
    pub fn is_valid_for(&self, names: &[&str], now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let is_named = self.principals.iter().any(|known| names.iter().any(|name| known.eq_ignore_ascii_case(name)));
        // No critical option is defined for hosts, and one that is not known must be refused.
        self.is_signed && !self.has_critical_options && is_named && (self.valid_after..self.valid_before).contains(&now)
    }
}

/// Returns the key of a server, which may be in a certificate.
pub fn server_key(blob: &[u8]) -> Option<PublicKey<'_>> {
    PublicKey::parse(blob).or_else(|| HostCertificate::parse(blob).map(|certificate| certificate.key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "ssh-keygen makes the certificates")]

    use super::*;
    use base64ct::{Base64, Encoding};
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    fn keygen(directory: &Path, arguments: &[&str]) {
        let output = Command::new("ssh-keygen").current_dir(directory).arg("-q").args(arguments).output();
        let output = output.expect("ssh-keygen");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn blob(file: &Path) -> Vec<u8> {
        let text = std::fs::read_to_string(file).expect("a key");
        Base64::decode_vec(text.split(' ').nth(1).expect("a key")).expect("a key")
    }

    /// Makes a certificate with an authority of some kind, and options of `ssh-keygen -s`.
    fn certificate(kind: &[&str], options: &[&str]) -> (Vec<u8>, Vec<u8>) {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        keygen(at, &[&["-N", "", "-f", "ca", "-t"], kind].concat());
        keygen(at, &["-N", "", "-f", "host", "-t", "ed25519"]);
        keygen(at, &[&["-s", "ca", "-I", "id"], options, &["host.pub"]].concat());
        (blob(&at.join("host-cert.pub")), blob(&at.join("ca.pub")))
    }

    #[test]
    fn certificates_of_every_kind_of_authority_are_verified() {
        for kind in [
            &["ed25519"][..],
            &["ecdsa", "-b", "256"],
            &["ecdsa", "-b", "384"],
            &["ecdsa", "-b", "521"],
            &["rsa", "-b", "2048"],
        ] {
            let (blob, authority) = certificate(kind, &["-h", "-n", "example.org,other", "-V", "-1h:+1h"]);
            let parsed = HostCertificate::parse(&blob).expect("a certificate");
            assert_eq!(parsed.authority, authority, "{kind:?}");
            let now = SystemTime::now();
            assert!(parsed.is_valid_for(&["Example.org"], now), "{kind:?}");
            assert!(!parsed.is_valid_for(&["evil.example"], now));
            assert!(!parsed.is_valid_for(&["example.org"], now + Duration::from_secs(7200)));
            assert!(!parsed.is_valid_for(&["example.org"], now - Duration::from_secs(7200)));
            // A changed byte, wherever it is, ends the validity.
            for at in (0..blob.len()).step_by(5) {
                let mut changed = blob.clone();
                changed[at] ^= 1;
                let is_valid =
                    HostCertificate::parse(&changed).is_some_and(|it| it.is_valid_for(&["example.org"], now));
                assert!(!is_valid, "{kind:?} {at}");
            }
        }
    }

    #[test]
    fn certificates_of_users_and_for_every_name_are_refused() {
        let (user, _) = certificate(&["ed25519"], &["-n", "example.org"]);
        assert_eq!(HostCertificate::parse(&user), None);
        let (all, _) = certificate(&["ed25519"], &["-h"]);
        assert!(
            !HostCertificate::parse(&all).expect("a certificate").is_valid_for(&["example.org"], SystemTime::now())
        );
    }
}
