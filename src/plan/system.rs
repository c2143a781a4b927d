//! What the native engine shows of the host beyond the workspace: its programs and libraries, an allow-list of `/etc`, and what
//! the command needs that is installed elsewhere. Containers bring an image instead.

use std::path::{Path, PathBuf};

use super::Draft;
use super::entry::{Mount, Topic, Why};
use crate::config::Origin;
use crate::config::value::{Access, NetworkMode};
use crate::facts::{FileKind, SystemEntry};
use crate::path::{GuestPath, HostPath};
use crate::vars;

/// Variables of the host that its own tools rely on: language, time zone, and where certificates are.
const PASSED: &[&str] =
    &["LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "LC_NUMERIC", "LC_COLLATE", "TZ"];

impl Draft<'_> {
    /// The host's system, read-only.
    pub fn system(&mut self, name: &str) {
        let Some(native) = &self.facts.native else { return };
        let system = &native.system;
        for entry in &system.entries {
            let why = |path: &HostPath| match path.as_path().starts_with("/etc") {
                true => Why::default("settings without secrets, from an allow-list").about(Topic::System),
                false => Why::default("the host's own programs and libraries").about(Topic::System),
            };
            match entry {
                SystemEntry::Link { path, to } => self.mounts.add(Mount::link(to.clone(), path.to_guest(), why(path))),
                SystemEntry::Shown { path, fact } => {
                    let make = if fact.kind == FileKind::Directory { Mount::directory } else { Mount::file };
                    self.mounts.add(make(fact.real.clone(), path.to_guest(), Access::Ro, why(path)));
                }
            }
        }
        if let (Some(file), NetworkMode::On) = (&system.resolv_conf, self.config.network.value) {
            let why = Why::default("names are resolved as on the host").about(Topic::System);
            self.etc("resolv.conf", |target| Mount::file(file.clone(), target, Access::Ro, why));
        }
        for (name, place) in [("tmp", "/tmp"), ("var-tmp", "/var/tmp")] {
            if let Ok(target) = GuestPath::new(place) {
                self.scratch(
                    name,
                    target,
                    0o1777,
                    Why::default("temporary files of the sandbox's own").about(Topic::Temp),
                );
            }
        }
        let hosts = format!("{}\n127.0.0.1 {name}\n", system.hosts.trim_end());
        self.generated("hosts", hosts, "the host's names, and the sandbox's own");
        self.generated("hostname", format!("{name}\n"), "the sandbox's name");
    }

    /// What the command needs to run that is not the system's.
    pub fn tool(&mut self) {
        let tool = &self.facts.tool;
        let name = tool.program.as_ref().map_or("the command".into(), |program| format!("`{program}`"));
        for path in &tool.shown {
            let Some(fact) = self.facts.files.get(path) else { continue };
            let why = Why::default(format!("{name} is installed there")).about(Topic::System);
            let make = if fact.kind == FileKind::Directory { Mount::directory } else { Mount::file };
            self.mounts.add(make(fact.real.clone(), path.to_guest(), Access::Ro, why));
        }
        for (link, to) in &tool.links {
            self.mounts.add(Mount::link(
                to.clone(),
                link.to_guest(),
                Why::default(format!("{name} is a link")).about(Topic::System),
            ));
        }
    }

    /// PATH as on the host, as far as it leads to something visible; and the variables that host tools rely on.
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
            Why::default("the host's PATH, as far as it is visible inside").about(Topic::System),
        );
        self.language();
    }

    /// The host's language and time zone.
    pub fn language(&mut self) {
        for name in PASSED {
            if let Some(value) = self.host.env.text(name) {
                self.env.plain(
                    name,
                    value,
                    Why::new("the host's tools speak its language", Origin::Default).about(Topic::System),
                );
            }
        }
    }

    fn etc(&mut self, name: &str, mount: impl FnOnce(GuestPath) -> Mount) {
        if let Ok(target) = GuestPath::new(Path::new("/etc").join(name)) {
            self.mounts.add(mount(target));
        }
    }
}
