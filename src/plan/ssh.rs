//! Whether and how the SSH agent is forwarded (R4–R7).

use std::time::Duration;

use serde::Serialize;

use super::entry::{Mount, Source, Topic, Why};
use super::user::{UserHow, UserPlan};
use super::{Draft, Inputs, TunnelPlan};
use crate::config::value::Access;
use crate::config::value::EngineKind;
use crate::error::{Error, Result};
use crate::facts::engines::connection::Connection;
use crate::facts::engines::machine::HOST_SERVICE;
use crate::facts::{AgentFacts, DesktopFacts, DockerFacts, MachineQuestion};
use crate::host::{Host, Platform};
use crate::path::{GuestPath, HostPath, constant};
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// How long the tunnel may take to be ready (R7.4).
const TUNNEL_SECONDS: u64 = 10;

/// Where the agent is found inside (R4.3).
pub const SOCKET: &str = "/ssh-agent";

/// What became of forwarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SshState {
    /// The agent is reachable inside.
    Forwarded,
    /// The user switched it off.
    Off,
    /// It was wanted, and cannot be done.
    Skipped,
}

/// How it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// The agent's socket is mounted (R5).
    Mount,
    /// The socket that Docker Desktop keeps in its machine is mounted (R6).
    HostService,
    /// An SSH reverse tunnel into Podman's machine (R7).
    Tunnel,
    /// Not at all.
    None,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshPlan {
    /// What became of it.
    pub state: SshState,
    /// How.
    pub strategy: Strategy,
    /// How many keys the agent lists.
    pub keys: Option<u32>,
    /// What only the launch can check.
    pub pending: Vec<String>,
    /// Why.
    pub reason: String,
    /// The mount that does it.
    pub mount: Option<Mount>,
    /// The tunnel that does it.
    pub tunnel: Option<TunnelPlan>,
    /// Why the sandbox must not start (R7.6). `run` stops with it, `explain` warns.
    pub problem: Option<Error>,
}

impl SshPlan {
    fn not(state: SshState, reason: impl Into<String>) -> Self {
        SshPlan {
            state,
            strategy: Strategy::None,
            keys: None,
            pending: Vec::new(),
            reason: reason.into(),
            mount: None,
            tunnel: None,
            problem: None,
        }
    }

    /// The agent is reachable at `/ssh-agent` through a socket where the engine runs.
    fn forwarded(strategy: Strategy, keys: u32, reason: String, mount: Mount) -> Self {
        SshPlan { strategy, keys: Some(keys), mount: Some(mount), ..Self::not(SshState::Forwarded, reason) }
    }
}

impl Draft<'_> {
    /// Decides whether and how the SSH agent is forwarded; what the user must know becomes a warning.
    pub fn ssh(&self, warnings: &mut Vec<Warning>) -> SshPlan {
        let variable = vars::SSH_AUTH_SOCK;
        let remedy = "Start one (`eval $(ssh-agent)`, `ssh-add`), or silence this with --ssh-agent off";
        let (warning, reason) = match &self.facts.agent {
            AgentFacts::NotAsked => {
                return SshPlan::not(SshState::Off, format!("switched off by {}", self.config.ssh_agent.origin));
            }
            AgentFacts::Answers { socket, keys } => return self.forward(socket, *keys, warnings),
            AgentFacts::Unset => {
                (format!("{variable} is not set, so SSH keys do not work inside"), format!("{variable} is not set"))
            }
            AgentFacts::Missing { path } => {
                (format!("{variable} names `{path}`, which does not exist"), format!("`{path}` does not exist"))
            }
            AgentFacts::Silent { path, error } => {
                (format!("nothing answers at `{path}` ({error})"), format!("nothing answers at `{path}`"))
            }
        };
        warnings.push(Warning::new(WarningTopic::SshAgent, format!("no SSH agent: {warning}. {remedy}")));
        SshPlan::not(SshState::Skipped, reason)
    }

    fn forward(&self, socket: &HostPath, keys: u32, warnings: &mut Vec<Warning>) -> SshPlan {
        if keys == 0 {
            warnings.push(Warning::new(
                WarningTopic::SshAgent,
                "the SSH agent holds no keys, so SSH will say \"Permission denied\" inside. Add one: `ssh-add`",
            ));
        }
        match (&self.facts.desktop, &self.facts.connection) {
            (Some(desktop), _) => self.host_service(desktop, keys, warnings),
            (None, Some(Ok(connection))) => self.tunnel(connection, socket, keys),
            (None, Some(Err(problem))) => {
                SshPlan { problem: Some(problem.clone()), ..SshPlan::not(SshState::Skipped, problem.message()) }
            }
            (None, None) if self.host.platform == Platform::Macos && self.engine.is_container() => {
                SshPlan::not(SshState::Skipped, "the engine does not answer, so its machine is not known")
            }
            (None, None) if self.engine == EngineKind::SandboxExec => self.agent_in_place(socket, keys),
            (None, None) => self.mount_agent(socket, keys, warnings),
        }
    }

    /// Seatbelt: there is no other place than its own for a socket.
    fn agent_in_place(&self, socket: &HostPath, keys: u32) -> SshPlan {
        let mount = Mount::file(socket.clone(), socket.to_guest(), Access::Rw, self.why_agent("R4.4"));
        let reason = format!("the agent at `{socket}` answers; its socket may be used");
        SshPlan::forwarded(Strategy::Mount, keys, reason, mount)
    }

    /// R5, and the native engine: the socket itself.
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

    /// R6: both checks, or a warning and no agent.
    fn host_service(&self, desktop: &DesktopFacts, keys: u32, warnings: &mut Vec<Warning>) -> SshPlan {
        let found = match (desktop.system.as_str(), self.facts.docker.as_ref().and_then(DockerFacts::provider)) {
            (_, Some(provider)) => provider.name().to_owned(),
            ("", None) => "an engine that does not say what it is".to_owned(),
            (system, None) => format!("`{system}`"),
        };
        let mut skip = |why: String| {
            warnings.push(Warning::new(WarningTopic::SshAgent, format!("SSH agent forwarding is unavailable: {why}. SSH keys do not work inside; silence this with --ssh-agent off")));
            SshPlan::not(SshState::Skipped, why)
        };
        if !desktop.has_service() {
            return skip(format!(
                "this Docker is {found}, and only Docker Desktop and OrbStack keep an agent's socket in their machine"
            ));
        }
        if desktop.socket == Some(false) {
            return skip(format!("`{HOST_SERVICE}` is not there for the guest in the machine of {found}"));
        }
        let socket = constant!(MachinePath, HOST_SERVICE);
        let mount = Mount::machine_socket(socket, agent_target(), self.why_agent("R6.1"));
        let pending = match desktop.socket {
            Some(_) => Vec::new(),
            None => vec![format!("whether `{HOST_SERVICE}` is there in the machine")],
        };
        let reason = format!("{found} forwards the host's agent into its machine");
        SshPlan { pending, ..SshPlan::forwarded(Strategy::HostService, keys, reason, mount) }
    }

    /// R7: a tunnel of the sandbox's own.
    fn tunnel(&self, connection: &Connection, socket: &HostPath, keys: u32) -> SshPlan {
        let planned = tunnel_timeout(self.host)
            .and_then(|timeout| TunnelPlan::new(connection.clone(), socket, self.id, self.facts.ssh.clone(), timeout));
        let tunnel = match planned {
            Ok(tunnel) => tunnel,
            Err(problem) => {
                return SshPlan {
                    problem: Some(problem.clone()),
                    ..SshPlan::not(SshState::Skipped, problem.message())
                };
            }
        };
        let mount = Mount::machine_socket(tunnel.socket.clone(), agent_target(), self.why_agent("R7.5"));
        let reason =
            format!("a tunnel over Podman's connection `{}` leads to the agent at `{socket}`", connection.name);
        let pending = vec![format!("whether `{}@{}` accepts the tunnel", connection.user, connection.host)];
        SshPlan { pending, tunnel: Some(tunnel), ..SshPlan::forwarded(Strategy::Tunnel, keys, reason, mount) }
    }

    fn why_agent(&self, requirement: &'static str) -> Why {
        let origin = self.config.ssh_agent.origin.clone();
        Why::new("the host's SSH agent", origin).about(Topic::Ssh).requirement(requirement)
    }
}

fn tunnel_timeout(host: &Host) -> Result<Duration> {
    let name = vars::TUNNEL_TIMEOUT;
    let Some(text) = host.env.text(name) else { return Ok(Duration::from_secs(TUNNEL_SECONDS)) };
    match text.parse() {
        Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err(Error::usage(format!("env {name}: `{text}` is not a number of seconds"))
            .hint("expected a whole number from 1 to 3600")),
    }
}

fn agent_target() -> GuestPath {
    constant!(GuestPath, SOCKET)
}

/// Decides what the engine's virtual machine is asked, if the agent has to get into one.
pub fn machine_question(inputs: Inputs, engine: EngineKind) -> Option<MachineQuestion> {
    let Inputs { host, facts, .. } = inputs;
    if !matches!(facts.agent, AgentFacts::Answers { .. }) {
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
    if user.how == UserHow::Image && user.uid != Some(host.uid) && user.uid != Some(0) {
        warnings.push(Warning::new(WarningTopic::SshAgent, format!(
            "the guest is the image's own user, and ssh-agent only serves uid {} and root: it will refuse. Use --user host",
            host.uid
        )));
    }
}

impl Draft<'_> {
    /// R4.1: with forwarding off, the agent's socket is covered wherever a directory that is mounted would show it: the host's
    /// temp directory, a home. Nothing to do where containers live in a virtual machine: sockets do not cross into it.
    pub fn hide_agent(&mut self) {
        let variable = self.host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| HostPath::new(path).ok());
        let found = variable.and_then(|socket| self.facts.files.get(&socket));
        let Some(socket) = found.map(|fact| &fact.real).filter(|_| self.host.platform == Platform::Linux) else {
            return;
        };
        let nothing = constant!(HostPath, "/dev/null");
        let covers: Vec<Mount> = self
            .mounts
            .iter()
            .filter_map(|mount| {
                let Source::Host(source) = &mount.source else { return None };
                // A socket that was asked for by its own name is meant.
                let below = socket.as_path().strip_prefix(source.as_path()).ok().filter(|_| source != socket)?;
                let why = Why::new("the SSH agent is hidden: forwarding is off", self.config.ssh_agent.origin.clone())
                    .about(Topic::Ssh);
                let target = mount.target.join(below);
                Some(Mount::file(nothing.clone(), target, Access::Ro, why.requirement("R4.1")))
            })
            .collect();
        covers.into_iter().for_each(|cover| self.mounts.add(cover));
    }
}
