//! What of the host's system the native engine shows: its programs and libraries, and an allow-list of `/etc`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files::{FileFact, FileKind, examine};
use crate::path::HostPath;

/// Programs and libraries. On a merged-usr system most are links into `/usr`.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Names, certificates, loader and locale data, alternatives, and the settings that tools cannot run without. Everything that
/// is not here stays outside: no shadow, no keys, no credentials, root or not. `/etc/ssh` stays outside, too: ssh refuses
/// included files that do not belong to root, and inside they belong to nobody.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "bashrc",
    "crypto-policies",
    "debian_version",
    "fedora-release",
    "fonts",
    "gai.conf",
    "gitattributes",
    "gitconfig",
    "host.conf",
    "inputrc",
    "java",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "mime.types",
    "nsswitch.conf",
    "openssl",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "protocols",
    "python",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "redhat-release",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/ca-bundle.pem",
    "system-release",
    "terminfo",
    "timezone",
    "xml",
];

/// A path of the system that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum SystemEntry {
    /// A file or directory, bound read-only.
    Shown {
        /// Where.
        path: HostPath,
        /// What it really is.
        fact: FileFact,
    },
    /// A link, made anew.
    Link {
        /// Where.
        path: HostPath,
        /// To what, as written.
        to: PathBuf,
    },
}

/// What native shows of the host's system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SystemFacts {
    /// Programs, libraries and settings.
    pub entries: Vec<SystemEntry>,
    /// The name resolver's configuration, wherever the link leads.
    pub resolv_conf: Option<HostPath>,
    /// The host's own names for addresses.
    pub hosts: String,
}

impl SystemFacts {
    /// Looks at the lists.
    pub fn look() -> Self {
        let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
        let entries = SYSTEM.iter().map(PathBuf::from).chain(etc).filter_map(|path| entry(&path)).collect();
        let resolv_conf = HostPath::new("/etc/resolv.conf").ok().and_then(|path| examine(&path)).map(|fact| fact.real);
        let hosts =
            std::fs::read_to_string("/etc/hosts").unwrap_or_else(|_| "127.0.0.1 localhost\n::1 localhost\n".into());
        SystemFacts { entries, resolv_conf, hosts }
    }
}

fn entry(path: &Path) -> Option<SystemEntry> {
    let place = HostPath::new(path).ok()?;
    let meta = path.symlink_metadata().ok()?;
    if meta.is_symlink() {
        let to = std::fs::read_link(path).ok()?;
        // A link to what is shown anyway stays a link; any other is shown as what it leads to.
        return Some(match leads_into_usr(path) {
            true => SystemEntry::Link { path: place, to },
            false => SystemEntry::Shown { fact: examine(&place)?, path: place },
        });
    }
    // No link, so its real path is its own: resolving some forty paths would cost more than all else here.
    let kind = if meta.is_dir() { FileKind::Directory } else { FileKind::File };
    let fact = FileFact { kind, real: place.clone(), uid: meta.uid() };
    Some(SystemEntry::Shown { fact, path: place })
}

fn leads_into_usr(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| real.starts_with("/usr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_15_no_secret_of_etc_is_on_the_list() {
        for secret in [
            "shadow",
            "gshadow",
            "ssh",
            "ssl",
            "ssl/private",
            "sudoers",
            "krb5.keytab",
            "pki",
            "machine-id",
            "docker",
            "kubernetes",
            "NetworkManager",
            "profile.d",
            "wgetrc",
            "fstab",
            "crypttab",
            "security",
        ] {
            assert!(!ETC.contains(&secret), "{secret}");
        }
        // Nothing on the list contains a directory of keys.
        assert!(!ETC.iter().any(|name| name.ends_with("private")));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_directories_are_found() {
        let facts = SystemFacts::look();
        let has = |wanted: &str| {
            facts.entries.iter().any(|entry| match entry {
                SystemEntry::Shown { path, .. } | SystemEntry::Link { path, .. } => path.as_path() == Path::new(wanted),
            })
        };
        assert!(has("/usr") && has("/bin") && has("/lib"));
    }
}
