//! Looks at the host for the plan: files, engines, Git's configuration, the SSH agent.
//!
//! The result is plain data. `plan` asks the questions and draws the conclusions; this module
//! decides nothing.

mod agent;
mod copies;
pub mod engines;
mod files;
pub mod git;
mod hidden;
pub mod image;
mod logins;
mod overlay;
mod program;
mod root_image;
mod roots;
mod secrets;
mod ssh_config;
mod system;
mod tools;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use serde::Serialize;

pub use agent::{AgentFacts, count_agent_keys};
pub use copies::{CopyFacts, CopyQuestion};
pub use engines::docker::{DockerFacts, EndpointOrigin, MachineProvider};
pub use engines::kubernetes::KubernetesFacts;
pub use engines::machine::{DesktopFacts, MachineQuestion};
pub use engines::native::NativeFacts;
pub use engines::podman::PodmanFacts;
pub use engines::seatbelt::{OwnProfile, SeatbeltFacts};
pub use files::{FileFact, FileKind, Files};
pub use git::directory::{Format, FullGitDir, GitDirs, Hooks};
use git::submodules::EarlySubmodules;
pub use git::{GitFacts, GitQuestion};
pub use hidden::{HiddenFacts, HiddenFile, HideProblem, HideQuestion};
pub use image::ImageFacts;
pub use logins::{LoginDocument, LoginFact, LoginFacts, LoginQuestion, MAX_LOGIN, mark};
pub use overlay::OverlayFacts;
pub use program::{ProgramFact, SearchPath, is_program};
pub use root_image::{RootImageFacts, RootImageUser};
pub use roots::RootFacts;
pub use secrets::{SecretFact, SecretFacts, SecretQuestion, placeholder};
pub use ssh_config::{SshConfigFacts, SshConfigFile, SshLine, named_path as ssh_path};
pub use system::{SystemEntry, SystemFacts};
pub use tools::{ToolFacts, Traced};

use crate::config::Sourced;
use crate::config::value::{EngineKind, ImageRef};
use crate::error::{Error, Result};
use crate::host::{Host, Platform};
use crate::path::{HostPath, constant};
use crate::process::Client;
use crate::vars;
use engines::connection::Connection;
use engines::machine;
use ssh_config::SshConfigQuestion;
use tools::Scope;

/// The result of connecting to an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "error")]
pub enum Reach {
    /// The client is not on PATH.
    NoProgram,
    Silent(String),
    /// The engine runs, but this user may not connect.
    Denied(String),
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

/// The questions that `plan` asks about the host.
pub struct Questions {
    /// Engines in order of preference. Those after the first that can run are not looked at.
    pub engines: Vec<EngineKind>,
    /// Paths that may be mounted.
    pub files: Vec<HostPath>,
    /// Programs to find on PATH.
    pub programs: Vec<String>,
    /// The command: a name or a path. Its installation is traced on engines that run the host's
    /// tools.
    pub tool: Option<String>,
    pub ask_agent: bool,
    /// Directories that are mounted: no program in them is started on the host.
    pub mounted: Vec<HostPath>,
    /// Directories that the guest can write: programs in them are the guest's.
    pub writable: Vec<HostPath>,
    /// Directories that the preset mounts. The command may come from them, other programs may not.
    pub preset_directories: Vec<HostPath>,
    /// The context of kubectl that was asked for.
    pub kubernetes_context: Option<String>,
    /// A profile that is not built in: a name or a path.
    pub seatbelt_profile: Option<Sourced<String>>,
    pub git: GitQuestion,
    pub hide: HideQuestion,
    /// The image that would be the root of a native sandbox.
    pub root_image: Option<ImageRef>,
    /// The directory in which layers of package caches are written.
    pub cache_layers: Option<HostPath>,
    /// Keys whose values stay outside.
    pub secrets: Vec<SecretQuestion>,
    /// Logins whose tokens stay outside.
    pub logins: Vec<LoginQuestion>,
    pub copy: CopyQuestion,
    /// Called once Git's settings are known.
    pub after_git: fn(&Host, &GitFacts) -> FurtherQuestions,
}

/// Questions that follow from Git's settings.
#[derive(Debug, Default)]
pub struct FurtherQuestions {
    pub files: Vec<HostPath>,
    /// Names and paths of programs.
    pub programs: Vec<String>,
}

/// The answers to `Questions`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    pub path: SearchPath,
    /// PYTHONPATH, divided like PATH.
    pub python_path: SearchPath,
    pub files: Files,
    /// Holds only programs that exist outside of mounted directories.
    pub programs: BTreeMap<String, ProgramFact>,
    /// `None` if Docker was not looked at; the same goes for the other engines.
    pub docker: Option<DockerFacts>,
    pub podman: Option<PodmanFacts>,
    pub native: Option<NativeFacts>,
    pub seatbelt: Option<SeatbeltFacts>,
    /// `None` unless a container may get package caches.
    pub overlay: Option<OverlayFacts>,
    pub kubernetes: Option<KubernetesFacts>,
    /// Empty on engines that do not run the host's tools.
    pub tools: ToolFacts,
    pub agent: AgentFacts,
    /// Docker's virtual machine; `None` unless the SSH agent is forwarded into it.
    pub desktop: Option<DesktopFacts>,
    /// Podman's connection to its virtual machine; `None` unless the SSH agent is forwarded into
    /// it.
    #[serde(skip)]
    pub connection: Option<std::result::Result<Connection, Error>>,
    /// The user's configuration of ssh.
    pub ssh_config: SshConfigFacts,
    /// The `ssh` program.
    pub ssh: Option<HostPath>,
    /// `None` unless the guest is the image's user and the engine has the image.
    pub image: Option<ImageFacts>,
    /// The image of sandpen's own store; `None` if the store does not have it, or no image was asked
    /// for.
    pub root_image: Option<RootImageFacts>,
    pub git: GitFacts,
    /// The files of the workspace that are hidden.
    pub hidden: HiddenFacts,
    /// The values of keys that stay outside.
    #[serde(skip)]
    pub secrets: SecretFacts,
    /// The login files of the agent.
    #[serde(skip)]
    pub logins: LoginFacts,
    /// Kept copies of workspaces.
    pub copies: CopyFacts,
    /// One entry per repository of `GitQuestion::repositories`, in the same order.
    pub git_dirs: Vec<GitDirs>,
    /// The directory in which session directories are made.
    pub session_base: HostPath,
    /// A directory in memory for files that are needed while a sandbox runs.
    pub memory_dir: Option<HostPath>,
    pub selinux: bool,
    /// Whether AppArmor confines programs: Docker's containers have a profile then.
    pub apparmor: bool,
    /// A Linux build of sandpen, which is mounted as the guest helper.
    pub helper: Option<HostPath>,
}

impl Facts {
    pub fn look(host: &Host, questions: Questions) -> Result<Self> {
        let mounted = &questions.mounted;
        let divide = |mounted: &[HostPath]| SearchPath::divide(host.env.raw(vars::PATH), mounted);
        let early = EarlySubmodules::start(questions.git.repository.as_ref());
        let closed = [mounted.as_slice(), &questions.preset_directories].concat();
        let path = divide(&closed);
        // Git runs while the rest is looked at.
        let pending_git = git::PendingGitConfig::start(host, &path, &questions.git);
        let session_base = session_base(host);
        let mut engines = Engines::look(host, &path, &questions, &session_base)?;
        let writable = [questions.writable.as_slice(), &questions.preset_directories].concat();
        let ssh_config =
            |start| SshConfigFacts::look(&SshConfigQuestion { host, path: &path, writable: &writable, start });
        if let Some(native) = &mut engines.native {
            native.system.ssh = ssh_config(constant!(HostPath, "/etc/ssh/ssh_config"));
        }
        let is_native = engines.native.as_ref().is_some_and(|native| native.problem.is_none());
        let root_image = questions.root_image.as_ref().filter(|_| is_native);
        let tools = if engines.show_host_tools() && root_image.is_none() {
            // The guest runs programs of read-only mounts, the host does not.
            let tool_path = if writable == closed { path.clone() } else { divide(&writable) };
            let is_preset = !questions.preset_directories.is_empty();
            let command_path = if is_preset { divide(&questions.writable) } else { tool_path.clone() };
            let scope = Scope { command_path: &command_path, path: &tool_path, writable: &writable };
            ToolFacts::look(host, questions.tool.as_deref(), &scope)
        } else {
            ToolFacts::default()
        };
        let mut files = Files::look(questions.files.iter().cloned());
        let agent = if questions.ask_agent { AgentFacts::look(host) } else { AgentFacts::NotAsked };
        let git = pending_git.finish(host, &questions.git.shown);
        let hooks_path = git.get("core.hookspath").map(|setting| setting.value.as_str());
        let early = early.finish();
        let look_at = |found| GitDirs::look(host, found, &questions.git.shown, hooks_path, early.as_ref());
        let git_dirs = questions.git.repositories.iter().map(look_at).collect();
        let further = (questions.after_git)(host, &git);
        files.look_further(further.files);
        let names = questions.programs.into_iter().chain(further.programs);
        let programs = names.filter_map(|name| path.examine(host, &name).map(|fact| (name, fact))).collect();
        let ssh_config = ssh_config(host.home.join(".ssh/config"));
        let copies = CopyFacts::look(host, &session_base, &questions.copy);
        Ok(Facts {
            copies,
            ssh_config,
            helper: helper(host),
            session_base,
            memory_dir: memory_dir(),
            selinux: std::path::Path::new("/sys/fs/selinux/enforce").exists(),
            apparmor: std::path::Path::new("/sys/kernel/security/apparmor").exists(),
            ssh: path.find("ssh"),
            desktop: None,
            connection: None,
            python_path: SearchPath::divide(host.env.raw(vars::PYTHONPATH), mounted),
            path,
            files,
            programs,
            overlay: (questions.cache_layers.as_ref().filter(|_| engines.run_containers())).map(OverlayFacts::look),
            docker: engines.docker,
            podman: engines.podman,
            native: engines.native,
            seatbelt: engines.seatbelt,
            kubernetes: engines.kubernetes,
            tools,
            agent,
            image: None,
            root_image: root_image.and_then(|image| RootImageFacts::look(host, image)),
            git,
            hidden: HiddenFacts::look(&questions.hide),
            secrets: SecretFacts::look(host, questions.secrets, !questions.logins.is_empty(), mounted),
            logins: LoginFacts::look(questions.logins),
            git_dirs,
        })
    }

    /// Looks for sandpen on PATH, outside of mounted directories, for an embedding program that is
    /// not sandpen itself.
    pub fn find_program(&mut self, host: &mut Host, name: &str) {
        host.executable = self.path.find(name);
        self.helper = helper(host);
        if let Some(seatbelt) = &mut self.seatbelt {
            seatbelt.find_helper(host);
        }
    }

    /// Asks an engine's client how the SSH agent can be forwarded into its virtual machine.
    pub fn ask_machine(&mut self, host: &Host, question: MachineQuestion, client: &Client) {
        match question {
            MachineQuestion::OperatingSystem => self.desktop = Some(DesktopFacts::ask(client)),
            MachineQuestion::Connection => self.connection = Some(machine::connection(host, client)),
        }
    }
}

#[derive(Default)]
struct Engines {
    docker: Option<DockerFacts>,
    podman: Option<PodmanFacts>,
    native: Option<NativeFacts>,
    seatbelt: Option<SeatbeltFacts>,
    kubernetes: Option<KubernetesFacts>,
}

impl Engines {
    /// Looks at the candidates in order and stops at the first that can run; asking the rest would
    /// only take time.
    fn look(host: &Host, path: &SearchPath, questions: &Questions, sessions: &HostPath) -> Result<Self> {
        let mut found = Engines::default();
        let is_only_one = questions.engines.len() == 1;
        for engine in &questions.engines {
            let can_run = match engine {
                EngineKind::Native => {
                    let facts = NativeFacts::look(is_only_one);
                    found.native.insert(facts).problem.is_none()
                }
                EngineKind::SandboxExec => {
                    let profile = questions.seatbelt_profile.as_ref();
                    let facts = SeatbeltFacts::look(host, profile, sessions, &questions.mounted)?;
                    found.seatbelt.insert(facts).program.is_some()
                }
                EngineKind::Docker => {
                    let facts = DockerFacts::look(host, path.find("docker"));
                    // `auto` never takes one on another machine: files leave this one only when asked to.
                    let is_candidate = is_only_one || !facts.is_on_another_machine();
                    found.docker.insert(facts).reach == Reach::Answers && is_candidate
                }
                EngineKind::Podman => {
                    let facts = PodmanFacts::look(host, path.find("podman"));
                    let is_candidate = is_only_one || facts.elsewhere.is_none();
                    found.podman.insert(facts).reach == Reach::Answers && is_candidate
                }
                EngineKind::Kubernetes => {
                    let context = questions.kubernetes_context.as_deref();
                    let facts = KubernetesFacts::look(host, path.find("kubectl"), path.for_host(), context);
                    found.kubernetes.insert(facts).reach == Reach::Answers
                }
            };
            if can_run {
                break;
            }
        }
        Ok(found)
    }

    fn run_containers(&self) -> bool {
        self.docker.is_some() || self.podman.is_some()
    }

    fn show_host_tools(&self) -> bool {
        let is_native = self.native.as_ref().is_some_and(|native| native.problem.is_none());
        is_native || self.seatbelt.as_ref().is_some_and(|seatbelt| seatbelt.program.is_some())
    }
}

/// Finds the guest helper: this program on Linux; on macOS a Linux build in the same directory.
fn helper(host: &Host) -> Option<HostPath> {
    helper_for(host, host.arch)
}

/// Finds the guest helper for a machine of an architecture.
pub fn helper_for(host: &Host, arch: &str) -> Option<HostPath> {
    let executable = host.executable.as_ref()?;
    if host.platform == Platform::Linux && arch == host.arch {
        return Some(executable.clone());
    }
    let beside = HostPath::new(executable.as_path().parent()?).ok()?.join(format!("sandpen-linux-{arch}"));
    beside.as_path().is_file().then_some(beside)
}

/// Returns the PATH for programs that sandpen starts outside of a launch, without the current
/// directory.
pub fn host_path(host: &Host) -> std::path::PathBuf {
    search_path(host).for_host()
}

/// Divides PATH by the current directory and the repository around it, for lookups outside of a
/// launch.
pub fn search_path(host: &Host) -> SearchPath {
    let mut mounted = vec![host.cwd.clone()];
    if let git::repository::Search::Found(repository) = git::repository::Search::around(&host.cwd) {
        mounted.extend([repository.root, repository.common_dir]);
    }
    SearchPath::divide(host.env.raw(vars::PATH), &mounted)
}

/// Returns the parent of all session directories: in the state directory, or in the temporary one
/// if the state directory is not writable or belongs to another user. Root with a user's HOME must
/// not leave files there that the user cannot remove.
pub fn session_base(host: &Host) -> HostPath {
    let state = host.state_dir().join("sessions");
    let existing = state.as_path().ancestors().find_map(|path| Some((path, path.metadata().ok()?)));
    let is_usable = existing.is_some_and(|(path, meta)| {
        meta.uid() == host.uid && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    });
    if is_usable { state } else { host.temp_dir().join(format!("sandpen-{}", host.uid)).join("sessions") }
}

/// Returns the directory for files in memory that all users share, if there is one.
#[cfg(target_os = "linux")]
fn memory_dir() -> Option<HostPath> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    let path = constant!(HostPath, "/dev/shm");
    let is_memory = rustix::fs::statfs(path.as_path()).is_ok_and(|fs| fs.f_type == TMPFS_MAGIC);
    let is_writable = rustix::fs::access(path.as_path(), rustix::fs::Access::WRITE_OK).is_ok();
    (is_memory && is_writable).then_some(path)
}

#[cfg(not(target_os = "linux"))]
fn memory_dir() -> Option<HostPath> {
    None
}

/// Lists the cgroup v2 controllers that systemd delegates to the user; none on v1 or without a user
/// session.
fn delegated_controllers(uid: u32) -> Vec<String> {
    let slice = format!("/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers");
    let text = std::fs::read_to_string(slice).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
