//! Finds out which destination a server's key belongs to: by the allowed destinations, as ssh's
//! configuration on the host resolves them, and by `known_hosts`.

#![allow(clippy::disallowed_methods, reason = "the host's ssh resolves names and aliases")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Encoding};

use super::known_hosts::{ServerNames, is_revoked, knows, name_of};
use super::revoked_keys;
use crate::config::value::SshDestination;
use crate::path::HostPath;
use crate::plan::AgentGatePlan;
use crate::process::output_within;

/// How long `ssh -G` may take: it can run commands of the user's configuration.
const SSH_TIMEOUT: Duration = Duration::from_secs(10);
/// More of a `known_hosts` file is not read.
const MAX_KNOWN_HOSTS: u64 = 16 << 20;
const SYSTEM_KNOWN_HOSTS: [&str; 2] = ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"];

/// A destination with what ssh on the host knows about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// As the user named it, without the user.
    pub name: String,
    /// `None` permits every user.
    pub user: Option<String>,
    names: ServerNames,
    files: Vec<PathBuf>,
    /// The file of the option `RevokedHostKeys`.
    revoked: Option<PathBuf>,
    /// The files of the only keys that ssh uses there; `None` if it tries every key.
    identities: Option<Vec<PathBuf>>,
}

/// The destinations of a sandbox, resolved when they are first needed.
#[derive(Debug, Default)]
pub struct Destinations(OnceLock<Vec<Destination>>);

impl Destinations {
    pub fn get(&self, plan: &AgentGatePlan) -> &[Destination] {
        self.0.get_or_init(|| {
            let known = if plan.is_limited { &plan.hosts } else { &plan.remotes };
            known.iter().map(|destination| resolve(destination, plan)).collect()
        })
    }

    /// Returns the destinations whose server has the key, and are not told otherwise by a revocation.
    pub fn with_key(&self, plan: &AgentGatePlan, key: &[u8]) -> Vec<&Destination> {
        let now = SystemTime::now();
        let has_key = |destination: &&Destination| {
            let files = destination.files.iter().filter(|file| !is_writable(file, plan));
            let texts: Vec<String> = files.map(|file| read(file)).collect();
            let is_in_list = |file: &PathBuf| is_writable(file, plan) || revoked_keys::is_revoked(file, key, plan);
            !destination.revoked.as_ref().is_some_and(is_in_list)
                && !texts.iter().any(|text| is_revoked(text, &destination.names, key))
                && texts.iter().any(|text| knows(text, &destination.names, key, now))
        };
        self.get(plan).iter().filter(has_key).collect()
    }

    /// Returns the keys that some destination accepts; `None` if that cannot be known.
    pub fn accepted_keys(&self, plan: &AgentGatePlan) -> Option<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for destination in self.get(plan) {
            for file in destination.identities.as_ref()? {
                keys.push(public_key(file)?);
            }
        }
        keys.extend(plan.signing_key.as_deref().and_then(key_blob));
        Some(keys)
    }
}

/// Returns a name under which the user's `known_hosts` has a key, for the record only.
pub fn known_name(plan: &AgentGatePlan, key: &[u8]) -> Option<String> {
    default_files(plan).iter().find_map(|file| name_of(&read(file), key))
}

fn default_files(plan: &AgentGatePlan) -> Vec<PathBuf> {
    let ssh = plan.home.join(".ssh");
    let user = ["known_hosts", "known_hosts2"].map(|name| ssh.join(name).as_path().to_owned());
    user.into_iter().chain(SYSTEM_KNOWN_HOSTS.map(PathBuf::from)).collect()
}

/// Tells whether the guest can write a file.
fn is_writable(file: &Path, plan: &AgentGatePlan) -> bool {
    let real = file.canonicalize();
    let is_below = |directory: &HostPath| {
        [Some(file), real.as_deref().ok()].into_iter().flatten().any(|path| path.starts_with(directory.as_path()))
    };
    plan.writable.iter().any(is_below)
}

/// Reads a file, which may be missing.
fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MAX_KNOWN_HOSTS).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads the public key beside a private one.
fn public_key(file: &Path) -> Option<Vec<u8>> {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    key_blob(&read(Path::new(&name)))
}

/// Decodes a line such as `ssh-ed25519 AAAA… comment`.
pub fn key_blob(line: &str) -> Option<Vec<u8>> {
    let line = line.trim().strip_prefix("key::").unwrap_or(line);
    Base64::decode_vec(line.split_ascii_whitespace().nth(1)?).ok()
}

/// Asks ssh how it would connect. Without an answer, the destination is taken as it is written.
fn resolve(asked: &SshDestination, plan: &AgentGatePlan) -> Destination {
    let settings = plan.ssh.as_ref().and_then(|ssh| {
        let mut command = Command::new(ssh.as_path());
        command.arg("-G").env("PATH", &plan.path).env("LC_ALL", "C").stdin(Stdio::null());
        command.args(asked.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
        command.args(asked.user.iter().flat_map(|user| ["-l", user]));
        command.arg("--").arg(&asked.host);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let output = output_within(&mut command, SSH_TIMEOUT).ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    destination(asked, settings.as_deref().unwrap_or_default(), plan)
}

/// Makes a destination of the output of `ssh -G`.
fn destination(asked: &SshDestination, settings: &str, plan: &AgentGatePlan) -> Destination {
    let values = |key: &str| {
        let lines = settings.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).collect::<Vec<String>>()
    };
    let value = |key: &str| values(key).into_iter().next();
    let port = value("port").and_then(|port| port.parse().ok()).or(asked.port).unwrap_or(22);
    let names = match value("hostkeyalias").filter(|alias| alias != "none") {
        Some(alias) => ServerNames::new(&alias, 22),
        None => ServerNames::new(&value("hostname").unwrap_or_else(|| asked.host.clone()), port),
    };
    let path = |text: &str| match text.strip_prefix("~/") {
        Some(below) => plan.home.join(below).as_path().to_owned(),
        None => PathBuf::from(text),
    };
    let listed = ["userknownhostsfile", "globalknownhostsfile"].iter().flat_map(|key| values(key));
    let mut files: Vec<PathBuf> = listed
        .flat_map(|files| files.split(' ').map(path).collect::<Vec<_>>())
        .filter(|file| file.is_absolute())
        .collect();
    // ssh takes the home directory from the user database; sandpen and the guest take it from HOME.
    let at_home = |file: &PathBuf| {
        let is_default = file.ends_with(".ssh/known_hosts") || file.ends_with(".ssh/known_hosts2");
        let name = file.file_name().filter(|_| is_default)?;
        Some(plan.home.join(".ssh").join(name).as_path().to_owned()).filter(|path| !files.contains(path))
    };
    let more: Vec<PathBuf> = files.iter().filter_map(at_home).collect();
    files.extend(more);
    if settings.is_empty() {
        files = default_files(plan);
    }
    let is_only = value("identitiesonly").as_deref() == Some("yes");
    let identities = is_only.then(|| values("identityfile").iter().map(|file| path(file)).collect());
    let revoked = value("revokedhostkeys").filter(|file| file != "none").map(|file| path(&file));
    let shown = SshDestination { user: None, ..asked.clone() };
    Destination { name: shown.to_string(), user: asked.user.clone(), names, files, revoked, identities }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan_for_tests;
    use super::*;
    use crate::config::value::{SshHost, Value};

    fn asked(text: &str) -> SshDestination {
        let Ok(SshHost::Destination(asked)) = SshHost::parse(text) else { panic!("{text}") };
        asked
    }

    #[test]
    fn the_configuration_of_ssh_decides_names_files_and_keys() {
        let plan = plan_for_tests(Path::new("/gate"), Path::new("/agent"));
        let settings = "host work\nhostname git.example.org\nport 2222\nidentitiesonly yes\nidentityfile ~/.ssh/work\n\
            revokedhostkeys ~/.ssh/revoked\nuserknownhostsfile ~/.ssh/known_hosts /other\nglobalknownhostsfile /etc/ssh/ssh_known_hosts\n";
        let found = destination(&asked("git@work"), settings, &plan);
        let home = plan.home.as_path();
        assert_eq!((found.name.as_str(), found.user.as_deref()), ("work", Some("git")));
        assert_eq!(found.names, ServerNames::new("git.example.org", 2222));
        let files = [home.join(".ssh/known_hosts"), "/other".into(), "/etc/ssh/ssh_known_hosts".into()];
        assert_eq!((found.files, found.revoked), (files.to_vec(), Some(home.join(".ssh/revoked"))));
        assert_eq!(found.identities, Some(vec![home.join(".ssh/work")]));
        let alias = destination(&asked("work"), "hostname x\nhostkeyalias y\nidentityfile ~/.ssh/id_rsa\n", &plan);
        assert_eq!((alias.names, alias.identities, alias.revoked), (ServerNames::new("y", 22), None, None));
    }

    #[test]
    fn without_ssh_the_name_is_the_host() {
        let plan = plan_for_tests(Path::new("/gate"), Path::new("/agent"));
        let found = resolve(&asked("example.org:2222"), &plan);
        assert_eq!(found.names, ServerNames::new("example.org", 2222));
        assert!(found.files.contains(&plan.home.as_path().join(".ssh/known_hosts")));
    }
}
