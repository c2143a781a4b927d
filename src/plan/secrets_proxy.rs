//! Decides how programs inside reach and trust the proxy that sets the values of keys: the session's
//! certificates, where programs look for roots, and the variables that name both.

use core::net::Ipv4Addr;

use sha2::{Digest, Sha256};

use super::Draft;
use super::entry::{Mount, Topic, Why};
use crate::config::Origin;
use crate::config::value::Access;
use crate::facts::FileKind;
use crate::path::HostPath;
use crate::secret::Secret;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// The directory in the session's directory with the certificates of the session.
const DIRECTORY: &str = "certificates";
/// The roots of this machine and the session's authority.
pub const BUNDLE: &str = "bundle.pem";
/// The session's authority, and what the host adds for Node.js.
pub const AUTHORITY: &str = "session.pem";

/// Where programs of the distributions look for the roots.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Variables that name a bundle of all roots.
const BUNDLE_VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "BUNDLE_SSL_CA_CERT",
    "AWS_CA_BUNDLE",
    "CODEX_CA_CERTIFICATE",
    "npm_config_cafile",
];
/// Variables that name roots in addition to those of the program.
const ADDED_VARIABLES: &[&str] = &[vars::NODE_EXTRA_CA_CERTS, "DENO_CERT"];

/// Returns the paths at which certificates may be mounted.
pub fn paths_of_interest() -> impl Iterator<Item = HostPath> {
    SYSTEM_BUNDLES.iter().filter_map(|path| HostPath::new(path).ok())
}

impl Draft<'_> {
    /// Mounts the session's certificates where programs look for roots, and names them in variables. Returns
    /// their directory on the host.
    pub(super) fn certificates_inside(&mut self) -> HostPath {
        let directory = self.session_dir.join(DIRECTORY);
        let target = self.control_dir().join(DIRECTORY);
        let why = || {
            Why::default("the roots of this machine and of the session, which the proxy's certificates have")
                .about(Topic::Network)
        };
        self.prepare.push(super::Prepare::Directory { path: directory.clone(), mode: 0o755 });
        self.mounts.add(Mount::directory(directory.clone(), target.clone(), Access::Ro, why()));
        for path in SYSTEM_BUNDLES {
            let Ok(place) = HostPath::new(path) else { continue };
            let place = if self.engine.is_container() {
                place.to_guest()
            } else {
                // A mount point must exist, and the file itself is replaced, whatever links lead to it.
                match self.facts.files.get(&place) {
                    Some(fact) if fact.kind == FileKind::File => fact.real.to_guest(),
                    _ => continue,
                }
            };
            self.mounts.add(Mount::file(directory.join(BUNDLE), place, Access::Ro, why()));
        }
        for (names, file) in [(BUNDLE_VARIABLES, BUNDLE), (ADDED_VARIABLES, AUTHORITY)] {
            let path = target.join(file).to_string();
            for name in names {
                let why = Why::default("programs find the roots by this variable").about(Topic::Network);
                self.force_with_warning(name, &path, why, "when keys stay outside");
            }
        }
        directory
    }

    /// Adds the variables by which programs find a proxy that is there for secrets only: other
    /// connections than HTTPS go around it.
    pub fn secrets_proxy_variables(&mut self, address: &str, password: Option<&Secret>, own: &str) {
        let why = || Why::default("programs reach the hosts of keys through the proxy").about(Topic::Network);
        for name in ["HTTPS_PROXY", "https_proxy"] {
            let login = password.map(|password| format!("sandpen:{}@", password.reveal().to_string_lossy()));
            let value = format!("http://{}{address}", login.clone().unwrap_or_default());
            if login.is_some() {
                self.env.replace_by_secret(name, value, why());
            } else {
                self.force_with_warning(name, &value, why(), "when keys stay outside");
            }
        }
        for name in vars::NO_PROXIES {
            self.force_with_warning(name, own, why(), "when keys stay outside");
        }
        self.force_with_warning(vars::NODE_PROXY, "1", why(), "when keys stay outside");
    }

    fn force_with_warning(&mut self, name: &str, value: &str, why: Why, when: &str) {
        if let Some(origin) = self.env.force(name, value, why)
            && !matches!(origin, Origin::Preset(_) | Origin::Default)
        {
            let text = format!("{origin}: {name} is always {value} inside {when}");
            self.warnings.push(Warning::new(WarningTopic::Network, text));
        }
    }
}

/// Returns an address of this machine's loopback for a session: the guest shares the loopback with
/// other sandboxes, and the address must be known before it starts.
pub fn loopback_address(id: &str) -> Ipv4Addr {
    let digest = Sha256::digest(id.as_bytes());
    Ipv4Addr::new(127, 64 | (digest[0] & 63), digest[1], 1 + digest[2] % 254)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_different_addresses() {
        let addresses: Vec<Ipv4Addr> = ["a1b2c3", "a1b2c4", "b1b2c3"].iter().map(|id| loopback_address(id)).collect();
        assert!(addresses.iter().all(|address| address.is_loopback() && address.octets()[1] >= 64));
        assert!(addresses[0] != addresses[1] && addresses[1] != addresses[2]);
    }
}
