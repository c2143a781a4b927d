//! Whether and how the SSH agent is forwarded (R4, R5).

use serde::Serialize;

use super::engine::EngineKind;
use super::entry::{Mount, Why};
use super::user::{UserHow, UserPlan};
use crate::config::Config;
use crate::config::value::{Access, AgentMode, TmpMode};
use crate::facts::{AgentFacts, Facts};
use crate::host::{Host, Platform};
use crate::path::{GuestPath, HostPath};
use crate::vars;

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
}

impl SshPlan {
    fn not(state: SshState, reason: impl Into<String>) -> Self {
        SshPlan { state, strategy: Strategy::None, keys: None, pending: Vec::new(), reason: reason.into(), mount: None }
    }
}

/// Decides it; what the user must know becomes a warning.
pub fn plan(
    host: &Host,
    config: &Config,
    facts: &Facts,
    engine: EngineKind,
    user: &UserPlan,
    warnings: &mut Vec<String>,
) -> SshPlan {
    let (socket, keys) = match &facts.agent {
        AgentFacts::NotAsked => {
            warn_of_host_tmp(host, config, warnings);
            return SshPlan::not(SshState::Off, format!("switched off by {}", config.ssh_agent.origin));
        }
        AgentFacts::Unset => {
            warnings.push(format!(
                "no SSH agent: {} is not set, so SSH keys do not work inside. Start one (`eval $(ssh-agent)`, `ssh-add`), or silence this with --ssh-agent off",
                vars::SSH_AUTH_SOCK
            ));
            return SshPlan::not(SshState::Skipped, format!("{} is not set", vars::SSH_AUTH_SOCK));
        }
        AgentFacts::Missing { path } => {
            warnings.push(format!(
                "no SSH agent: {} names `{path}`, which does not exist. Start one (`eval $(ssh-agent)`), or silence this with --ssh-agent off",
                vars::SSH_AUTH_SOCK
            ));
            return SshPlan::not(SshState::Skipped, format!("`{path}` does not exist"));
        }
        AgentFacts::Silent { path, error } => {
            warnings.push(format!(
                "no SSH agent: nothing answers at `{path}` ({error}). Start one (`eval $(ssh-agent)`), or silence this with --ssh-agent off"
            ));
            return SshPlan::not(SshState::Skipped, format!("nothing answers at `{path}`"));
        }
        AgentFacts::Answers { socket, keys } => (socket.clone(), *keys),
    };
    if host.platform == Platform::Macos {
        let reason = "forwarding into a virtual machine is not built yet";
        if config.ssh_agent.value == AgentMode::On {
            warnings.push(format!("SSH agent: {reason}"));
        }
        return SshPlan::not(SshState::Skipped, reason);
    }
    if keys == 0 {
        warnings.push(
            "the SSH agent holds no keys, so SSH will say \"Permission denied\" inside. Add one: `ssh-add`".into(),
        );
    }
    warn_of_other_user(host, user, warnings);
    let Ok(target) = GuestPath::new(SOCKET) else {
        return SshPlan::not(SshState::Skipped, "the agent's path inside is invalid");
    };
    let requirement = if engine == EngineKind::Podman { "R5.2" } else { "R5.1" };
    let why = Why::new("the host's SSH agent", config.ssh_agent.origin.clone()).requirement(requirement);
    let mount = Mount { relabel: engine == EngineKind::Podman, ..Mount::file(socket.clone(), target, Access::Rw, why) };
    SshPlan {
        state: SshState::Forwarded,
        strategy: Strategy::Mount,
        keys: Some(keys),
        pending: Vec::new(),
        reason: format!("the agent at `{socket}` answers; its socket is mounted"),
        mount: Some(mount),
    }
}

/// ssh-agent refuses peers of another uid.
fn warn_of_other_user(host: &Host, user: &UserPlan, warnings: &mut Vec<String>) {
    if user.how == UserHow::Image && user.uid != Some(host.uid) && user.uid != Some(0) {
        warnings.push(format!(
            "the guest is the image's own user, and ssh-agent only serves uid {} and root: it will refuse. Use --user host",
            host.uid
        ));
    }
}

/// R4.1: the host's whole temp directory holds ssh-agent's own socket.
fn warn_of_host_tmp(host: &Host, config: &Config, warnings: &mut Vec<String>) {
    let socket = host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| HostPath::new(path).ok());
    if config.tmp.value == TmpMode::Host && socket.is_some_and(|socket| socket.is_within(&host.temp_dir())) {
        warnings.push(
            "--tmp host shows the host's temp directory, and the SSH agent's socket in it, although forwarding is off"
                .into(),
        );
    }
}
