//! The plan: everything a sandbox will be, engine-neutral and pure. Each entry carries its reason and its origin.
//!
//! A [`Plan`] can only be made here, from a [`Host`], a [`Config`] and [`Facts`]; engines translate it, `explain` prints it,
//! nothing else decides.

mod corporate;
mod detail;
pub mod engine;
mod entry;
mod env;
mod git;
mod guard;
mod helper;
mod mounts;
mod network;
mod prepare;
mod preset;
pub mod questions;
pub mod seatbelt;
mod skeleton;
pub mod ssh;
mod system;
mod tunnel;
pub mod user;
pub mod workspace;

use std::ffi::OsString;

pub use crate::config::value::EngineKind;
pub use crate::secret::Secret;
pub use detail::Detail;
pub use engine::{EnginePlan, ImagePlan};
pub use entry::{Mount, Source, Topic, Variable, VariableValue, Why};
pub use git::{GitSettingChange, SettingEffect};
pub use guard::GuardPlan;
pub use helper::{Forward, HelperConfig};
pub use mounts::flat_name;
pub use network::{HANDOVER, NetworkPlan, ProxyPlan};
pub use prepare::Prepare;
pub use preset::PresetChoice;
pub use seatbelt::SeatbeltPlan;
pub use ssh::{SshPlan, SshState};
pub use tunnel::TunnelPlan;
pub use user::{UserHow, UserPlan};
pub use workspace::Workspace;

use crate::config::preset::Preset;
use crate::config::value::{Access, Cpus, Guard, Memory, Pids, Port};
use crate::config::{Config, Sourced};
use crate::error::{Error, Result};
use crate::facts::{Facts, FileKind};
use crate::host::{Host, Platform};
use crate::path::{GuestPath, HostPath, constant};
use crate::process::status_file::STATUS;
use crate::session_id::SessionId;
use crate::warning::{Warning, WarningTopic};

/// The sandbox's own directory inside: the helper and its channel to the launcher.
pub const CONTROL_DIR: &str = "/.sandpen";
/// The self-test's findings, in the session's directory and in the control directory inside.
pub const FINDINGS: &str = "probe";
/// Inside the guest, ports of this range carry published ports to the guest's loopback.
const FIRST_RELAY_PORT: u16 = 61000;

/// Resource limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// CPUs.
    pub cpus: Option<Sourced<Cpus>>,
    /// Memory.
    pub memory: Option<Sourced<Memory>>,
    /// Processes.
    pub pids: Sourced<Pids>,
}

/// A checked plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The session.
    pub id: SessionId,
    /// The session's directory on the host.
    pub session_dir: HostPath,
    /// The engine.
    pub engine: EnginePlan,
    /// The image, for containers.
    pub image: Option<ImagePlan>,
    /// The current directory.
    pub workdir: HostPath,
    /// The guest's user.
    pub user: UserPlan,
    /// The mounts, parents first.
    pub mounts: Vec<Mount>,
    /// The variables, by name.
    pub env: Vec<Variable>,
    /// Published ports.
    pub ports: Vec<Port>,
    /// Limits.
    pub limits: Limits,
    /// Network.
    pub network: NetworkPlan,
    /// SSH agent.
    pub ssh: SshPlan,
    /// What a Seatbelt sandbox needs beyond that.
    pub(crate) seatbelt: Option<SeatbeltPlan>,
    /// What the first process inside does besides starting the command.
    pub(crate) helper_config: HelperConfig,
    /// Where the guest helper is inside a container, if there is one.
    pub helper: Option<GuestPath>,
    /// The command; empty for an interactive shell.
    pub command: Vec<OsString>,
    /// Whether the guest gets a terminal.
    pub terminal: bool,
    /// Further flags for the engine.
    pub engine_flags: Vec<String>,
    /// Decisions that are neither a mount nor a variable.
    pub details: Vec<Detail>,
    /// Git settings that are not simply the same inside.
    pub git: Vec<GitSettingChange>,
    /// What is done about code planted in the repository's Git files.
    pub guard_mode: Guard,
    /// What is reviewed when the sandbox ends.
    pub(crate) guard: Option<GuardPlan>,
    /// What is made on the host before the launch.
    pub(crate) prepare: Vec<Prepare>,
    /// Whether the container is kept after its end, and who asked.
    pub keep: Option<Sourced<bool>>,
    /// Whether weaker enforcement is an error.
    pub strict: bool,
    /// What the user should hear.
    pub warnings: Vec<Warning>,
}

/// What was asked for and decided before the host was looked at in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The command; empty for an interactive shell.
    pub command: Vec<OsString>,
    /// The directories that the guest works in.
    pub workspace: Workspace,
    /// The preset that applies to the command.
    pub preset: PresetChoice,
    /// Whether the command is the self-test's probe, which writes its findings to a file.
    pub is_selftest: bool,
}

/// Everything that decisions are made from.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub host: &'a Host,
    pub config: &'a Config,
    pub facts: &'a Facts,
    pub workspace: &'a Workspace,
    pub preset: Option<&'a Preset>,
}

impl<'a> Inputs<'a> {
    pub fn new(host: &'a Host, config: &'a Config, facts: &'a Facts, request: &'a Request) -> Self {
        Inputs { host, config, facts, workspace: &request.workspace, preset: request.preset.preset.as_ref() }
    }
}

/// A plan in the making.
pub struct Draft<'a> {
    host: &'a Host,
    config: &'a Config,
    facts: &'a Facts,
    workspace: &'a Workspace,
    preset: Option<&'a Preset>,
    engine: EngineKind,
    user: &'a UserPlan,
    session_dir: &'a HostPath,
    id: &'a SessionId,
    mounts: entry::MountTable,
    env: entry::VariableTable,
    prepare: Vec<Prepare>,
    warnings: Vec<Warning>,
}

impl Draft<'_> {
    /// A volume of the session's own.
    fn volume_name(&self) -> String {
        self.id.name()
    }

    fn control_dir(&self) -> GuestPath {
        constant!(GuestPath, CONTROL_DIR)
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
                format!("{}: `{}` is for Docker and Podman and has no effect here", flag.origin, flag.value),
            ));
        }
        let network = network::plan(inputs, &engine)?;
        let user = user::plan(inputs, &engine, &mut warnings);
        let env = env::plan(inputs, &user, &id, &mut warnings);
        let session_dir = facts.session_base.join(id.to_string());
        let mut draft = Draft {
            host,
            config,
            facts,
            workspace: inputs.workspace,
            preset: inputs.preset,
            engine: engine.kind,
            user: &user,
            session_dir: &session_dir,
            id: &id,
            mounts: entry::MountTable::default(),
            env,
            prepare: Vec::new(),
            warnings,
        };
        draft.requested_mounts()?;
        draft.workspace_mounts();
        let guard = draft.guard()?;
        if engine.kind != EngineKind::SandboxExec {
            draft.virtual_env();
        }
        draft.preset_mounts();
        draft.git_configuration();
        let mut ssh_warnings = Vec::new();
        let ssh = draft.ssh(&mut ssh_warnings);
        draft.warnings.append(&mut ssh_warnings);
        if let Some(mount) = &ssh.mount {
            draft.mounts.add(mount.clone());
            let (name, why) = (crate::vars::SSH_AUTH_SOCK, mount.why.clone().requirement("R4.3"));
            let inside = mount.target.to_string();
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
                    draft.hide_agent();
                }
                draft.accounts();
                None
            }
        };
        if engine.kind == EngineKind::Native {
            draft.system(&id.name());
            draft.tool();
            draft.host_tools_environment();
        }
        draft.git_files();
        let git = draft.git_settings(ssh.state == SshState::Forwarded)?;
        let ports = ports(config);
        let handover = draft.filtered_network(&network)?;
        let names_host = draft.corporate_network(&network)?;
        let helper_config = HelperConfig { handover, ..draft.helper_config(&ports) };
        let helper = if engine.kind.is_container() { draft.helper(&helper_config, &request.command)? } else { None };
        if request.is_selftest {
            draft.probe();
        }
        warn_of_home(inputs, &mut draft.warnings);
        let Draft { mounts, env, mut prepare, warnings, .. } = draft;
        let mounts = mounts.into_sorted();
        if seatbelt.is_none() {
            prepare.extend(skeleton::mount_points(&mounts, &session_dir));
        }
        let terminal = host.terminal.stdin && host.terminal.stdout;
        Ok(Plan {
            details: detail::details(config, &engine, &helper_config, terminal, helper.is_some()),
            engine,
            image,
            workdir: inputs.workspace.workdir.clone(),
            mounts,
            env: env.into_sorted(),
            ports,
            limits: Limits { cpus: config.cpus.clone(), memory: config.memory.clone(), pids: config.pids.clone() },
            network: NetworkPlan { names_host, ..network },
            ssh,
            seatbelt,
            helper_config,
            helper,
            command: request.command.clone(),
            terminal,
            engine_flags: engine_flags(config),
            git,
            guard_mode: config.guard.value,
            guard,
            prepare,
            keep: config.keep.clone(),
            strict: config.strict.value,
            warnings,
            user,
            session_dir,
            id,
        })
    }
}

impl Draft<'_> {
    /// What the first process inside does besides starting the command.
    fn helper_config(&self, ports: &[Port]) -> HelperConfig {
        let below = |parts: &[HostPath]| -> Vec<String> {
            let inside = parts.iter().filter(|part| self.workspace.writable().any(|root| part.is_within(root)));
            inside.filter_map(|part| part.to_str().map(str::to_owned)).collect()
        };
        let mut startup = mounts::STARTUP_FILES.iter().map(|file| self.host.cwd.join(file));
        let startup = startup.find(|file| self.facts.files.get(file).is_some_and(|fact| fact.kind == FileKind::File));
        HelperConfig {
            append_path: below(&self.facts.path.inside),
            append_python_path: below(&self.facts.python_path.inside),
            forward: ports
                .iter()
                .zip(relay_ports(ports))
                .map(|(port, listen)| Forward { listen, port: port.0 })
                .collect(),
            startup: startup.and_then(|file| file.to_str().map(str::to_owned)),
            exec: false,
            handover: None,
            owner: self.host.platform == Platform::Linux,
            control_dir: None,
            launcher: None,
        }
    }

    /// The guest helper: this same program, mounted read-only, as the first process inside a container.
    fn helper(&mut self, helper_config: &HelperConfig, command: &[OsString]) -> Result<Option<GuestPath>> {
        let Some(program) = &self.facts.helper else {
            if !helper_config.forward.is_empty() {
                return Err(helper_missing(self.host, "published ports"));
            }
            if !helper_config.append_path.is_empty() || helper_config.startup.is_some() {
                self.warnings.push(Warning::new(
                    WarningTopic::Helper,
                    "without the guest helper, PATH additions and sandbox.bashrc have no effect inside",
                ));
            }
            if command.is_empty() {
                self.warnings
                    .push(Warning::new(WarningTopic::Helper, "without the guest helper, the shell inside is `sh`"));
            }
            return Ok(None);
        };
        let control_dir = self.control_dir();
        // A file, not a directory: the guest can write a word into it, and leave nothing else behind.
        let status = self.session_dir.join(STATUS);
        self.prepare.push(Prepare::Shared { path: status.clone() });
        let channel = Why::default("the helper reports how far the command got");
        self.mounts.add(Mount::file(status, control_dir.join(STATUS), Access::Rw, channel));
        let helper = Why::default("init, PATH additions, ports: this program, read-only");
        self.mounts.add(Mount::file(program.clone(), control_dir.join("sandpen"), Access::Ro, helper));
        if helper_config.owner {
            let owner = Why::default("the guest ends when sandpen does, even when killed");
            self.mounts.add(Mount::file(self.session_dir.join("owner"), control_dir.join("owner"), Access::Ro, owner));
        }
        Ok(Some(control_dir.join("sandpen")))
    }
}

impl Draft<'_> {
    /// The probe of the self-test needs this program inside, and a file to bring back what it found.
    fn probe(&mut self) {
        let found = self.session_dir.join(FINDINGS);
        self.prepare.push(Prepare::Shared { path: found.clone() });
        let why = Why::default("the self-test's probe reports what it found");
        let inside = match self.facts.seatbelt.as_ref().filter(|_| self.engine == EngineKind::SandboxExec) {
            Some(seatbelt) => seatbelt
                .sessions
                .join(self.session_dir.as_path().file_name().unwrap_or_default())
                .join(FINDINGS)
                .to_guest(),
            None => self.control_dir().join(FINDINGS),
        };
        let source = match self.engine {
            EngineKind::SandboxExec => HostPath::new(inside.as_path()).unwrap_or(found),
            _ => found,
        };
        self.mounts.add(Mount::file(source, inside, Access::Rw, why));
        if let (EngineKind::Native, Some(program)) = (self.engine, &self.facts.helper) {
            let why = Why::default("the self-test's probe: this program, read-only");
            self.mounts.add(Mount::file(program.clone(), self.control_dir().join("sandpen"), Access::Ro, why));
        }
    }
}

fn helper_missing(host: &Host, what: &str) -> Error {
    Error::launch(format!(
        "{what} need the guest helper, and `sandpen-linux-{}` does not lie beside sandpen",
        host.arch
    ))
    .hint("build it with `scripts/build-helper`, and put it there")
}

/// The flags of the lowest layer first: engines let the last one win. Within a layer they keep their order.
fn engine_flags(config: &Config) -> Vec<String> {
    let layers = config.engine_flags.chunk_by(|a, b| a.origin == b.origin);
    let layers: Vec<_> = layers.collect();
    layers.into_iter().rev().flatten().map(|flag| flag.value.clone()).collect()
}

/// From the highest layer to the lowest, and within a layer from the last to the first: whoever comes first wins.
fn latest_first<T>(list: &[Sourced<T>]) -> impl Iterator<Item = &Sourced<T>> {
    list.chunk_by(|a, b| a.origin == b.origin).flat_map(|layer| layer.iter().rev())
}

/// The published ports, each once.
fn ports(config: &Config) -> Vec<Port> {
    let mut ports: Vec<Port> = config.ports.iter().map(|port| port.value).collect();
    ports.sort();
    ports.dedup();
    ports
}

/// Ports for the helper to listen on: high ones that are not published themselves.
fn relay_ports(published: &[Port]) -> impl Iterator<Item = u16> {
    (FIRST_RELAY_PORT..=u16::MAX).filter(|port| !published.contains(&Port(*port)))
}

fn warn_of_home(inputs: Inputs, warnings: &mut Vec<Warning>) {
    if inputs.workspace.contains(&inputs.host.home) {
        warnings.push(Warning::new(WarningTopic::Files,
            "the guest can change everything in your home, shell start-up files and sandpen's own settings included: nothing protects the host"));
    }
}
