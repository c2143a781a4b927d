//! Decides everything about a sandbox from a [`Host`], a [`Config`] and [`Facts`]. Every entry of
//! the [`Plan`] carries its reason and its origin. Pure: reads and changes nothing on the host.

mod agent_gate;
mod agent_state;
pub mod cache;
mod cache_view;
pub mod channel;
mod copied_workspace;
mod detail;
pub mod engine;
mod entry;
mod env;
mod exposure;
mod git;
mod helper;
mod hidden;
mod host_proxy;
mod image_root;
pub mod kubernetes;
mod logins;
mod mount_points;
mod mounts;
mod nested;
mod network;
mod offline;
mod prepare;
mod preset;
pub mod push;
pub mod questions;
pub mod remote;
pub mod repository;
pub mod seatbelt;
mod secrets;
mod secrets_proxy;
pub mod ssh;
mod ssh_config;
mod system;
mod terminfo;
mod tools;
mod tunnel;
pub mod user;
pub mod workspace;

use std::ffi::OsString;

pub use crate::config::value::EngineKind;
pub use crate::secret::Secret;
pub use agent_gate::AgentGatePlan;
pub use agent_state::{AgentState, KeptFile, Sharing};
pub use copied_workspace::WorkspacePlan;
pub use detail::Detail;
pub use engine::{EnginePlan, ImagePlan};
pub use entry::{Mount, Source, Topic, Variable, VariableValue, Why};
pub use git::{GitSettingChange, SettingEffect};
pub use helper::{Forward, HelperConfig};
pub use image_root::ImageRoot;
pub use kubernetes::KubernetesPlan;
pub use logins::LoginPlan;
pub use mounts::flat_name;
pub use nested::NestedPlan;
pub use network::{HANDOVER, NetworkPlan, ProxyPlan};
pub use offline::{PACKAGE_INDEX_PORT, PackageIndex};
pub use prepare::Prepare;
pub use preset::PresetChoice;
pub use push::PushPlan;
pub use remote::{KeeperConfig, RemotePlan};
pub use repository::{FixedFiles, RepositoryGate};
pub use seatbelt::SeatbeltPlan;
pub use secrets::{SecretPlace, SecretsPlan, SecretsProxy};
pub use secrets_proxy::{AUTHORITY, BUNDLE};
pub use ssh::{SshPlan, SshState};
pub use ssh_config::SSH_CONFIG;
pub use tunnel::TunnelPlan;
pub use user::{UserHow, UserPlan};
pub use workspace::Workspace;

use channel::ChannelSocket;
use logins::LoginDecision;

use crate::config::preset::Preset;
use crate::config::value::{Cpus, GitMode, Memory, Pids, Port};
use crate::config::{Config, Sourced};
use crate::error::Result;
use crate::facts::Facts;
use crate::host::Host;
use crate::path::{GuestPath, HostPath, constant};
use crate::proxy::PROXY_PORT;
use crate::session_id::SessionId;
use crate::warning::{Warning, WarningTopic};

/// The directory inside that contains the helper and its channel to the launcher.
pub const CONTROL_DIR: &str = "/.sandpen";
/// The file with the self-test's findings, in the session directory and in [`CONTROL_DIR`].
pub const FINDINGS: &str = "probe";

/// Resource limits. A limit that is `None` is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Limits CPU time; fractions are allowed.
    pub cpus: Option<Sourced<Cpus>>,
    /// Limits bytes of memory.
    pub memory: Option<Sourced<Memory>>,
    /// Limits the number of processes and threads.
    pub pids: Sourced<Pids>,
}

/// Describes one sandbox completely, independent of the engine's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// Identifies the sandbox in `ps`, `exec` and `stop`.
    pub id: SessionId,
    /// The session's directory on the host, which is removed after the run.
    pub session_dir: HostPath,
    /// The engine that runs the sandbox.
    pub engine: EnginePlan,
    /// `None` for engines that run the host's tools.
    pub image: Option<ImagePlan>,
    /// The root of a native sandbox that runs an image.
    pub(crate) image_root: Option<ImageRoot>,
    /// The host name inside. It is this machine's, because agents encrypt what they store with it.
    pub host_name: String,
    /// The current directory, on the host and inside.
    pub workdir: HostPath,
    pub(crate) workspace: WorkspacePlan,
    /// The user that the command runs as.
    pub user: UserPlan,
    /// Sorted so that parents come first.
    pub mounts: Vec<Mount>,
    /// Sorted by name.
    pub env: Vec<Variable>,
    /// Published ports, sorted, each once.
    pub ports: Vec<Port>,
    /// Resource limits, which the engine may be unable to enforce.
    pub limits: Limits,
    /// The network policy.
    pub network: NetworkPlan,
    /// Whether and how the SSH agent is forwarded.
    pub ssh: SshPlan,
    pub(crate) push: PushPlan,
    /// Where the values of keys are.
    pub(crate) secrets: SecretsPlan,
    /// Sockets inside that cannot be mounted.
    pub(crate) channel: Vec<ChannelSocket>,
    /// The port inside whose connections pass through the channel to the session's proxy.
    pub(crate) proxy_port: Option<u16>,
    /// `None` for other engines than Seatbelt.
    pub(crate) seatbelt: Option<SeatbeltPlan>,
    pub(crate) helper_config: HelperConfig,
    /// `None` for other engines than Kubernetes.
    pub(crate) kubernetes: Option<KubernetesPlan>,
    /// Set if a container engine is on another machine.
    pub(crate) remote: Option<RemotePlan>,
    /// The path of the guest helper inside a container; `None` if there is no helper.
    pub helper: Option<GuestPath>,
    /// The command and its arguments; empty for an interactive shell.
    pub command: Vec<OsString>,
    /// The file of the command on the host, for engines that run the host's programs.
    pub program: Option<HostPath>,
    /// Whether the guest gets a terminal.
    pub terminal: bool,
    /// Flags that the user adds to the engine's command line.
    pub engine_flags: Vec<String>,
    /// Decisions that are neither a mount nor a variable.
    pub details: Vec<Detail>,
    /// Git settings that differ inside or do not work there.
    pub git: Vec<GitSettingChange>,
    /// Selects the Git directory inside.
    pub git_mode: GitMode,
    /// The mode that was asked for, which the engine may not have.
    pub(crate) asked_git_mode: GitMode,
    pub(crate) repository_gate: RepositoryGate,
    pub(crate) agent_state: AgentState,
    /// The exit code after which the command is started again.
    pub restart_on: Option<u8>,
    pub(crate) fixed: FixedFiles,
    /// Files of the workspace that are hidden.
    pub hidden: Vec<HostPath>,
    pub(crate) prepare: Vec<Prepare>,
    /// The directory of the project's layers of package caches, if it has any.
    pub(crate) cache_layers: Option<HostPath>,
    /// Lines of ssh's configuration that are not inside, without which some connections may fail.
    pub(crate) missed_ssh_lines: Vec<String>,
    /// Whether programs inside may make sandboxes of their own.
    pub nested: NestedPlan,
    /// Whether the container is kept after it exits.
    pub keep: Option<Sourced<bool>>,
    /// Whether a limit or protection that cannot be enforced is an error.
    pub strict: bool,
    /// Problems that do not stop the launch.
    pub warnings: Vec<Warning>,
}

/// The command line's part of the inputs, decided before the facts are collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The command and its arguments; empty for an interactive shell.
    pub command: Vec<OsString>,
    /// The directories that the guest works in.
    pub workspace: Workspace,
    /// The preset that applies to the command.
    pub preset: PresetChoice,
    /// Whether the command is the self-test's probe, which writes its findings to a file.
    pub is_selftest: bool,
}

/// The inputs of all decisions.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub host: &'a Host,
    pub config: &'a Config,
    pub facts: &'a Facts,
    pub workspace: &'a Workspace,
    pub preset: Option<&'a Preset>,
    /// Whether the host has the command.
    pub is_installed: bool,
}

impl<'a> Inputs<'a> {
    pub fn new(host: &'a Host, config: &'a Config, facts: &'a Facts, request: &'a Request) -> Self {
        let preset = &request.preset;
        Inputs {
            host,
            config,
            facts,
            workspace: &request.workspace,
            preset: preset.preset.as_ref(),
            is_installed: preset.is_installed,
        }
    }
}

/// A plan that is being made: the inputs, the decisions so far, and the tables that later decisions
/// extend.
pub struct Draft<'a> {
    host: &'a Host,
    config: &'a Config,
    facts: &'a Facts,
    workspace: &'a Workspace,
    preset: Option<&'a Preset>,
    engine: EngineKind,
    copies_files: bool,
    user: &'a UserPlan,
    session_dir: &'a HostPath,
    id: &'a SessionId,
    copied: &'a WorkspacePlan,
    image_root: Option<ImageRoot>,
    mounts: entry::MountTable,
    env: entry::VariableTable,
    prepare: Vec<Prepare>,
    cache_layers: Option<HostPath>,
    package_index: Option<PackageIndex>,
    agent_state: AgentState,
    login_decisions: Vec<LoginDecision>,
    warnings: Vec<Warning>,
}

impl Draft<'_> {
    fn volume_name(&self) -> String {
        self.id.name()
    }

    fn control_dir(&self) -> GuestPath {
        constant!(GuestPath, CONTROL_DIR)
    }

    /// Tells whether the guest runs the programs of the host, and not those of an image.
    fn has_host_tools(&self) -> bool {
        !self.engine.is_container() && self.image_root.is_none()
    }
}

impl Plan {
    /// Decides everything about one sandbox.
    pub fn new(host: &Host, config: &Config, facts: &Facts, request: &Request, id: SessionId) -> Result<Self> {
        let inputs = Inputs::new(host, config, facts, request);
        let mut warnings = config.warnings.clone();
        warnings.extend(request.preset.refused.clone().map(|text| Warning::new(WarningTopic::Preset, text)));
        let (engine, image) = engine::choose(inputs)?;
        if let (false, Some(flag)) = (engine.kind.is_container(), config.engine_flags.first()) {
            warnings.push(Warning::new(
                WarningTopic::Options,
                format!("{}: `{}` applies to Docker and Podman only and has no effect here", flag.origin, flag.value),
            ));
        }
        let copied = WorkspacePlan::decide(inputs, &engine, &id)?;
        let network = network::plan(inputs, &engine)?;
        let nested = nested::plan(inputs, request, engine.kind, &mut warnings);
        let user = user::plan(inputs, &engine, &mut warnings);
        let env = env::plan(inputs, &user, &id, &mut warnings);
        let session_dir = facts.session_base.join(id.to_string());
        let image_root = image_root::plan(&engine, image.as_ref(), facts.root_image.as_ref(), &session_dir);
        let mut draft = Draft {
            host,
            config,
            facts,
            workspace: inputs.workspace,
            preset: inputs.preset,
            engine: engine.kind,
            copies_files: engine.abilities.copies_files,
            user: &user,
            session_dir: &session_dir,
            id: &id,
            copied: &copied,
            image_root: image_root.clone(),
            mounts: entry::MountTable::default(),
            env,
            prepare: Vec::new(),
            cache_layers: None,
            package_index: None,
            agent_state: AgentState::default(),
            login_decisions: Vec::new(),
            warnings,
        };
        draft.requested_mounts()?;
        let (secrets, network) = draft.secrets(&engine, network)?;
        draft.refuse_for_kubernetes(&network)?;
        draft.refuse_for_remote(&network)?;
        let git_mode = draft.git_mode()?;
        let repositories = if git_mode == GitMode::Private { draft.private_repositories() } else { Vec::new() };
        draft.workspace_mounts();
        let fixed = draft.fixed_files(git_mode);
        if !draft.has_host_tools() && !draft.copies_files {
            draft.virtual_env();
        }
        draft.preset_mounts();
        if engine.kind != EngineKind::SandboxExec && !draft.copies_files {
            draft.package_caches(network.mode);
        }
        draft.git_configuration();
        if engine.kind != EngineKind::SandboxExec {
            draft.terminfo();
        }
        let mut ssh_warnings = Vec::new();
        let ssh = draft.ssh(&mut ssh_warnings);
        draft.warnings.append(&mut ssh_warnings);
        ssh.mount.iter().for_each(|mount| draft.mounts.add(mount.clone()));
        if let Some((inside, why)) = ssh.socket() {
            let (name, why) = (crate::vars::SSH_AUTH_SOCK, why.clone().requirement("R4.3"));
            let inside = inside.to_string();
            if let Some(origin) = draft.env.force(name, &inside, why) {
                draft.warnings.push(Warning::new(
                    WarningTopic::SshAgent,
                    format!("{origin}: {name} is always {inside} inside when the agent is forwarded"),
                ));
            }
        }
        let seatbelt = match engine.kind {
            EngineKind::SandboxExec => draft.seatbelt(&ssh, network.mode),
            _ => {
                draft.home();
                draft.temp();
                if ssh.state == SshState::Off {
                    draft.hide_agent("forwarding is off");
                } else if ssh.gate.is_some() {
                    draft.hide_agent("the sandbox has a socket that lists and signs only");
                }
                if draft.has_host_tools() {
                    draft.tools();
                }
                draft.accounts();
                None
            }
        };
        if engine.kind == EngineKind::Native {
            draft.system();
            if draft.has_host_tools() {
                draft.host_tools_environment();
                draft.keep_virtual_env();
            } else {
                draft.image_root();
            }
        }
        draft.git_files();
        let push = draft.push(&engine)?;
        let git = draft.git_settings(ssh.state == SshState::Forwarded, &push)?;
        let ports = ports(config);
        let handover = draft.filtered_network(&network, &secrets)?;
        let ssh_proxy = draft.ssh_proxy(&network);
        let ssh_lines = draft.ssh_configuration(network.mode, ssh_proxy.as_deref());
        let names_host = draft.host_proxy(&network)?;
        let opened = if user.is_host_user() { Vec::new() } else { repository::inside(&repositories) };
        let channel: Vec<ChannelSocket> = ssh.channel.iter().chain(&push.channel).cloned().collect();
        let awaited = channel.iter().map(|socket| socket.inside.to_string()).collect();
        let proxy_port = draft.has_proxy_channel(&network).then_some(PROXY_PORT);
        let helper_config = HelperConfig {
            handover,
            opened,
            awaited,
            package_index: draft.package_index.clone(),
            awaited_port: proxy_port,
            nested: engine.kind.is_container() && nested.is_allowed(),
            ..draft.helper_config(&ports, &push)
        };
        let helper = if engine.kind.is_container() { draft.helper(&helper_config, &request.command)? } else { None };
        if request.is_selftest {
            draft.probe();
        }
        let repository_gate = draft.repository_gate(repositories, &fixed);
        draft.copy_workspace();
        warn_of_home(inputs, &mut draft.warnings);
        let hidden = draft.hide()?;
        let kubernetes = draft.kubernetes();
        let remote = draft.remote();
        let hide_details = draft.hide_details();
        let Draft { mounts, env, mut prepare, cache_layers, warnings, agent_state, .. } = draft;
        let mounts = mounts.into_sorted();
        if seatbelt.is_none() && !engine.abilities.copies_files {
            prepare.extend(mount_points::mount_points(&mounts, &session_dir));
        }
        let terminal = host.terminal.stdin && host.terminal.stdout;
        let mut details = detail::details(config, &engine, &nested, &helper_config, terminal, helper.is_some());
        details.extend(copied.detail());
        details.extend(image_root::details(image_root.as_ref(), facts.root_image.as_ref()));
        details.extend(hide_details.into_iter().chain(ssh_lines.details));
        details.extend(inputs.preset.into_iter().flat_map(|preset| agent_state.details(preset)));
        Ok(Plan {
            details,
            missed_ssh_lines: ssh_lines.missed,
            nested,
            engine,
            image,
            image_root,
            host_name: host.name.clone(),
            workdir: inputs.workspace.workdir.clone(),
            mounts,
            env: env.into_sorted(),
            ports,
            limits: Limits { cpus: config.cpus.clone(), memory: config.memory.clone(), pids: config.pids.clone() },
            network: NetworkPlan { names_host, ..network },
            ssh,
            push,
            secrets,
            channel,
            proxy_port,
            seatbelt,
            helper_config,
            kubernetes,
            remote,
            helper,
            command: request.command.clone(),
            program: facts.tools.program.clone(),
            terminal,
            engine_flags: engine_flags(config),
            git,
            git_mode,
            asked_git_mode: config.git.value,
            repository_gate,
            agent_state,
            restart_on: inputs.preset.and_then(|preset| preset.restart_on).map(|code| code.0),
            fixed,
            hidden,
            prepare,
            cache_layers,
            keep: config.keep.clone(),
            strict: config.strict.value,
            workspace: copied,
            warnings,
            user,
            session_dir,
            id,
        })
    }
}

/// Lists the flags of the lowest layer first, because engines use the last of several. Within a
/// layer they keep their order.
fn engine_flags(config: &Config) -> Vec<String> {
    let layers = config.engine_flags.chunk_by(|a, b| a.origin == b.origin);
    let layers: Vec<_> = layers.collect();
    layers.into_iter().rev().flatten().map(|flag| flag.value.clone()).collect()
}

/// Iterates from the highest layer to the lowest, and within a layer from the last entry to the
/// first, for tables in which the first entry wins.
fn latest_first<T>(list: &[Sourced<T>]) -> impl Iterator<Item = &Sourced<T>> {
    list.chunk_by(|a, b| a.origin == b.origin).flat_map(|layer| layer.iter().rev())
}

fn ports(config: &Config) -> Vec<Port> {
    let mut ports: Vec<Port> = config.ports.iter().map(|port| port.value).collect();
    ports.sort();
    ports.dedup();
    ports
}

fn warn_of_home(inputs: Inputs, warnings: &mut Vec<Warning>) {
    if inputs.workspace.contains(&inputs.host.home) {
        warnings.push(Warning::new(WarningTopic::Files,
            "the guest can change everything in your home directory, including shell start-up files and sandpen's configuration: nothing protects the host"));
    }
}
