//! Plans the gate between the sandbox and the SSH agent: its socket, and the destinations for which the
//! agent signs. Resolves no names; `gate::agent` asks the host's ssh when it needs them.

use std::path::PathBuf;

use super::push::{RemoteUrl, Remotes, SshRemote};
use super::{Draft, Source, questions};
use crate::config::value::{AgentMode, SshDestination, SshHost};
use crate::facts::git::is_public_key;
use crate::path::HostPath;
use crate::vars;

/// The name of the gate's socket in the session's directory.
const GATE_SOCKET: &str = "ssh-agent";

/// The gate between the sandbox and the agent: a socket of the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentGatePlan {
    /// The socket in the session's directory.
    pub socket: HostPath,
    /// The agent's socket, as `SSH_AUTH_SOCK` names it: another agent may be started there.
    pub agent: HostPath,
    /// Whether the guest may have any uid. Only this user can enter the session's directory.
    pub is_open: bool,
    /// Whether the agent signs for `hosts` only.
    pub is_limited: bool,
    pub hosts: Vec<SshDestination>,
    /// The destinations of the repository's remotes, to name them in the record.
    pub remotes: Vec<SshDestination>,
    /// The public key that signs commits, as one line.
    pub signing_key: Option<String>,
    /// The host's ssh, which resolves names and aliases, and its PATH.
    pub ssh: Option<HostPath>,
    pub path: PathBuf,
    pub home: HostPath,
    /// Whether the user is asked before the first signature for each destination.
    pub asks: bool,
    /// The program that asks, and the directories in which it must not be.
    pub askpass: Option<HostPath>,
    pub mounted: Vec<HostPath>,
    /// Directories that the guest can write. It could add a server's key to a file in them.
    pub writable: Vec<HostPath>,
    /// Names the sandbox in the question.
    pub id: String,
}

impl AgentGatePlan {
    /// Says what the sandbox may do with the agent.
    pub fn allowed(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        match (self.is_limited, hosts.is_empty()) {
            (false, _) => "list its keys and sign".to_owned(),
            (true, true) => "list its keys and sign commits: no remote has an SSH host".to_owned(),
            (true, false) => format!("list its keys and sign for {}", hosts.join(", ")),
        }
    }
}

impl Draft<'_> {
    /// Plans the gate, unless the user wants the agent's own socket.
    pub fn gate(&self) -> Option<AgentGatePlan> {
        if self.config.ssh_agent.value == AgentMode::Raw {
            return None;
        }
        let agent = self.host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| HostPath::new(path).ok())?;
        let is_open = self.engine.is_container() && !self.user.is_host_user();
        let remotes = self.remote_destinations();
        let mut hosts = Vec::new();
        for host in &self.config.ssh_hosts {
            match &host.value {
                SshHost::Remotes => hosts.extend(remotes.iter().cloned()),
                SshHost::Destination(destination) => hosts.push(destination.clone()),
            }
        }
        hosts.dedup();
        Some(AgentGatePlan {
            socket: self.session_dir.join(GATE_SOCKET),
            agent,
            is_open,
            is_limited: !self.config.ssh_hosts.is_empty(),
            hosts,
            remotes,
            signing_key: self.signing_key(),
            ssh: self.facts.ssh.clone(),
            path: self.facts.path.for_host(),
            home: self.host.home.clone(),
            asks: self.config.ssh_confirm.value,
            askpass: self.host.env.path(vars::SSH_ASKPASS).and_then(|path| HostPath::new(path).ok()),
            mounted: self.mounts.iter().filter_map(|mount| host_source(&mount.source)).collect(),
            writable: questions::writable(self.host, self.config, self.workspace).collect(),
            id: self.id.to_string(),
        })
    }

    /// Returns whether the user limits what the agent signs, which needs the gate.
    pub fn has_agent_rules(&self) -> bool {
        !self.config.ssh_hosts.is_empty() || self.config.ssh_confirm.value
    }

    /// Returns the SSH destinations of the repository's remotes, each once, without those that a sandbox
    /// added: it would choose for what the agent signs in the next one.
    fn remote_destinations(&self) -> Vec<SshDestination> {
        let mut found: Vec<SshDestination> = Vec::new();
        for remote in Remotes::of(&self.facts.git.settings).usable {
            let RemoteUrl::Ssh(SshRemote { user, host, port, .. }) = remote.url else { continue };
            let destination = SshDestination { user, host: host.to_ascii_lowercase(), port };
            if !found.contains(&destination) {
                found.push(destination);
            }
        }
        found
    }

    /// Returns the public key that signs commits: the file's that the user's setting names, or the
    /// setting itself.
    fn signing_key(&self) -> Option<String> {
        let git = &self.facts.git;
        let literal = || git.get("user.signingkey").filter(|key| key.scope.is_users() && is_public_key(&key.value));
        git.signing_key.clone().or_else(|| literal().map(|key| key.value.clone()))
    }
}

fn host_source(source: &Source) -> Option<HostPath> {
    match source {
        Source::Host(path) => Some(path.clone()),
        _ => None,
    }
}
