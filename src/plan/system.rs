//! Decides which parts of the host the native engine mounts besides the workspace: programs and
//! libraries, an allow-list of `/etc`, and the installation of the command. Containers have an
//! image instead.

use std::path::{Path, PathBuf};

use super::Draft;
use super::entry::{Mount, Topic, Why};
use super::mounts::existing;
use crate::config::value::{Access, NetworkMode};
use crate::facts::SystemEntry;
use crate::path::{HostPath, constant};
use crate::vars;

/// Variables of the host that set language and time zone.
const PASSED: &[&str] =
    &["LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "LC_NUMERIC", "LC_COLLATE", "TZ"];

impl Draft<'_> {
    /// Adds the host's system, read-only, and generated files in `/etc`.
    pub fn system(&mut self) {
        let Some(native) = &self.facts.native else { return };
        let system = &native.system;
        for entry in &system.entries {
            match entry {
                SystemEntry::Link { path, to } => {
                    self.mounts.add(Mount::link(to.clone(), path.to_guest(), why_system(path)));
                }
                SystemEntry::Shown { path, fact } => {
                    self.mounts.add(existing(fact, path.to_guest(), Access::Ro, why_system(path)));
                }
            }
        }
        if let (Some(file), NetworkMode::On) = (&system.resolv_conf, self.config.network.value) {
            let why = Why::default("the host's name servers").about(Topic::System);
            let target = constant!(GuestPath, "/etc/resolv.conf");
            self.mounts.add(Mount::file(file.clone(), target, Access::Ro, why));
        }
        for (name, target) in [("tmp", constant!(GuestPath, "/tmp")), ("var-tmp", constant!(GuestPath, "/var/tmp"))] {
            let why = Why::default("a private directory for temporary files").about(Topic::Temp);
            self.scratch(name, target, 0o1777, why);
        }
        let name = &self.host.name;
        let is_known = system.hosts.split_whitespace().any(|word| word == name);
        let own = if is_known { String::new() } else { format!("127.0.0.1 {name}\n") };
        let hosts = format!("{}\n{own}", system.hosts.trim_end());
        let hostname = format!("{name}\n");
        self.generated("hosts", hosts, "the host's /etc/hosts, and its name");
        self.generated("hostname", hostname, "the name of this machine");
    }

    /// Adds the installation of the command, if it is not part of the system.
    pub fn tool(&mut self) {
        let tool = &self.facts.tool;
        let name = tool.program.as_ref().map_or("the command".into(), |program| format!("`{program}`"));
        for path in &tool.shown {
            let Some(fact) = self.facts.files.get(path) else { continue };
            let why = Why::default(format!("{name} is installed there")).about(Topic::System);
            self.mounts.add(existing(fact, path.to_guest(), Access::Ro, why));
        }
        for (link, to) in &tool.links {
            self.mounts.add(Mount::link(
                to.clone(),
                link.to_guest(),
                Why::default(format!("{name} is a link")).about(Topic::System),
            ));
        }
    }

    /// Sets PATH to the host's directories that exist inside, and passes language and time zone.
    pub fn host_tools_environment(&mut self) {
        let system = ["/usr", "/bin", "/sbin"].map(Path::new);
        let shown: Vec<&HostPath> =
            self.facts.tool.shown.iter().chain(self.facts.tool.links.iter().map(|(link, _)| link)).collect();
        let visible = self.facts.path.outside.iter().filter(|entry| {
            system.iter().any(|root| entry.as_path().starts_with(root))
                || shown.iter().any(|path| path.is_within(entry) || entry.is_within(path))
        });
        let mut entries: Vec<PathBuf> = visible.map(|entry| entry.as_path().to_owned()).collect();
        if entries.is_empty() {
            entries = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).into();
        }
        let path = std::env::join_paths(entries).unwrap_or_default();
        self.env.plain(
            vars::PATH,
            path.to_string_lossy(),
            Why::default("the directories of the host's PATH that exist inside").about(Topic::System),
        );
        self.language();
    }

    pub fn language(&mut self) {
        for name in PASSED {
            if let Some(value) = self.host.env.text(name) {
                self.env.plain(name, value, Why::default("the host's language and time zone").about(Topic::System));
            }
        }
    }
}

fn why_system(path: &HostPath) -> Why {
    let reason = if path.as_path().starts_with("/etc") {
        "settings without secrets, from an allow-list"
    } else {
        "the host's programs and libraries"
    };
    Why::default(reason).about(Topic::System)
}
