//! Decides how the host's proxy variables and certificates, which company networks need, are passed
//! to the guest. Adapts them so that they have the same meaning inside.

use super::entry::{Topic, Why};
use super::network::NetworkError;
use super::{Draft, NetworkPlan};
use crate::config::Origin;
use crate::config::value::{EngineKind, NetworkMode};
use crate::error::Result;
use crate::facts::FileKind;
use crate::host::Platform;
use crate::path::HostPath;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// Names that engines define inside for the address of the host.
const DOCKER_HOST: &str = "host.docker.internal";
const PODMAN_HOST: &str = "host.containers.internal";

impl Draft<'_> {
    /// Passes the variables that are set on the host. Returns whether Docker must define a name for
    /// the host.
    pub fn host_proxy(&mut self, network: &NetworkPlan) -> Result<bool> {
        if network.mode == NetworkMode::Off {
            return Ok(false);
        }
        self.certificates();
        if network.mode == NetworkMode::Proxied {
            return Ok(false);
        }
        let mut rewritten = false;
        for name in vars::HOST_PROXIES {
            let Some(value) = self.host.env.text(name) else { continue };
            let inside = self.proxy_inside(name, value)?;
            if self.copies_files && inside != value {
                self.warnings.push(Warning::new(
                    WarningTopic::Network,
                    format!("env {name} is not set inside: the proxy listens on this machine's loopback, and the sandbox is on another one"),
                ));
                continue;
            }
            rewritten |= inside != value;
            let why = Why::new("the proxy of the host's network", Origin::Env(name)).about(Topic::Network);
            if vars::has_user_information(&inside) {
                self.env.secret(name, inside, why);
            } else {
                self.env.plain(name, inside, why);
            }
        }
        for name in vars::NO_PROXIES {
            if let Some(value) = self.host.env.text(name) {
                self.env.plain(
                    name,
                    value,
                    Why::new("hosts that are reached without the proxy", Origin::Env(name)).about(Topic::Network),
                );
            }
        }
        if rewritten && self.host.platform == Platform::Linux {
            self.warnings.push(Warning::new(WarningTopic::Network, format!(
                "the host's proxy listens on loopback, which a container cannot reach: the guest uses `{}` instead, so the proxy must also listen on the engine's bridge",
                host_name(self.engine)
            )));
        }
        Ok(rewritten && self.host.platform == Platform::Linux && self.engine == EngineKind::Docker)
    }

    /// Replaces the host's loopback in the address of a proxy: inside a container, it is another
    /// one.
    fn proxy_inside(&self, name: &'static str, value: &str) -> Result<String> {
        let (before, host, after) = parts(value).ok_or_else(|| {
            // The value may contain a password.
            let value = if value.contains('@') { "its value" } else { value };
            NetworkError::NotAProxy { name, value: value.to_owned() }
        })?;
        let is_loopback = host == "localhost" || host == "[::1]" || host.starts_with("127.");
        Ok(if is_loopback && self.engine.is_container() {
            format!("{before}{}{after}", host_name(self.engine))
        } else {
            value.to_owned()
        })
    }

    /// Mounts the certificates that variables name, at the same paths.
    fn certificates(&mut self) {
        for name in vars::CERTIFICATES {
            let Some(path) = self.host.env.path(name).and_then(|path| HostPath::new(path).ok()) else { continue };
            let why = || Why::new("certificates that the host trusts", Origin::Env(name)).about(Topic::Network);
            match self.facts.files.get(&path) {
                Some(fact) if matches!(fact.kind, FileKind::File | FileKind::Directory) => {
                    let Some(fact) = self.named_file(&path, name).cloned() else { continue };
                    if self.engine != EngineKind::SandboxExec {
                        self.show_named(&fact, &path, why());
                    }
                    self.env.plain(name, path.to_string(), why());
                }
                _ => self.warnings.push(Warning::new(
                    WarningTopic::Network,
                    format!("env {name}: `{path}` does not exist, so it is not set inside"),
                )),
            }
        }
    }
}

fn host_name(engine: EngineKind) -> &'static str {
    if engine == EngineKind::Podman { PODMAN_HOST } else { DOCKER_HOST }
}

/// Splits an address into the text before the host, the host, and the text after it.
fn parts(value: &str) -> Option<(&str, &str, &str)> {
    if value.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return None;
    }
    let scheme = value.find("://").map_or(0, |at| at + 3);
    let authority = value[scheme..].find(['/', '?', '#']).map_or(value.len(), |at| scheme + at);
    let start = value[scheme..authority].rfind('@').map_or(scheme, |at| scheme + at + 1);
    let rest = &value[start..authority];
    let length = if rest.starts_with('[') { rest.find(']')? + 1 } else { rest.find(':').unwrap_or(rest.len()) };
    let port = &rest[length..];
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    (length > 0 && is_port).then(|| (&value[..start], &rest[..length], &value[start + length..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_of_proxies() {
        for (value, host) in [
            ("http://proxy:3128", "proxy"),
            ("proxy", "proxy"),
            ("http://me:p@w@127.0.0.1:1/", "127.0.0.1"),
            ("socks5h://[::1]:9", "[::1]"),
            ("localhost:8080", "localhost"),
        ] {
            assert_eq!(parts(value).map(|(_, host, _)| host), Some(host), "{value}");
        }
        for value in ["http://", "http://:80", "http://a:b", "a b", "http://[::1", "http://a:99999"] {
            assert_eq!(parts(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(value in "[a-z:/@\\[\\]0-9.]{0,20}") {
            if let Some((before, host, after)) = parts(&value) {
                prop_assert_eq!([before, host, after].concat(), value);
            }
        }
    }
}
