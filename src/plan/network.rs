//! Decides the network policy: which hosts a filtered guest may reach, through which proxy, and how
//! programs inside find the proxy. Opens no connection.
//!
//! A filtered guest has no network at all. Its first process listens on the proxy's port on the
//! guest's loopback and passes that listener to the proxy outside; there is no other way out.

use core::net::Ipv4Addr;
use std::path::PathBuf;

use super::engine::EnginePlan;
use super::entry::{Mount, Topic, Why};
use super::helper::{Handover, HelperError};
use super::prepare::Prepare;
use super::{Draft, Inputs, SecretsPlan, seatbelt};
use crate::config::value::{Access, EngineKind, HostRule, NetworkMode};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::Facts;
use crate::host::Platform;
use crate::proxy::PROXY_PORT;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// The directory with the socket over which the listener is passed, in the session and the control
/// directory.
pub const HANDOVER: &str = "proxy";

/// Names of the guest itself, which programs reach without the proxy.
const LOOPBACK_NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// The network policy of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Selects open, filtered or no network.
    pub mode: NetworkMode,
    /// Hosts that sandpen's proxy allows; empty with a proxy command, which decides itself.
    pub allow_hosts: Vec<Sourced<HostRule>>,
    /// `None` unless the network is filtered.
    pub proxy: Option<ProxyPlan>,
    /// Whether Docker must define a name for the host, because a proxy of the host is reached by
    /// it.
    pub names_host: bool,
    /// Tells the user why this mode applies.
    pub reason: String,
}

/// The proxy that filters the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyPlan {
    /// The launcher, while it waits for the guest.
    Launcher,
    /// sandpen's proxy in a second container, because the guest runs on another machine.
    Sidecar,
    /// The launcher, for the hosts of keys only: the network is open.
    ForSecrets {
        /// The address on this machine's loopback, if the guest shares it.
        listen: Option<Ipv4Addr>,
    },
    /// The user's command: in a second container for containers, otherwise on the host.
    Command {
        /// The command and its arguments.
        words: Vec<String>,
        /// PATH without mounted directories, for a proxy on the host.
        path: PathBuf,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("{command} and {rule} contradict each other: either your proxy decides, or the list does")]
    Contradiction { command: Origin, rule: Origin },
    #[error("a filtered network needs a list of hosts or a proxy command")]
    NoHosts { reason: String },
    #[error("{origin}: `{command}` is not a command")]
    NotACommand { origin: Origin, command: String, reason: String },
    #[error("env {name}: `{value}` is not the address of a proxy")]
    NotAProxy { name: &'static str, value: String },
}

impl Diagnostic for NetworkError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::NoHosts { reason } => vec![format!("the network is filtered: {reason}")],
            Self::NotACommand { reason, .. } => vec![reason.clone()],
            Self::Contradiction { .. } | Self::NotAProxy { .. } => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::Contradiction { .. } => "drop one of the two",
            Self::NoHosts { .. } => {
                "name hosts with `--allow-host HOST[:PORT]`, or a proxy with `--proxy-command`; `--network off` allows none"
            }
            Self::NotACommand { .. } => "it is split into words as in a shell, and executed without one",
            Self::NotAProxy { .. } => "expected `[http://][USER:PASSWORD@]HOST[:PORT]`",
        };
        vec![hint.to_owned()]
    }
}

impl ProxyPlan {
    /// Returns the name that `explain` shows.
    pub fn name(&self) -> &'static str {
        match self {
            ProxyPlan::Launcher => "sandpen",
            ProxyPlan::ForSecrets { .. } => "sandpen, for the hosts of keys",
            ProxyPlan::Sidecar => "sandpen, in a separate container",
            ProxyPlan::Command { .. } => "the proxy command",
        }
    }
}

pub fn plan(inputs: Inputs, engine: &EnginePlan) -> Result<NetworkPlan> {
    let Inputs { host, config, facts, preset, .. } = inputs;
    let (mode, reason) = seatbelt::policy(config, engine.kind)?;
    let unfiltered = NetworkPlan { mode, allow_hosts: Vec::new(), proxy: None, names_host: false, reason };
    if mode != NetworkMode::Proxied {
        return Ok(unfiltered);
    }
    if let Some(command) = &config.proxy_command {
        if let Some(rule) = config.allow_hosts.first() {
            let (command, rule) = (command.origin.clone(), rule.origin.clone());
            return Err(NetworkError::Contradiction { command, rule }.into());
        }
        return Ok(NetworkPlan { proxy: Some(command_of(command, facts, engine.kind)?), ..unfiltered });
    }
    let preset = preset.into_iter().flat_map(|preset| {
        preset.hosts.iter().map(|rule| Sourced::new(rule.clone(), Origin::Preset(preset.name.clone())))
    });
    let mut allow_hosts: Vec<Sourced<HostRule>> = Vec::new();
    for rule in config.allow_hosts.iter().cloned().chain(preset) {
        if !allow_hosts.iter().any(|known| known.value == rule.value) {
            allow_hosts.push(rule);
        }
    }
    if allow_hosts.is_empty() {
        return Err(NetworkError::NoHosts { reason: unfiltered.reason }.into());
    }
    let is_elsewhere = host.platform == Platform::Macos
        || engine.abilities.remote
        || (engine.kind == EngineKind::Docker && facts.docker.as_ref().is_some_and(|docker| docker.is_desktop()));
    // Where nothing can be mounted, the connections come over the channel.
    let is_elsewhere = engine.kind.is_container() && is_elsewhere && !engine.abilities.copies_files;
    let proxy = if is_elsewhere { ProxyPlan::Sidecar } else { ProxyPlan::Launcher };
    Ok(NetworkPlan { allow_hosts, proxy: Some(proxy), ..unfiltered })
}

/// Returns the program of the proxy command, if it must be looked up on PATH.
pub fn proxy_program(config: &Config) -> Option<String> {
    let words = shlex::split(&config.proxy_command.as_ref()?.value)?;
    words.into_iter().next().filter(|program| !program.contains('/'))
}

fn command_of(command: &Sourced<String>, facts: &Facts, engine: EngineKind) -> Result<ProxyPlan> {
    let wrong = |reason: &str| NetworkError::NotACommand {
        origin: command.origin.clone(),
        command: command.value.clone(),
        reason: reason.to_owned(),
    };
    let mut words = shlex::split(&command.value).ok_or_else(|| wrong("a quote is not closed"))?;
    let program = words.first_mut().ok_or_else(|| wrong("it is empty"))?;
    if !engine.is_container() && !program.contains('/') {
        // The proxy runs on the host, where no program of a mounted directory may run.
        let found = facts.programs.get(program).and_then(|found| found.path.to_str().map(str::to_owned));
        *program =
            found.ok_or_else(|| wrong(&format!("there is no `{program}` on PATH outside of mounted directories")))?;
    }
    Ok(ProxyPlan::Command { words, path: facts.path.for_host() })
}

impl Draft<'_> {
    /// Adds the mounts, variables and settings by which programs inside reach the proxy.
    pub fn filtered_network(&mut self, network: &NetworkPlan, secrets: &SecretsPlan) -> Result<Option<Handover>> {
        let Some(proxy) = &network.proxy else { return Ok(None) };
        if let ProxyPlan::ForSecrets { listen } = proxy {
            let address = format!("{}:{PROXY_PORT}", listen.unwrap_or(Ipv4Addr::LOCALHOST));
            let own: Vec<&str> = LOOPBACK_NAMES.iter().filter(|name| !secrets.names(name)).copied().collect();
            let password = secrets.proxy.as_ref().and_then(|proxy| proxy.password.as_ref());
            self.secrets_proxy_variables(&address, password, &own.join(","));
            if !self.engine.is_container() || self.has_proxy_channel(network) {
                return Ok(None);
            }
            return Ok(Some(self.handover(proxy)));
        }
        let program = match self.engine {
            EngineKind::SandboxExec => self.host.executable.clone(),
            _ => self.facts.helper.clone(),
        };
        let feature = "a filtered network";
        let program = program.ok_or(HelperError::Missing { feature, arch: self.host.arch })?;
        self.proxy_variables(&own_names(network));
        if self.engine == EngineKind::SandboxExec {
            // Seatbelt cannot mount a configuration file for ssh, but Git has a variable.
            let command = [&program.to_string(), "connect", "%h", "%p"].join(" ");
            let why = Why::default("git over ssh uses the proxy: allow HOST:22").about(Topic::Network);
            self.env.plain("GIT_SSH_COMMAND", format!("ssh -o ProxyCommand='{command}'"), why);
            return Ok(None);
        }
        let control_dir = self.control_dir();
        if !self.engine.is_container() {
            // The native engine passes the listener itself; ssh still needs the helper.
            let why = Why::default("the guest helper, through which ssh reaches allowed hosts").about(Topic::Network);
            self.mounts.add(Mount::file(program, control_dir.join("sandpen"), Access::Ro, why));
            return Ok(None);
        }
        if self.has_proxy_channel(network) {
            return Ok(None);
        }
        Ok(Some(self.handover(proxy)))
    }

    /// Tells whether a process in the container listens on the proxy's port, and a channel carries the connections
    /// to the launcher.
    pub fn has_proxy_channel(&self, network: &NetworkPlan) -> bool {
        network.proxy.is_some() && self.remote().is_some()
    }

    /// Mounts the socket over which the guest's listener is passed.
    fn handover(&mut self, proxy: &ProxyPlan) -> Handover {
        let control_dir = self.control_dir();
        let why =
            Why::default("the socket over which the proxy receives the guest's connections").about(Topic::Network);
        let target = control_dir.join(HANDOVER);
        let place = self.session_dir.join(HANDOVER);
        match (self.host.platform, proxy) {
            // The host's directories are not on that machine, so both containers use a volume.
            (Platform::Macos, _) | (_, ProxyPlan::Sidecar) => {
                self.mounts.add(Mount::volume(self.volume_name(), target.clone(), why));
            }
            _ => {
                self.prepare.push(Prepare::Directory { path: place.clone(), mode: 0o755 });
                self.mounts.add(Mount::directory(place, target.clone(), Access::Ro, why));
            }
        }
        Handover { directory: target.to_string() }
    }

    fn proxy_variables(&mut self, own: &[&str]) {
        let address = format!("http://127.0.0.1:{PROXY_PORT}");
        let own = own.join(",");
        let pairs = vars::PROXIES.iter().map(|name| (*name, address.as_str()));
        for (name, value) in
            pairs.chain(vars::NO_PROXIES.iter().map(|name| (*name, own.as_str()))).chain([(vars::NODE_PROXY, "1")])
        {
            let why = Why::new("programs find the proxy by this variable", self.config.network.origin.clone())
                .about(Topic::Network);
            if let Some(origin) = self.env.force(name, value, why) {
                self.warnings.push(Warning::new(
                    WarningTopic::Network,
                    format!("{origin}: {name} is always {value} inside when the network is filtered"),
                ));
            }
        }
    }

    /// Returns the lines by which ssh, which ignores proxy variables, connects through the helper.
    pub fn ssh_proxy(&self, network: &NetworkPlan) -> Option<String> {
        let is_filtered = network.mode == NetworkMode::Proxied && self.engine != EngineKind::SandboxExec;
        network.proxy.as_ref().filter(|_| is_filtered)?;
        let helper = self.control_dir().join("sandpen");
        let except: String = own_names(network).iter().map(|name| format!(" !{name}")).collect();
        Some(format!("Host *{except}\n    ProxyCommand {helper} connect %h %p\n"))
    }
}

/// Lists the names of the guest itself. A listed `localhost` is the host's, so it is reached through
/// the proxy.
fn own_names(network: &NetworkPlan) -> Vec<&'static str> {
    let is_listed = |name: &&&str| network.allow_hosts.iter().any(|rule| rule.value.names(name));
    LOOPBACK_NAMES.iter().filter(|name| !is_listed(name)).copied().collect()
}
