//! Decides the mounts: those that the user requests, the workspace, the home directory, Git's
//! configuration, the preset's directories. Looks at no files; `facts::files` does.

use std::path::Path;

use super::entry::{Mount, Topic, Why};
use super::prepare::Prepare;
use super::{Draft, agent_state, latest_first, terminfo};
use crate::config::preset::Preset;
use crate::config::value::{Access, EngineKind, TmpMode, VariableName};
use crate::config::{Config, Origin};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::{FileFact, FileKind};
use crate::host::Host;
use crate::path::{GuestPath, HostPath, PathError, constant};
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// Git's configuration files below HOME, each with its requirement (R3.1–R3.3).
pub const GIT_FILES: &[(&str, &str)] =
    &[(".gitconfig", "R3.1"), (".config/git/config", "R3.2"), (".gitignore_global", "R3.3")];

/// Without the host keys that the user has accepted, every `git fetch` over SSH would fail inside.
pub const KNOWN_HOSTS: &str = ".ssh/known_hosts";

/// Shell files of the project, of which the first that exists is sourced inside before the command.
pub const STARTUP_FILES: &[&str] = &[".sandpen/sandbox.bashrc", ".llxprt/sandbox.bashrc"];

/// Files below HOME that programs on the host obey unasked, besides Git's.
const HOST_STARTUP_FILES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".config/fish/config.fish",
    ".ssh/config",
    ".ssh/authorized_keys",
];

/// Sockets by which the guest could control the host.
const ENGINE_SOCKETS: &[&str] = &["docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock"];

/// `name` is the origin of the mount and its path.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{name} cannot be mounted")]
    BadPath { name: String, source: PathError },
    #[error("{name} does not exist on the host")]
    Missing { name: String },
    #[error("{name} is a link out of the workspace, and the guest could have created it")]
    LinkOut { name: String, target: HostPath },
    #[error("{name} cannot be mounted at `{target}`, which sandpen uses itself")]
    Reserved { name: String, target: GuestPath },
    #[error("{name} cannot be mounted: it contains sandpen's configuration, which the guest must not change")]
    OwnFiles { name: String },
}

impl Diagnostic for MountError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Missing { .. } => vec!["expected an existing FROM in FROM[:TO[:ro|rw]]".into()],
            Self::LinkOut { target, .. } => vec![format!("to mount it anyway, name its target: {target}")],
            Self::BadPath { .. } | Self::Reserved { .. } | Self::OwnFiles { .. } => Vec::new(),
        }
    }
}

impl Draft<'_> {
    /// Adds the mounts that options request. They come first, so that they win over all others.
    pub fn requested_mounts(&mut self) -> Result<()> {
        for request in latest_first(&self.config.mounts) {
            let (mount, origin) = (&request.value, &request.origin);
            let name = || format!("{origin}: `{}`", mount.from.display());
            let bad_path = |source| MountError::BadPath { name: name(), source };
            let from = HostPath::new(self.host.expand(&mount.from)).map_err(bad_path)?;
            let fact = self.facts.files.get(&from).ok_or_else(|| MountError::Missing { name: name() })?;
            if self.workspace.is_chosen_inside(fact) {
                return Err(MountError::LinkOut { name: name(), target: fact.real.clone() }.into());
            }
            let to = match &mount.to {
                Some(to) if to.starts_with("~") => GuestPath::new(self.host.expand(to)).map_err(bad_path)?,
                Some(to) => GuestPath::new(to).map_err(bad_path)?,
                // Under Seatbelt files have their real paths only.
                None if self.engine == EngineKind::SandboxExec => fact.real.to_guest(),
                None => from.to_guest(),
            };
            if to.as_path().parent().is_none() || to.is_within(&self.control_dir()) {
                return Err(MountError::Reserved { name: name(), target: to }.into());
            }
            if mount.mode == Access::Rw && self.host.keeps_files_in(&fact.real) {
                return Err(MountError::OwnFiles { name: name() }.into());
            }
            if is_engine_socket(fact) {
                self.warnings.push(Warning::new(
                    WarningTopic::Files,
                    format!("{} gives the guest control over a container engine, and through it over the host", name()),
                ));
            } else if let Some(exposed) = self.exposure(fact) {
                self.warnings.push(Warning::new(WarningTopic::Files, format!("{} exposes {exposed}", name())));
            }
            let why = Why::new("requested", origin.clone()).about(Topic::Asked);
            self.mounts.add(existing(fact, to, mount.mode, why));
        }
        Ok(())
    }

    /// Adds the repository or working directory, the included directories, and the Git directories
    /// of worktrees.
    pub fn workspace_mounts(&mut self) {
        let roots = self.workspace;
        let root = roots.root();
        let reason = if *root == roots.workdir {
            "the working directory"
        } else {
            "the repository that contains the working directory"
        };
        self.mounts.add(Mount::directory(
            root.clone(),
            root.to_guest(),
            Access::Rw,
            Why::default(reason).about(Topic::Workspace),
        ));
        for (directory, asked) in roots.includes.iter().zip(&self.config.include_dirs) {
            let why = Why::new("an included directory", asked.origin.clone()).about(Topic::Workspace);
            self.mounts.add(Mount::directory(directory.clone(), directory.to_guest(), Access::Rw, why));
        }
        for repository in roots.repositories() {
            let kept = &repository.common_dir;
            let why = Why::default("the Git directory of this worktree").about(Topic::Workspace);
            if !self.mounts.iter().any(|mount| kept.to_guest().is_within(&mount.target)) {
                self.mounts.add(Mount::directory(kept.clone(), kept.to_guest(), Access::Rw, why));
            }
        }
        if let Some(reason) = &roots.refused_repository {
            self.warnings.push(Warning::new(WarningTopic::Files, format!(
                "the repository that contains the working directory is not mounted: {reason}; Git may not work inside"
            )));
        }
    }

    /// Adds Git's configuration and known hosts, read-only, below the host's and the guest's home
    /// (R3). Never `~/.git-credentials` (R3.7).
    pub fn git_configuration(&mut self) {
        for (file, requirement) in GIT_FILES {
            let why = Why::default("your Git configuration").about(Topic::Git).requirement(requirement);
            self.at_both_homes(file, Access::Ro, &why);
        }
        let why = Why::default("host keys that you have accepted").about(Topic::Git);
        self.at_both_homes(KNOWN_HOSTS, Access::Ro, &why);
        // ssh uses the home directory from passwd and ignores HOME; this file works for every user.
        let known = self.facts.files.get(&self.host.home.join(KNOWN_HOSTS));
        if let Some(fact) = known.filter(|fact| !self.workspace.is_chosen_inside(fact)) {
            let target = constant!(GuestPath, "/etc/ssh/ssh_known_hosts");
            self.mounts.add(existing(fact, target, Access::Ro, why));
        }
    }

    /// Adds the preset's directories below both homes, and the files that its variables name.
    pub fn preset_mounts(&mut self) {
        let Some(preset) = self.preset else { return };
        for directory in &preset.directories {
            let why = Why::new(&directory.reason, Origin::Preset(preset.name.clone()));
            let below = directory.path.below();
            let path = self.host.home.join(below);
            let is_link = self.facts.files.get(&path).is_some_and(|fact| fact.real != path);
            if is_link && self.workspace.contains(&path) {
                self.warnings.push(Warning::new(
                    WarningTopic::Preset,
                    format!("`{path}` is a link in the workspace, so the preset `{}` does not mount it", preset.name),
                ));
                continue;
            }
            if self.divided_directory(preset, directory, &why) || self.copied_file(preset, directory) {
                continue;
            }
            if self.facts.files.get(&path).is_none() && directory.content.is_some() {
                for target in self.homes(below) {
                    self.mounts.add(Mount::file(path.clone(), target, directory.mode, why.clone()));
                }
            } else if self.facts.files.get(&path).is_none() && directory.create {
                self.prepare.push(Prepare::Keep { path: path.clone() });
                for target in self.homes(below) {
                    self.mounts.add(Mount::directory(path.clone(), target, directory.mode, why.clone()));
                }
            }
            self.at_both_homes(below, directory.mode, &why);
        }
        for name in preset.credential_files.iter().map(VariableName::as_str) {
            let Some(file) = self.host.env.path(name).and_then(|path| HostPath::new(path).ok()) else { continue };
            let fact = self.named_file(&file, name).filter(|fact| fact.kind == FileKind::File).cloned();
            if let Some(fact) = fact {
                let why = Why::new(format!("the file that {name} names"), Origin::Preset(preset.name.clone()));
                self.show_named(&fact, &file, why);
            }
        }
    }

    /// Returns a file that a variable or setting of the user names, unless a link in the workspace
    /// chose it: the guest could make it lead to any file (attack 01).
    pub(super) fn named_file(&mut self, path: &HostPath, by: &str) -> Option<&FileFact> {
        let fact = self.facts.files.get(path)?;
        if self.workspace.is_chosen_inside(fact) {
            self.warnings.push(Warning::new(
                WarningTopic::Files,
                format!("`{path}` ({by}) leads out of the workspace by a link in it, so it is not mounted"),
            ));
            return None;
        }
        Some(fact)
    }

    /// Mounts such a file read-only at its path, where the workspace does not have it already.
    pub(super) fn show_named(&mut self, fact: &FileFact, path: &HostPath, why: Why) {
        if !(self.workspace.contains(path) && self.workspace.contains(&fact.real)) {
            self.mounts.add(existing(fact, path.to_guest(), Access::Ro, why));
        }
    }

    /// Replaces a Python environment in the workspace, which is made for the host's Python, by a
    /// private one: a container has a Python of its own.
    pub fn virtual_env(&mut self) {
        let Some(path) = self.host.env.path(vars::VIRTUAL_ENV).and_then(|path| HostPath::new(path).ok()) else {
            return;
        };
        let root = self.workspace.root();
        if !path.is_within(root) {
            return;
        }
        let Some(fact) = self.facts.files.get(&path) else { return };
        if !fact.real.is_within(root) {
            self.warnings.push(Warning::new(
                WarningTopic::Files,
                format!("the Python environment `{path}` is a link out of the workspace and is not replaced inside"),
            ));
            return;
        }
        let own = self.host.state_dir().join("venv").join(flat_name(path.as_path()));
        let why = Why::new("a private Python environment, kept between runs", Origin::Env(vars::VIRTUAL_ENV))
            .about(Topic::Workspace);
        self.prepare.push(Prepare::Keep { path: own.clone() });
        self.mounts.add(Mount::directory(own, path.to_guest(), Access::Rw, why.clone()));
        self.env.plain(vars::VIRTUAL_ENV, path.to_string(), why);
        self.warnings.push(Warning::new(
            WarningTopic::Files,
            format!("`{path}` is made for the host's Python: inside, a private environment is in its place, which `python3 -m venv` fills"),
        ));
    }

    /// Adds a private home directory for a guest that is the host's user.
    pub fn home(&mut self) {
        if !self.user.is_host_user() {
            return;
        }
        let why = Why::default("a private, empty home directory: yours stays outside").about(Topic::Home);
        // It is on disk on every engine, so that the launcher can copy an agent's files into and out
        // of it.
        let own = self.session_dir.join("home");
        self.prepare.push(Prepare::Directory { path: own.clone(), mode: 0o700 });
        self.mounts.add(Mount::directory(own.clone(), self.user.home.clone(), Access::Rw, why));
        if self.preset.is_none() && self.config.keep.is_none() {
            self.agent_state.reported_home = Some(own);
        }
    }

    /// Generates passwd and group, without which ssh fails with "No user exists for uid".
    pub fn accounts(&mut self) {
        let (Some(uid), Some(gid), true) = (self.user.uid, self.user.gid, self.user.is_host_user()) else { return };
        let (name, home, shell) = (&self.user.name, &self.user.home, self.shell());
        let root_home = if uid == 0 { home.to_string() } else { "/root".into() };
        let root_shell = if uid == 0 { &shell } else { "/bin/sh" };
        let mut passwd = format!("root:x:0:0:root:{root_home}:{root_shell}\n");
        let mut group = String::from("root:x:0:\ntty:x:5:\n");
        if uid != 0 {
            passwd.push_str(&format!("{name}:x:{uid}:{gid}:{name}:{home}:{shell}\n"));
        }
        if gid != 0 {
            group.push_str(&format!("{name}:x:{gid}:\n"));
        }
        passwd.push_str("nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n");
        group.push_str("nogroup:x:65534:\n");
        for (file, content) in [("passwd", passwd), ("group", group)] {
            self.generated(file, content, "an entry for the guest's user, which ssh needs");
        }
    }

    /// Adds the temporary directory. It is private by default: the host's contains sockets of other
    /// programs, for example ssh-agent's.
    pub fn temp(&mut self) {
        let place = self.host.temp_dir();
        let origin = self.config.tmp.origin.clone();
        match self.config.tmp.value {
            TmpMode::Host => {
                let why = Why::new("the host's temporary files", origin).about(Topic::Temp);
                self.mounts.add(Mount::directory(place.clone(), place.to_guest(), Access::Rw, why));
            }
            TmpMode::Private => {
                let why = Why::new("a private directory for temporary files", origin).about(Topic::Temp);
                self.scratch("tmp", place.to_guest(), 0o1777, why);
            }
        }
    }

    /// Adds a private, empty, writable directory. It is in memory for the native engine, and if the
    /// guest has another uid, whose files could not be removed afterwards; otherwise in the
    /// session's directory.
    pub fn scratch(&mut self, name: &str, target: GuestPath, mode: u32, why: Why) {
        let is_in_memory = matches!(self.engine, EngineKind::Native | EngineKind::Kubernetes);
        if is_in_memory || !self.user.is_host_user() {
            self.mounts.add(Mount::tmpfs(target, mode, why));
            return;
        }
        let own = self.session_dir.join(name);
        self.prepare.push(Prepare::Directory { path: own.clone(), mode });
        self.mounts.add(Mount::directory(own, target, Access::Rw, why));
    }

    /// Adds a generated file in `/etc`.
    pub fn generated(&mut self, name: &str, content: String, reason: &str) {
        self.generated_at(name, content, constant!(GuestPath, "/etc").join(name), reason);
    }

    /// Adds a generated file; `name` is its name in the session's directory.
    pub fn generated_at(&mut self, name: &str, content: String, target: GuestPath, reason: &str) {
        let why = Why::default(reason);
        if self.engine == EngineKind::Native {
            self.mounts.add(Mount::text(content, target, why));
            return;
        }
        let path = self.session_dir.join(name);
        self.mounts.add(Mount::file(path.clone(), target, Access::Ro, why));
        self.prepare.push(Prepare::File { path, content });
    }

    /// Mounts a path below HOME at the host's home and, if it differs, also at the guest's (R3.4).
    pub fn at_both_homes(&mut self, below: &str, access: Access, why: &Why) {
        let Some(fact) = self.named_file(&self.host.home.join(below), &why.reason) else { return };
        let fact = &fact.clone();
        for target in self.homes(below) {
            self.mounts.add(existing(fact, target, access, why.clone()));
        }
    }

    pub fn homes(&self, below: &str) -> Vec<GuestPath> {
        let mut targets = vec![self.host.home.to_guest().join(below), self.user.home.join(below)];
        targets.dedup();
        targets
    }
}

/// Lists the paths that the decisions in this file depend on, for the facts to look at.
pub fn paths_of_interest(host: &Host, config: &Config, preset: Option<&Preset>) -> Vec<HostPath> {
    let in_home = GIT_FILES.iter().map(|(file, _)| *file).chain([KNOWN_HOSTS]);
    let preset_paths = preset.iter().flat_map(|preset| &preset.directories).map(|directory| directory.path.below());
    let in_home = in_home.chain(HOST_STARTUP_FILES.iter().copied());
    let mut paths: Vec<HostPath> = in_home.chain(preset_paths).map(|file| host.home.join(file)).collect();
    paths.extend(preset.into_iter().flat_map(|preset| agent_state::parts(host, preset)));
    paths.extend(terminfo::directories(host));
    paths.extend(STARTUP_FILES.iter().map(|file| host.cwd.join(file)));
    let credential_variables = preset.iter().flat_map(|preset| &preset.credential_files).map(VariableName::as_str);
    let variables = credential_variables
        .chain(vars::CERTIFICATES.iter().copied())
        .chain([vars::VIRTUAL_ENV, vars::SSH_AUTH_SOCK])
        .filter_map(|name| host.env.path(name));
    paths.extend(variables.filter_map(|path| HostPath::new(path).ok()));
    paths.extend(config.mounts.iter().filter_map(|mount| HostPath::new(host.expand(&mount.value.from)).ok()));
    paths
}

/// Lists the files below HOME that programs on the host obey unasked.
pub fn startup_files(host: &Host) -> Vec<HostPath> {
    GIT_FILES
        .iter()
        .map(|(file, _)| *file)
        .chain(HOST_STARTUP_FILES.iter().copied())
        .map(|file| host.home.join(file))
        .collect()
}

pub fn git_configuration_files(host: &Host) -> Vec<HostPath> {
    GIT_FILES.iter().map(|(file, _)| host.home.join(file)).collect()
}

fn is_engine_socket(fact: &FileFact) -> bool {
    let name = fact.real.as_path().file_name();
    fact.kind == FileKind::Socket && name.is_some_and(|name| ENGINE_SOCKETS.iter().any(|socket| name == *socket))
}

/// Mounts the real path of a file or directory.
pub fn existing(fact: &FileFact, target: GuestPath, access: Access, why: Why) -> Mount {
    match fact.kind {
        FileKind::Directory => Mount::directory(fact.real.clone(), target, access, why),
        _ => Mount::file(fact.real.clone(), target, access, why),
    }
}

/// Makes a file name of a path: the name of its parent, for people, and an FNV-1a digest of the
/// whole path. Existing directories and images have these names, so the function must not change.
pub fn flat_name(path: &Path) -> String {
    let digest = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let name = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    format!("{name}-{digest:016x}")
}
