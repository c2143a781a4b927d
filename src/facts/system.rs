//! Looks up the parts of the host's system that the native engine mounts: programs, libraries, and
//! an allow-list of `/etc`. Reads no content except `/etc/hosts`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files::{FileFact, FileKind, examine};
use super::ssh_config::SshConfigFacts;
use crate::path::{HostPath, constant};

/// Directories of programs and libraries. On a merged-usr system most are links into `/usr`.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Names in `/etc` that are mounted: certificates, loader and locale data, alternatives, and
/// settings that tools cannot run without. Nothing else is: no shadow file, key or credential, not
/// even for root. `/etc/ssh` is left out because ssh refuses included files that do not belong to
/// root, and inside they belong to `nobody`: `plan::ssh_config` writes them anew.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "bashrc",
    "chromium.d",
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

/// Names in `/etc` that contain a version of digits and dots: what precedes it, and what follows.
const ETC_VERSIONED: &[(&str, &str)] = &[("java-", "-openjdk"), ("python3.", "")];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum SystemEntry {
    /// A file or directory that is bound read-only.
    Shown { path: HostPath, fact: FileFact },
    /// A link that is created anew; `to` is its target as written.
    Link { path: HostPath, to: PathBuf },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SystemFacts {
    pub entries: Vec<SystemEntry>,
    /// The real path of `/etc/resolv.conf`, which is often a link to `/run`.
    pub resolv_conf: Option<HostPath>,
    /// The content of `/etc/hosts`.
    pub hosts: String,
    /// The system's configuration of ssh.
    pub ssh: SshConfigFacts,
}

impl SystemFacts {
    pub fn look() -> Self {
        let etc = ETC.iter().map(|name| Path::new("/etc").join(name)).chain(versioned(Path::new("/etc")));
        let entries = SYSTEM.iter().map(PathBuf::from).chain(etc).filter_map(|path| entry(&path)).collect();
        let resolv_conf = examine(&constant!(HostPath, "/etc/resolv.conf")).map(|fact| fact.real);
        let hosts =
            std::fs::read_to_string("/etc/hosts").unwrap_or_else(|_| "127.0.0.1 localhost\n::1 localhost\n".into());
        SystemFacts { entries, resolv_conf, hosts, ssh: SshConfigFacts::default() }
    }
}

/// Lists the paths in a directory that match [`ETC_VERSIONED`].
fn versioned(etc: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(etc).into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_versioned));
    names.map(|entry| entry.path()).collect()
}

fn is_versioned(name: &str) -> bool {
    ETC_VERSIONED.iter().any(|(before, after)| {
        let version = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        version.is_some_and(|version| {
            version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(|c| c.is_ascii_digit() || c == '.')
        })
    })
}

fn entry(path: &Path) -> Option<SystemEntry> {
    let place = HostPath::new(path).ok()?;
    let meta = path.symlink_metadata().ok()?;
    if meta.is_symlink() {
        let to = std::fs::read_link(path).ok()?;
        // `/usr` is mounted, so a link into it works inside; for any other, the target is mounted
        // in its place.
        return Some(if leads_into_usr(path) {
            SystemEntry::Link { path: place, to }
        } else {
            SystemEntry::Shown { fact: examine(&place)?, path: place }
        });
    }
    // The path itself is no link and neither is `/etc`, so it is the real path already. Resolving
    // some forty paths would take longer than everything else here.
    let kind = if meta.is_dir() { FileKind::Directory } else { FileKind::File };
    let fact = FileFact { kind, real: place.clone(), links: Vec::new(), uid: meta.uid() };
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
            assert!(!ETC.contains(&secret) && !is_versioned(secret), "{secret}");
        }
        // No entry is a directory of keys.
        assert!(!ETC.iter().any(|name| name.ends_with("private")));
    }

    #[test]
    fn every_version_of_python_and_java_is_listed() -> std::io::Result<()> {
        let etc = tempfile::tempdir()?;
        for name in
            ["python3.14", "java-29-openjdk", "java-1.8.0-openjdk", "python3", "python3.14-keys", "java-x-openjdk"]
        {
            std::fs::create_dir(etc.path().join(name))?;
        }
        let mut found = versioned(etc.path());
        found.sort();
        let expected = ["java-1.8.0-openjdk", "java-29-openjdk", "python3.14"].map(|name| etc.path().join(name));
        assert_eq!(found, expected);
        Ok(())
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
