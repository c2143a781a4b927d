//! One sweep of the host before planning: which files exist, which engine answers, what the agent says. Plain data; decides nothing.

mod agent;
pub mod engines;
mod files;
pub mod git;
pub mod image;
mod program;
mod roots;
mod system;
mod tool;

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;

use serde::Serialize;

pub use agent::AgentFacts;
pub use engines::docker::DockerFacts;
pub use engines::machine::DesktopFacts;
pub use engines::podman::PodmanFacts;
pub use engines::seatbelt::{OwnProfile, SeatbeltFacts};
pub use files::{FileFact, FileKind, Files};
pub use git::GitFacts;
pub use git::directory::{CONFIG_FILES, GitDirs, Hooks, POINTERS};
pub use image::ImageFacts;
pub use program::SearchPath;
pub use roots::Roots;
pub use system::{SystemEntry, SystemFacts};
pub use tool::ToolFacts;

use engines::{machine, native};

use crate::config::Config;
use crate::config::preset::Preset;
use crate::config::value::EngineKind;
use crate::config::value::{AgentMode, EngineSetting};
use crate::error::{Error, Result};
use crate::facts::engines::connection::Connection;
use crate::host::{Host, Platform};
use crate::path::HostPath;
use crate::process::Client;
use crate::{plan, vars};

/// Whether an engine can be asked for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "error")]
pub enum Reach {
    /// Its program is not on PATH.
    NoProgram,
    /// Nothing answers.
    Silent(String),
    /// It is there, and refuses this user.
    Denied(String),
    /// It answers.
    Answers,
}

impl From<std::io::Error> for Reach {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => Reach::Denied(error.to_string()),
            _ => Reach::Silent(error.to_string()),
        }
    }
}

/// Everything planning knows of the host beyond [`Host`] itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// The workspace directories.
    pub roots: Roots,
    /// PATH, divided by the mounted directories.
    pub path: SearchPath,
    /// PYTHONPATH, divided alike.
    pub python_path: SearchPath,
    /// The preset that applies.
    #[serde(skip)]
    pub preset: Option<Preset>,
    /// Why a preset that the command's name suggests was not used.
    pub preset_refused: Option<String>,
    /// The paths planning may care about.
    pub files: Files,
    /// Docker, when it was looked at.
    pub docker: Option<DockerFacts>,
    /// Podman, when it was looked at.
    pub podman: Option<PodmanFacts>,
    /// Why the native engine cannot run here; `None` also when nobody looked.
    #[serde(skip)]
    pub native_problem: Option<Error>,
    /// The limits an ordinary user's native sandbox cannot have.
    pub native_cannot_limit: Vec<&'static str>,
    /// Whether native can keep the guest from the host's abstract sockets while the network is shared.
    pub native_scopes_sockets: bool,
    /// Whether native limits processes when nobody asks.
    pub native_limits_processes: bool,
    /// What native shows of the host's system, when native is meant.
    pub system: Option<SystemFacts>,
    /// What Seatbelt needs to know, when it is meant.
    pub seatbelt: Option<SeatbeltFacts>,
    /// What the command needs beyond the system, when the host's own tools are meant.
    pub tool: ToolFacts,
    /// The SSH agent.
    pub agent: AgentFacts,
    /// What Docker says of its virtual machine, when the agent goes through one.
    pub desktop: Option<DesktopFacts>,
    /// Podman's connection to its virtual machine, or why there is none, when the agent goes through it.
    #[serde(skip)]
    pub connection: Option<std::result::Result<Connection, Error>>,
    /// The `ssh` program.
    pub ssh: Option<HostPath>,
    /// The image's own configuration, when the guest is the image's user.
    pub image: Option<ImageFacts>,
    /// Git's configuration for the working directory.
    pub git: GitFacts,
    /// The Git directories of every repository that is shown, in the order of `Roots::repositories`.
    pub git_dirs: Vec<GitDirs>,
    /// Where session directories are made.
    pub session_base: HostPath,
    /// Whether SELinux is there.
    pub selinux: bool,
    /// The program that is mounted as the guest helper.
    pub helper: Option<HostPath>,
    /// Whether the command is sandpen's own probe, which brings back what it found.
    #[serde(skip)]
    pub probe: bool,
}

impl Facts {
    /// Looks at everything once.
    pub fn sweep(host: &Host, config: &Config, command: &[impl AsRef<OsStr>]) -> Result<Self> {
        let roots = Roots::find(host, config)?;
        // Directories that the guest may write to must not provide programs for the host.
        let mut mounted: Vec<HostPath> = roots.all().cloned().collect();
        mounted.extend(config.mounts.iter().filter_map(|mount| HostPath::new(host.expand(&mount.value.from)).ok()));
        let path = SearchPath::divide(host.env.raw(vars::PATH), &mounted);
        let python_path = SearchPath::divide(host.env.raw(vars::PYTHONPATH), &mounted);
        let (preset, preset_refused) = choose_preset(host, config, &path, command.first().map(AsRef::as_ref))?;
        // What the preset mounts counts, too, for programs of the host: its agent may write there.
        let guest_path = path;
        let directories = preset.iter().flat_map(|preset| &preset.directories).map(|entry| entry.path.below());
        let known = mounted.len();
        mounted.extend(directories.map(|below| host.home.join(below)));
        let path = match mounted.len() == known {
            true => guest_path.clone(),
            false => SearchPath::divide(host.env.raw(vars::PATH), &mounted),
        };
        // Git reads its files while the rest is looked at.
        let asked = git::Asked::of(host, &path, &roots);
        let setting = config.engine.value;
        let names_image = config.image.is_some()
            || config.build.is_some()
            || preset.as_ref().is_some_and(|preset| preset.image.is_some());
        let means_native = setting == EngineSetting::Native
            || setting == EngineSetting::Auto && !names_image && host.platform == Platform::Linux;
        // A named engine that cannot run says so itself at the launch; `auto` must know before it chooses.
        let native_problem = if means_native && setting == EngineSetting::Auto { native::problem() } else { None };
        let is_native = means_native && (native_problem.is_none() || setting == EngineSetting::Native);
        let means_seatbelt = host.platform == Platform::Macos
            && (setting == EngineSetting::SandboxExec || setting == EngineSetting::Auto && !names_image);
        let seatbelt = match means_seatbelt {
            true => Some(SeatbeltFacts::look(host, config, &session_base(host), &mounted)?),
            false => None,
        };
        // Like native: `auto` goes on without it, a named one says so at the launch.
        let is_seatbelt = seatbelt.as_ref().is_some_and(|seatbelt| seatbelt.program.is_some())
            || setting == EngineSetting::SandboxExec;
        let has_own_tools = is_native || is_seatbelt;
        let means_docker = setting == EngineSetting::Docker || setting == EngineSetting::Auto && !has_own_tools;
        let docker = means_docker.then(|| DockerFacts::look(host, path.find("docker")));
        let docker_answers = docker.as_ref().is_some_and(|docker| docker.reach == Reach::Answers);
        let means_podman =
            setting == EngineSetting::Podman || setting == EngineSetting::Auto && !has_own_tools && !docker_answers;
        let podman = means_podman.then(|| PodmanFacts::look(host, path.find("podman")));
        let system = is_native.then(SystemFacts::look);
        let tool = match command.first().and_then(|name| name.as_ref().to_str()) {
            Some(name) if has_own_tools && !name.contains('/') => ToolFacts::trace(name, &host.home, &guest_path),
            _ => ToolFacts::default(),
        };
        let interesting = plan::paths_of_interest(host, config, preset.as_ref());
        let mut files = Files::look(interesting.into_iter().chain(tool.shown.iter().cloned()));
        let agent = match config.ssh_agent.value {
            AgentMode::Off => AgentFacts::NotAsked,
            _ => AgentFacts::look(host),
        };
        let (ssh, session_base) = (path.find("ssh"), session_base(host));
        let native_scopes_sockets = !is_native || native::scopes_abstract_sockets();
        let native_limits_processes = !is_native || native::limits_processes_by_default();
        let native_cannot_limit = if is_native { native::cannot_limit() } else { Vec::new() };
        // Only what depends on Git's answer is left to do.
        let shown: Vec<HostPath> = roots.all().cloned().collect();
        let git = asked.answer(host);
        let hooks_path = git.get("core.hookspath").map(|setting| setting.value.as_str());
        let git_dirs = roots.repositories().map(|found| GitDirs::look(host, found, &shown, hooks_path)).collect();
        files.look_further(plan::git_files(host, &git).into_iter().map(|file| file.path));
        Ok(Facts {
            helper: helper(host),
            probe: false,
            session_base,
            selinux: std::path::Path::new("/sys/fs/selinux/enforce").exists(),
            ssh,
            desktop: None,
            connection: None,
            roots,
            path,
            python_path,
            preset,
            preset_refused,
            files,
            git,
            git_dirs,
            docker,
            podman,
            native_problem,
            native_scopes_sockets,
            native_limits_processes,
            native_cannot_limit,
            system,
            seatbelt,
            tool,
            agent,
            image: None,
        })
    }
}

impl Facts {
    /// Finds the program that launches, for a library that is not it: on PATH, outside of what the guest may write to.
    pub fn find_program(&mut self, host: &mut Host, name: &str) {
        host.executable = self.path.find(name);
        self.helper = helper(host);
        if let Some(seatbelt) = &mut self.seatbelt {
            seatbelt.find_helper(host);
        }
    }

    /// Asks the chosen engine what the SSH agent's way into its virtual machine is. Nothing on Linux's own engines.
    pub fn ask_machine(&mut self, host: &Host, engine: EngineKind, client: &Client) {
        let forwards = matches!(self.agent, AgentFacts::Answers { .. });
        let desktop_on_linux = self.docker.as_ref().is_some_and(DockerFacts::is_desktop);
        match (engine, host.platform) {
            (EngineKind::Docker, Platform::Macos) if forwards => self.desktop = Some(DesktopFacts::ask(client)),
            (EngineKind::Docker, Platform::Linux) if forwards && desktop_on_linux => {
                self.desktop = Some(DesktopFacts::ask(client))
            }
            (EngineKind::Podman, Platform::Macos) if forwards => {
                self.connection = Some(machine::connection(host, client))
            }
            _ => {}
        }
    }
}

/// A preset follows from CMD's name only if no mounted directory could provide that command (`attacks.md` 08).
fn choose_preset(
    host: &Host,
    config: &Config,
    path: &SearchPath,
    command: Option<&OsStr>,
) -> Result<(Option<Preset>, Option<String>)> {
    if let Some(agent) = &config.agent {
        return Ok((Preset::named(host, agent)?, None));
    }
    let Some(command) = command.and_then(OsStr::to_str) else { return Ok((None, None)) };
    let name = command.rsplit('/').next().unwrap_or(command);
    let Some(preset) = Preset::for_command(host, name)? else { return Ok((None, None)) };
    if command.contains('/') {
        return Ok((None, Some(format!("`{command}` is a path: the preset `{name}` applies to the bare name only"))));
    }
    if path.is_planted(command) {
        let reason = format!(
            "a mounted directory on PATH holds a `{command}` of its own: the preset `{name}` and its keys are withheld"
        );
        return Ok((None, Some(reason)));
    }
    Ok((Some(preset), None))
}

/// On Linux the helper is this very program; elsewhere a Linux build of it lies beside it.
fn helper(host: &Host) -> Option<HostPath> {
    let executable = host.executable.as_ref()?;
    match host.platform {
        Platform::Linux => Some(executable.clone()),
        Platform::Macos => {
            let beside =
                HostPath::new(executable.as_path().parent()?).ok()?.join(format!("sandpen-linux-{}", host.arch));
            beside.as_path().is_file().then_some(beside)
        }
    }
}

/// PATH for programs that sandpen starts outside of any launch; the current directory does not count as a place for them.
pub fn host_path(host: &Host) -> std::path::PathBuf {
    search_path(host).for_host()
}

/// The same, to look programs up.
pub fn search_path(host: &Host) -> SearchPath {
    SearchPath::divide(host.env.raw(vars::PATH), std::slice::from_ref(&host.cwd))
}

/// Below the state directory. Where that cannot be written, or belongs to another user (root with a user's HOME must leave
/// nothing there that the user cannot remove), below the temp directory.
pub fn session_base(host: &Host) -> HostPath {
    let state = host.state_dir().join("sessions");
    let existing = state.as_path().ancestors().find_map(|path| Some((path, path.metadata().ok()?)));
    let is_host_user = existing.is_some_and(|(path, meta)| {
        meta.uid() == host.uid && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    });
    if is_host_user { state } else { host.temp_dir().join(format!("sandpen-{}", host.uid)).join("sessions") }
}

/// The cgroup v2 controllers that systemd hands to the user; none on v1 or without a user session.
fn delegated_controllers(uid: u32) -> Vec<String> {
    let slice = format!("/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers");
    let text = std::fs::read_to_string(slice).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
