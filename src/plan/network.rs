//! The network policy: what a filtered guest may reach, through which proxy, and how its programs find it.
//!
//! A filtered guest has no network at all. Its first process binds the proxy's port on the guest's own loopback and hands that
//! listener out – the only way out there is.

use std::path::PathBuf;

use super::engine::EnginePlan;
use super::entry::{Mount, Topic, Why};
use super::helper::Handover;
use super::prepare::Prepare;
use super::{Draft, Inputs, helper_missing, seatbelt};
use crate::config::value::EngineKind;
use crate::config::value::{Access, HostRule, NetworkMode};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::host::Platform;
use crate::path::constant;
use crate::proxy::PROXY_PORT;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// The directory with the socket over which the listener is handed out, on the host and in the control_dir.
pub const HANDOVER: &str = "proxy";

/// The guest's own names, which it reaches without a proxy.
const OWN: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// The policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPlan {
    /// The policy.
    pub mode: NetworkMode,
    /// What the proxy allows, each with its origin.
    pub allow_hosts: Vec<Sourced<HostRule>>,
    /// Who filters, when it is filtered.
    pub proxy: Option<ProxyPlan>,
    /// Whether Docker must be told the host's name: a proxy of the host is found under it.
    pub names_host: bool,
    /// Why.
    pub reason: String,
}

/// Who filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyPlan {
    /// sandpen itself, while it waits for the guest.
    Launcher,
    /// sandpen's proxy in a container of its own, where the guest's machine is not this one.
    Sidecar,
    /// The user's command: in a container of its own beside a container, on the host beside the host's tools.
    Command {
        /// Its words.
        words: Vec<String>,
        /// Where it finds programs, on the host: PATH without mounted directories.
        path: PathBuf,
    },
}

impl ProxyPlan {
    /// The word for `explain`.
    pub fn name(&self) -> &'static str {
        match self {
            ProxyPlan::Launcher => "sandpen",
            ProxyPlan::Sidecar => "sandpen, in a container of its own",
            ProxyPlan::Command { .. } => "the proxy command",
        }
    }
}

/// Decides the policy.
pub fn plan(inputs: Inputs, engine: &EnginePlan) -> Result<NetworkPlan> {
    let Inputs { host, config, facts, preset, .. } = inputs;
    let (mode, reason) = seatbelt::policy(config, engine.kind)?;
    if mode != NetworkMode::Proxied {
        return Ok(NetworkPlan { mode, allow_hosts: Vec::new(), proxy: None, names_host: false, reason });
    }
    if let Some(command) = &config.proxy_command {
        if let Some(rule) = config.allow_hosts.first() {
            return Err(Error::usage(format!(
                "{} and {} contradict each other: either your proxy decides, or the list does",
                command.origin, rule.origin
            ))
            .hint("drop one of the two"));
        }
        return Ok(NetworkPlan {
            mode,
            allow_hosts: Vec::new(),
            proxy: Some(command_of(command, facts, engine.kind)?),
            names_host: false,
            reason,
        });
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
        return Err(Error::usage("a filtered network needs a list of hosts, or a proxy of your own")
            .cause(format!("it is filtered because of this: {reason}"))
        .hint("name hosts with `--allow-host HOST[:PORT]`, or a proxy with `--proxy-command`; `--network off` allows none"));
    }
    let is_elsewhere = host.platform == Platform::Macos
        || engine.abilities.remote
        || (engine.kind == EngineKind::Docker && facts.docker.as_ref().is_some_and(|docker| docker.is_desktop()));
    let is_elsewhere = engine.kind.is_container() && is_elsewhere;
    let proxy = if is_elsewhere { ProxyPlan::Sidecar } else { ProxyPlan::Launcher };
    Ok(NetworkPlan { mode, allow_hosts, proxy: Some(proxy), names_host: false, reason })
}

/// Returns the program of the proxy command, if it is to be found on PATH.
pub fn proxy_program(config: &Config) -> Option<String> {
    let words = shlex::split(&config.proxy_command.as_ref()?.value)?;
    words.into_iter().next().filter(|program| !program.contains('/'))
}

fn command_of(command: &Sourced<String>, facts: &Facts, engine: EngineKind) -> Result<ProxyPlan> {
    let wrong = |why: &str| {
        Error::usage(format!("{}: `{}` is not a command", command.origin, command.value))
            .cause(why)
            .hint("it is divided into words as a shell does, and executed without one")
    };
    let mut words = shlex::split(&command.value).ok_or_else(|| wrong("its quotes are not closed"))?;
    let program = words.first_mut().ok_or_else(|| wrong("it is empty"))?;
    if !engine.is_container() && !program.contains('/') {
        // On the host no mounted directory provides programs.
        let found = facts.programs.get(program).and_then(|found| found.path.to_str().map(str::to_owned));
        *program =
            found.ok_or_else(|| wrong(&format!("there is no `{program}` on PATH, mounted directories apart")))?;
    }
    Ok(ProxyPlan::Command { words, path: facts.path.for_host() })
}

impl Draft<'_> {
    /// What a filtered guest finds inside: the way to the proxy, and variables and settings that lead there.
    pub fn filtered_network(&mut self, network: &NetworkPlan) -> Result<Option<Handover>> {
        let Some(proxy) = &network.proxy else { return Ok(None) };
        let program = match self.engine {
            EngineKind::SandboxExec => self.host.executable.clone(),
            _ => self.facts.helper.clone(),
        };
        let Some(program) = program else { return Err(helper_missing(self.host, "a filtered network")) };
        // What is listed is on the other side of the proxy, also under the guest's own names.
        let is_listed = |name: &&&str| network.allow_hosts.iter().any(|rule| rule.value.names(name));
        let own: Vec<&str> = OWN.iter().filter(|name| !is_listed(name)).copied().collect();
        self.proxy_variables(&own);
        if self.engine == EngineKind::SandboxExec {
            // No file can be put before ssh there; git at least can be told.
            let words = [&program.to_string(), "connect", "%h", "%p"].join(" ");
            let why = Why::default("git goes through the proxy over ssh, too: allow HOST:22").about(Topic::Network);
            self.env.plain("GIT_SSH_COMMAND", format!("ssh -o ProxyCommand='{words}'"), why);
            return Ok(None);
        }
        self.ssh_through_proxy(&own);
        let control_dir = self.control_dir();
        if !self.engine.is_container() {
            // The engine itself hands the listener out; ssh still needs the helper inside.
            let why =
                Why::default("ssh reaches allowed hosts through it: this program, read-only").about(Topic::Network);
            self.mounts.add(Mount::file(program, control_dir.join("sandpen"), Access::Ro, why));
            return Ok(None);
        }
        let why = Why::default("the guest's only way out: the proxy's port is handed over here").about(Topic::Network);
        let target = control_dir.join(HANDOVER);
        let place = self.session_dir.join(HANDOVER);
        match (self.host.platform, proxy) {
            // Two containers of one machine meet in a volume of that machine.
            (Platform::Macos, _) | (_, ProxyPlan::Sidecar) => {
                self.mounts.add(Mount::volume(self.volume_name(), target.clone(), why));
            }
            _ => {
                self.prepare.push(Prepare::Directory { path: place.clone(), mode: 0o755 });
                self.mounts.add(Mount::directory(place, target.clone(), Access::Ro, why));
            }
        }
        Ok(Some(Handover { directory: target.to_string() }))
    }

    fn proxy_variables(&mut self, own: &[&str]) {
        let address = format!("http://127.0.0.1:{PROXY_PORT}");
        let own = own.join(",");
        let pairs = vars::PROXIES.iter().map(|name| (*name, address.as_str()));
        for (name, value) in
            pairs.chain(vars::NO_PROXIES.iter().map(|name| (*name, own.as_str()))).chain([(vars::NODE_PROXY, "1")])
        {
            let why =
                Why::new("programs find the proxy by it", self.config.network.origin.clone()).about(Topic::Network);
            if let Some(origin) = self.env.force(name, value, why) {
                self.warnings.push(Warning::new(
                    WarningTopic::Network,
                    format!("{origin}: {name} is always {value} inside when the network is filtered"),
                ));
            }
        }
    }

    /// ssh knows no proxy variables; it is told to go through the helper. A system-wide snippet is read by every user of an image,
    /// the user's own file where there is none.
    fn ssh_through_proxy(&mut self, own: &[&str]) {
        let helper = self.control_dir().join("sandpen");
        let except: String = own.iter().map(|name| format!(" !{name}")).collect();
        let text = format!("Host *{except}\n    ProxyCommand {helper} connect %h %p\n");
        let reason = "ssh goes through the proxy, too: allow HOST:22";
        if self.user.is_host_user() {
            let target = self.user.home.join(".ssh/config");
            self.own_file("ssh_config", text.clone(), target, reason);
        }
        if self.engine.is_container() {
            let target = constant!(GuestPath, "/etc/ssh/ssh_config.d/00-sandpen.conf");
            self.own_file("ssh_config.d", text, target, reason);
        }
    }
}
