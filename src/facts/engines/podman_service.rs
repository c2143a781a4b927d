//! Finds the service that Podman's client connects to, in the environment and in Podman's
//! configuration files. Starts no process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::{Host, Platform};
use crate::process::untrusted;

/// The commented file of a distribution has 40 KB.
const MAX_FILE: u64 = 1 << 20;
const SYSTEM_FILES: &[&str] = &["/usr/share/containers/containers.conf", "/etc/containers/containers.conf"];

/// The address of a service, and what chose it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodmanService {
    pub address: String,
    pub chosen_by: &'static str,
    /// The arguments of the client that select it, whatever the environment says.
    pub arguments: Vec<String>,
}

/// The settings of the files, where later ones override earlier ones.
#[derive(Default)]
struct Settings {
    remote: bool,
    active: Option<String>,
    addresses: BTreeMap<String, String>,
}

/// `containers.conf`, without what has no meaning here.
#[derive(Default, Deserialize)]
struct ConfigFile {
    #[serde(default)]
    engine: Engine,
}

#[derive(Default, Deserialize)]
struct Engine {
    remote: Option<bool>,
    active_service: Option<String>,
    #[serde(default)]
    service_destinations: BTreeMap<String, Destination>,
}

#[derive(Deserialize)]
struct Destination {
    uri: String,
}

/// `podman-connections.json`, which Podman writes since 5.0.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConnectionsFile {
    #[serde(default)]
    connection: Connections,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Connections {
    default: Option<String>,
    #[serde(default)]
    connections: BTreeMap<String, ListedConnection>,
}

#[derive(Deserialize)]
struct ListedConnection {
    #[serde(rename = "URI")]
    uri: String,
}

impl PodmanService {
    /// Returns whether the client connects to a service, and to which one if that is known.
    pub fn of(host: &Host) -> (bool, Option<Self>) {
        if let Some(address) = host.env.text("CONTAINER_HOST") {
            let key = host.env.text("CONTAINER_SSHKEY").map(|key| ["--identity", key]);
            let arguments = ["--url", address].into_iter().chain(key.into_iter().flatten());
            let service = PodmanService {
                address: address.to_owned(),
                chosen_by: "env CONTAINER_HOST",
                arguments: arguments.map(str::to_owned).collect(),
            };
            return (true, Some(service));
        }
        let (settings, named) = (Settings::read(host), host.env.text("CONTAINER_CONNECTION"));
        let is_remote = host.platform == Platform::Macos || settings.remote || named.is_some();
        let (name, chosen_by) = match named {
            Some(name) => (Some(name), "env CONTAINER_CONNECTION"),
            None => (settings.active.as_deref(), "Podman's default connection"),
        };
        let found = name.and_then(|name| Some((name, settings.addresses.get(name)?))).filter(|_| is_remote);
        let service = found.map(|(name, address)| PodmanService {
            address: address.clone(),
            chosen_by,
            arguments: ["--connection", name].map(str::to_owned).into(),
        });
        (is_remote, service)
    }
}

impl Settings {
    fn read(host: &Host) -> Self {
        let config = host.home.join(".config/containers");
        let files = match host.env.path("CONTAINERS_CONF") {
            Some(file) => vec![file.to_owned()],
            None => {
                let user = config.join("containers.conf").as_path().to_owned();
                SYSTEM_FILES.iter().map(PathBuf::from).chain([user]).collect()
            }
        };
        let mut settings = Settings::default();
        for text in files.iter().filter_map(|file| untrusted::read_linked(file, MAX_FILE).ok()) {
            settings.add_config(&text);
        }
        let connections = config.join("podman-connections.json");
        let connections = host.env.path("PODMAN_CONNECTIONS_CONF").unwrap_or(connections.as_path());
        settings.add_connections(connections);
        settings
    }

    /// Podman itself reports a file that it cannot read.
    fn add_config(&mut self, text: &str) {
        let engine = toml::from_str::<ConfigFile>(text).unwrap_or_default().engine;
        self.remote = engine.remote.unwrap_or(self.remote);
        self.active = engine.active_service.or(self.active.take());
        self.addresses.extend(engine.service_destinations.into_iter().map(|(name, service)| (name, service.uri)));
    }

    fn add_connections(&mut self, file: &Path) {
        let text = untrusted::read_linked(file, MAX_FILE).unwrap_or_default();
        let listed = serde_json::from_str::<ConnectionsFile>(&text).unwrap_or_default().connection;
        self.active = listed.default.or(self.active.take());
        self.addresses.extend(listed.connections.into_iter().map(|(name, service)| (name, service.uri)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_files_override_earlier_ones() -> std::io::Result<()> {
        let mut settings = Settings::default();
        let first = "[containers]\nlog_size_max = 1\n[engine]\nremote = true\nactive_service = \"a\"\n\
            [engine.service_destinations.a]\nuri = \"ssh://me@far/x\"\nidentity = \"k\"\n";
        settings.add_config(first);
        settings.add_config("[engine.service_destinations.b]\nuri = \"unix:///x\"\n");
        settings.add_config("not TOML");
        assert!(settings.remote && settings.active.as_deref() == Some("a") && settings.addresses.len() == 2);
        let file = tempfile::NamedTempFile::new()?;
        let json =
            r#"{"Connection":{"Default":"c","Connections":{"c":{"URI":"ssh://core@127.0.0.1:50000/x"}}},"Farm":{}}"#;
        std::fs::write(&file, json)?;
        settings.add_connections(file.path());
        settings.add_config("[engine]\nremote = false\n");
        assert!(!settings.remote && settings.active.as_deref() == Some("c"));
        assert_eq!(settings.addresses["c"], "ssh://core@127.0.0.1:50000/x");
        Ok(())
    }
}
