//! Decides which parts of the host the native engine mounts besides the workspace: programs and
//! libraries, an allow-list of `/etc`. Containers have an image instead.

use super::Draft;
use super::entry::{Mount, Topic, Why};
use super::mounts::existing;
use crate::config::value::{Access, NetworkMode};
use crate::facts::SystemEntry;
use crate::path::{HostPath, constant};

/// Variables of the host that set language and time zone.
const PASSED: &[&str] = &[
    "LANG",
    "LANGUAGE",
    "LC_ADDRESS",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
    "TZ",
];

impl Draft<'_> {
    /// Adds the host's system, read-only, and generated files in `/etc`.
    pub fn system(&mut self) {
        let Some(native) = &self.facts.native else { return };
        let system = &native.system;
        // An image has a system of its own.
        let entries = if self.has_host_tools() { system.entries.as_slice() } else { &[] };
        for entry in entries {
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
