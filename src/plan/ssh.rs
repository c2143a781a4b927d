//! Decides whether and how the SSH agent is forwarded (R4–R7). Connects to no agent; `facts::agent`
//! does.

use std::time::Duration;

use serde::Serialize;

use super::agent_gate::AgentGatePlan;
use super::channel::ChannelSocket;
use super::entry::{Mount, Source, Topic, Why};
use super::user::{UserHow, UserPlan};
use super::{Draft, Inputs, TunnelPlan};
use crate::channel::StreamKind;
use crate::config::value::{Access, AgentMode, EngineKind};
use crate::error::{Diagnostic, Error, Kind};
use crate::facts::engines::connection::Connection;
use crate::facts::engines::machine::HOST_SERVICE;
use crate::facts::{AgentFacts, DesktopFacts, DockerFacts, MachineQuestion};
use crate::host::{Host, Platform};
use crate::path::{GuestPath, HostPath, PathError, constant};
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// The default time limit until the tunnel is ready (R7.4).
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(10);

/// The path of the agent's socket inside (R4.3).
pub const SOCKET: &str = "/ssh-agent";

/// The result of the decision about the SSH agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SshState {
    /// The agent is reachable inside.
    Forwarded,
    /// The user disabled forwarding.
    Off,
    /// Forwarding is enabled but not possible.
    Skipped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Mounts the agent's socket (R5).
    Mount,
    /// Mounts the socket that Docker Desktop provides in its machine (R6).
    HostService,
    /// Opens an SSH reverse tunnel into Podman's machine (R7).
    Tunnel,
    /// Leads to a socket of the launcher, which lets only some requests pass to the agent: by a mount, or
    /// over a channel into a virtual machine.
    Relay,
    None,
}

/// Whether and how the SSH agent is forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshPlan {
    /// Tells whether the agent is reachable inside.
    pub state: SshState,
    /// Selects the mechanism.
    pub strategy: Strategy,
    /// Counts the agent's keys; `None` if the agent is not forwarded.
    pub keys: Option<u32>,
    /// Conditions that only a launch can check.
    pub pending: Vec<String>,
    /// Tells the user why.
    pub reason: String,
    /// The mount of the socket; `None` if the agent is not forwarded.
    pub mount: Option<Mount>,
    /// `None` if the sandbox gets the agent's own socket, or none.
    pub gate: Option<AgentGatePlan>,
    /// The socket inside, if it is not mounted.
    pub channel: Option<ChannelSocket>,
    /// Whether a gate was asked for and is not possible here.
    pub lacks_gate: bool,
    /// `None` unless the strategy is a tunnel.
    pub tunnel: Option<TunnelPlan>,
    /// The reason for which the sandbox must not start (R7.6). `run` stops with it, `explain` shows
    /// it as a warning.
    pub problem: Option<Error>,
}

#[derive(Debug, thiserror::Error)]
pub enum SshError {
    #[error("env {}: `{text}` is not a number of seconds", vars::TUNNEL_TIMEOUT)]
    BadTimeout { text: String },
    #[error("ssh cannot forward the SSH agent's socket: its path contains blanks, colons, percent or dollar signs")]
    UnsupportedSocket,
    #[error("`--ssh-host` and `--ssh-confirm` cannot be enforced with `--ssh-agent raw`")]
    HostsWithoutGate,
    #[error("the session's name cannot be part of a socket's path")]
    UnsupportedName { source: PathError },
}

impl Diagnostic for SshError {
    fn kind(&self) -> Kind {
        match self {
            Self::BadTimeout { .. } | Self::HostsWithoutGate => Kind::Usage,
            Self::UnsupportedSocket | Self::UnsupportedName { .. } => Kind::Launch,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::BadTimeout { .. } => vec!["expected a whole number from 1 to 3600".into()],
            Self::UnsupportedSocket => vec!["start an agent at a plain path: `eval $(ssh-agent)`".into()],
            Self::HostsWithoutGate => vec!["use `--ssh-agent on`, or drop the rule".into()],
            Self::UnsupportedName { .. } => Vec::new(),
        }
    }
}

impl SshPlan {
    /// Returns the path of the socket inside, and the reason for it.
    pub fn socket(&self) -> Option<(&GuestPath, &Why)> {
        let mounted = self.mount.as_ref().map(|mount| (&mount.target, &mount.why));
        mounted.or_else(|| self.channel.as_ref().map(|socket| (&socket.inside, &socket.why)))
    }

    fn not(state: SshState, reason: impl Into<String>) -> Self {
        SshPlan {
            state,
            strategy: Strategy::None,
            keys: None,
            pending: Vec::new(),
            reason: reason.into(),
            mount: None,
            gate: None,
            channel: None,
            lacks_gate: false,
            tunnel: None,
            problem: None,
        }
    }

    fn forwarded(strategy: Strategy, keys: u32, reason: String, mount: Mount) -> Self {
        SshPlan { strategy, keys: Some(keys), mount: Some(mount), ..Self::not(SshState::Forwarded, reason) }
    }
}

impl Draft<'_> {
    /// Decides whether and how the SSH agent is forwarded.
    pub fn ssh(&self, warnings: &mut Vec<Warning>) -> SshPlan {
        let variable = vars::SSH_AUTH_SOCK;
        let remedy = "Start one (`eval $(ssh-agent)`, `ssh-add`), or silence this with --ssh-agent off";
        let (warning, reason) = match &self.facts.agent {
            AgentFacts::NotAsked => {
                return SshPlan::not(SshState::Off, format!("disabled by {}", self.config.ssh_agent.origin));
            }
            AgentFacts::Answers { socket, keys } => return self.forward(socket, *keys, warnings),
            AgentFacts::Unset => {
                (format!("{variable} is not set, so SSH keys do not work inside"), format!("{variable} is not set"))
            }
            AgentFacts::Missing { path } => {
                (format!("{variable} names `{path}`, which does not exist"), format!("`{path}` does not exist"))
            }
            AgentFacts::Silent { path, error } => {
                (format!("no agent answers at `{path}` ({error})"), format!("no agent answers at `{path}`"))
            }
        };
        if self.misses_agent() {
            warnings.push(Warning::new(WarningTopic::SshAgent, format!("no SSH agent: {warning}. {remedy}")));
        }
        SshPlan::not(SshState::Skipped, reason)
    }

    /// Tells whether the lack of an agent is worth a warning. R4.2 requires one for containers; the
    /// native engine warns if the agent was asked for or the repository has a remote that uses SSH.
    fn misses_agent(&self) -> bool {
        let is_url = |key: &str| key.starts_with("remote.") && (key.ends_with(".url") || key.ends_with(".pushurl"));
        let uses_ssh = || self.facts.git.settings.iter().any(|one| is_url(&one.key) && is_ssh_url(&one.value));
        self.engine != EngineKind::Native || self.config.ssh_agent.value != AgentMode::Auto || uses_ssh()
    }

    fn forward(&self, socket: &HostPath, keys: u32, warnings: &mut Vec<Warning>) -> SshPlan {
        if keys == 0 {
            warnings.push(Warning::new(
                WarningTopic::SshAgent,
                "the SSH agent holds no keys, so SSH inside will fail with \"Permission denied\". Add one: `ssh-add`",
            ));
        }
        if self.config.ssh_agent.value == AgentMode::Raw && self.has_agent_rules() {
            let error = SshError::HostsWithoutGate;
            let reason = error.to_string();
            return SshPlan { problem: Some(error.into()), ..SshPlan::not(SshState::Skipped, reason) };
        }
        if let (true, Some(gate)) = (self.has_channel(), self.gate()) {
            return self.relay_over_channel(gate, keys);
        }
        if self.engine == EngineKind::Kubernetes {
            let why = "only sandpen's own socket can be relayed into a pod, by its helper";
            warnings.push(Warning::new(
                WarningTopic::SshAgent,
                format!("SSH agent forwarding is unavailable: {why}. SSH keys do not work inside; silence this with --ssh-agent off"),
            ));
            return SshPlan::not(SshState::Skipped, why);
        }
        match (&self.facts.desktop, &self.facts.connection) {
            (Some(desktop), _) => self.host_service(desktop, keys, warnings),
            (None, Some(Ok(connection))) => self.tunnel(connection, socket, keys),
            (None, Some(Err(problem))) => {
                SshPlan { problem: Some(problem.clone()), ..SshPlan::not(SshState::Skipped, problem.message()) }
            }
            (None, None) if self.host.platform == Platform::Macos && self.engine.is_container() => {
                SshPlan::not(SshState::Skipped, "the engine does not answer, so its virtual machine is unknown")
            }
            (None, None) => match self.gate() {
                Some(gate) => self.relay(gate, keys),
                None if self.engine == EngineKind::SandboxExec => self.agent_in_place(socket, keys),
                None => self.mount_agent(socket, keys, warnings),
            },
        }
    }

    /// Mounts the gate's socket. Seatbelt has no mounts: it allows access to the socket's path.
    fn relay(&self, gate: AgentGatePlan, keys: u32) -> SshPlan {
        let target = match self.engine {
            EngineKind::SandboxExec => gate.socket.to_guest(),
            _ => agent_target(),
        };
        let mount = Mount::file(gate.socket.clone(), target, Access::Rw, self.why_agent("R4.3"));
        let mount = Mount { relabel: self.engine == EngineKind::Podman, ..mount };
        let reason = format!("the agent at `{}` answers; the sandbox may {}", gate.agent, gate.allowed());
        SshPlan { gate: Some(gate), ..SshPlan::forwarded(Strategy::Relay, keys, reason, mount) }
    }

    /// Lets a process inside listen in place of a mounted socket. The engine carries its streams.
    fn relay_over_channel(&self, gate: AgentGatePlan, keys: u32) -> SshPlan {
        let why = self.why_agent("R4.3");
        let channel = ChannelSocket { kind: StreamKind::Agent, inside: agent_target(), gate: gate.socket.clone(), why };
        let reason = format!(
            "the agent at `{}` answers; the sandbox may {}, over an `exec` of {}",
            gate.agent,
            gate.allowed(),
            self.engine.name()
        );
        SshPlan {
            strategy: Strategy::Relay,
            keys: Some(keys),
            gate: Some(gate),
            channel: Some(channel),
            ..SshPlan::not(SshState::Forwarded, reason)
        }
    }

    /// Allows access to the socket at its path on the host, because Seatbelt has no mounts.
    fn agent_in_place(&self, socket: &HostPath, keys: u32) -> SshPlan {
        let mount = Mount::file(socket.clone(), socket.to_guest(), Access::Rw, self.why_agent("R4.4"));
        let reason = format!("the agent at `{socket}` answers; its socket is accessible inside");
        SshPlan::forwarded(Strategy::Mount, keys, reason, mount)
    }

    /// Mounts the socket (R5).
    fn mount_agent(&self, socket: &HostPath, keys: u32, warnings: &mut Vec<Warning>) -> SshPlan {
        warn_of_other_user(self.host, self.user, warnings);
        let requirement = if self.engine == EngineKind::Podman { "R5.2" } else { "R5.1" };
        let mount = Mount::file(socket.clone(), agent_target(), Access::Rw, self.why_agent(requirement));
        let mount = Mount { relabel: self.engine == EngineKind::Podman, ..mount };
        SshPlan::forwarded(
            Strategy::Mount,
            keys,
            format!("the agent at `{socket}` answers; its socket is mounted"),
            mount,
        )
    }

    /// Uses Docker Desktop's socket if both checks of R6 succeed; otherwise warns.
    fn host_service(&self, desktop: &DesktopFacts, keys: u32, warnings: &mut Vec<Warning>) -> SshPlan {
        let found = match (desktop.system.as_str(), self.facts.docker.as_ref().and_then(DockerFacts::provider)) {
            (_, Some(provider)) => provider.name().to_owned(),
            ("", None) => "an unidentified engine".to_owned(),
            (system, None) => format!("`{system}`"),
        };
        let mut skip = |why: String| {
            warnings.push(Warning::new(WarningTopic::SshAgent, format!("SSH agent forwarding is unavailable: {why}. SSH keys do not work inside; silence this with --ssh-agent off")));
            SshPlan::not(SshState::Skipped, why)
        };
        if !desktop.has_service() {
            return skip(format!(
                "this Docker is {found}, and only Docker Desktop and OrbStack forward the agent into their virtual machine"
            ));
        }
        if self.has_agent_rules() {
            return skip(format!(
                "`--ssh-host` and `--ssh-confirm` cannot be enforced in the virtual machine of {found}"
            ));
        }
        if desktop.socket == Some(false) {
            return skip(format!("`{HOST_SERVICE}` does not exist in the virtual machine of {found}"));
        }
        let socket = constant!(MachinePath, HOST_SERVICE);
        let mount = Mount::machine_socket(socket, agent_target(), self.why_agent("R6.1"));
        let pending = match desktop.socket {
            Some(_) => Vec::new(),
            None => vec![format!("whether `{HOST_SERVICE}` exists in the virtual machine")],
        };
        let reason = format!("{found} forwards the host's agent into its virtual machine");
        let lacks_gate = self.config.ssh_agent.value != AgentMode::Raw;
        SshPlan { pending, lacks_gate, ..SshPlan::forwarded(Strategy::HostService, keys, reason, mount) }
    }

    /// Plans a tunnel for this session (R7).
    fn tunnel(&self, connection: &Connection, socket: &HostPath, keys: u32) -> SshPlan {
        let gate = self.gate();
        // The tunnel ends in the gate, so that the gate holds in the machine, too.
        let end = gate.as_ref().map_or(socket, |gate| &gate.socket);
        let planned = tunnel_timeout(self.host)
            .and_then(|timeout| TunnelPlan::new(connection.clone(), end, self.id, self.facts.ssh.clone(), timeout));
        let tunnel = match planned {
            Ok(tunnel) => tunnel,
            Err(error) => {
                let reason = error.to_string();
                return SshPlan { problem: Some(error.into()), ..SshPlan::not(SshState::Skipped, reason) };
            }
        };
        let mount = Mount::machine_socket(tunnel.socket.clone(), agent_target(), self.why_agent("R7.5"));
        let reason =
            format!("a tunnel over Podman's connection `{}` leads to the agent at `{socket}`", connection.name);
        let pending = vec![format!("whether `{}@{}` accepts the tunnel", connection.user, connection.host)];
        SshPlan { pending, gate, tunnel: Some(tunnel), ..SshPlan::forwarded(Strategy::Tunnel, keys, reason, mount) }
    }

    fn why_agent(&self, requirement: &'static str) -> Why {
        let origin = self.config.ssh_agent.origin.clone();
        Why::new("the host's SSH agent", origin).about(Topic::Ssh).requirement(requirement)
    }
}

fn tunnel_timeout(host: &Host) -> Result<Duration, SshError> {
    let Some(text) = host.env.text(vars::TUNNEL_TIMEOUT) else { return Ok(TUNNEL_TIMEOUT) };
    match text.parse() {
        Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err(SshError::BadTimeout { text: text.to_owned() }),
    }
}

fn agent_target() -> GuestPath {
    constant!(GuestPath, SOCKET)
}

/// Decides which question the engine's virtual machine is asked, if the agent must be forwarded
/// into one.
pub fn machine_question(inputs: Inputs, engine: EngineKind) -> Option<MachineQuestion> {
    let Inputs { host, config, facts, .. } = inputs;
    if !matches!(facts.agent, AgentFacts::Answers { .. }) {
        return None;
    }
    if config.ssh_agent.value != AgentMode::Raw && facts.helper.is_some() {
        // The gate is reached over a channel, whatever the machine is.
        return None;
    }
    let is_desktop = || facts.docker.as_ref().is_some_and(DockerFacts::is_desktop);
    match (engine, host.platform) {
        (EngineKind::Docker, Platform::Macos) => Some(MachineQuestion::OperatingSystem),
        (EngineKind::Docker, Platform::Linux) if is_desktop() => Some(MachineQuestion::OperatingSystem),
        (EngineKind::Podman, Platform::Macos) => Some(MachineQuestion::Connection),
        _ => None,
    }
}

/// ssh-agent refuses peers of another uid.
fn warn_of_other_user(host: &Host, user: &UserPlan, warnings: &mut Vec<Warning>) {
    if user.how == UserHow::Image && !user.is_mapped && user.uid != Some(host.uid) && user.uid != Some(0) {
        warnings.push(Warning::new(
            WarningTopic::SshAgent,
            format!(
                "the guest is the image's user, but ssh-agent only accepts uid {} and root. Use --user host",
                host.uid
            ),
        ));
    }
}

impl Draft<'_> {
    /// Covers the agent's own socket in every mounted directory that contains it, if the sandbox must
    /// not reach it (R4.1). Not needed if containers run in a virtual machine, which sockets of the host do not
    /// reach.
    pub fn hide_agent(&mut self, reason: &str) {
        let variable = self.host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| HostPath::new(path).ok());
        let found = variable.and_then(|socket| self.facts.files.get(&socket));
        let Some(socket) = found.map(|fact| &fact.real).filter(|_| self.host.platform == Platform::Linux) else {
            return;
        };
        let null = constant!(HostPath, "/dev/null");
        let covers: Vec<Mount> = self
            .mounts
            .iter()
            .filter_map(|mount| {
                let Source::Host(source) = &mount.source else { return None };
                // A mount of the socket itself was requested explicitly.
                let below = socket.as_path().strip_prefix(source.as_path()).ok().filter(|_| source != socket)?;
                let why =
                    Why::new(format!("covers the SSH agent's socket: {reason}"), self.config.ssh_agent.origin.clone())
                        .about(Topic::Ssh);
                let target = mount.target.join(below);
                Some(Mount::file(null.clone(), target, Access::Ro, why.requirement("R4.1")))
            })
            .collect();
        covers.into_iter().for_each(|cover| self.mounts.add(cover));
    }
}
/// Tells whether Git uses SSH for a URL: by its scheme, or because a host precedes the path, as in
/// `git@host:path`.
fn is_ssh_url(url: &str) -> bool {
    match url.split_once("://") {
        Some((scheme, _)) => matches!(scheme, "ssh" | "git+ssh" | "ssh+git"),
        // `host::address` names a remote helper.
        None => url
            .split_once(':')
            .is_some_and(|(host, path)| !host.is_empty() && !host.contains('/') && !path.starts_with(':')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_urls_are_told_from_paths_and_other_schemes() {
        for url in ["ssh://git@h/x", "git@forge:a/b.git", "box:app.git", "git+ssh://h/x"] {
            assert!(is_ssh_url(url), "{url}");
        }
        for url in ["https://h/x", "/srv/a:b", "./a:b", "../x", "ext::sh -c x", "file:///x", "git://h/x", ""] {
            assert!(!is_ssh_url(url), "{url}");
        }
    }
}
