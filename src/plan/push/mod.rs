//! Decides how Git inside reaches this repository's remotes with `--push`: through a transport that
//! ends in the launcher.

pub mod remote_url;
mod remotes;
mod ssh_command;

use std::collections::BTreeSet;
use std::path::PathBuf;

pub use remote_url::{HttpRemote, RemoteUrl, SshRemote};
pub use remotes::{MARK, Remote, Remotes, Rewrite};
use ssh_command::names_path_below;
pub use ssh_command::{SshCommand, program as ssh_program};

use super::channel::ChannelSocket;
use super::entry::{Mount, Topic, Why};
use super::helper::HelperError;
use super::{Draft, EnginePlan, questions};
use crate::channel::StreamKind;
use crate::config::value::{Access, EngineKind, GitMode, PushRule};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::git::Setting;
use crate::host::Host;
use crate::path::HostPath;
use crate::ui::shell::shell_word;
use crate::warning::{Warning, WarningTopic};

/// The socket of the push gate, in the session's directory and in the control directory inside.
pub const SOCKET: &str = "push";
/// The directory inside with Git's remote helper, and the name of the helper.
const DIRECTORY: &str = "bin";
pub const HELPER: &str = "git-remote-sandpen";
/// The argument with which Git LFS starts the helper.
pub const LFS_ARGUMENT: &str = "lfs";
/// The program that speaks HTTP for pushes.
pub const CURL: &str = "curl";

/// Whether and where a sandbox may push, and what the launcher needs for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushPlan {
    /// Empty if the option is not used.
    pub rules: Vec<Sourced<PushRule>>,
    pub remotes: Vec<Remote>,
    pub rewrites: Vec<Rewrite>,
    pub ssh: SshCommand,
    pub git: Option<HostPath>,
    pub curl: Option<HostPath>,
    /// The PATH for programs on the host.
    pub path: PathBuf,
    /// Directories with objects of the host's repository, by which fast-forwards are verified.
    pub objects: Vec<HostPath>,
    /// Whether the guest can write them, so that nothing is verified.
    pub has_shared_objects: bool,
    /// The list of commits without parents in a shallow clone.
    pub shallow: Option<HostPath>,
    /// The socket inside, if it cannot be mounted.
    pub channel: Option<ChannelSocket>,
    /// The user's settings for HTTP and logins.
    pub settings: Vec<(String, String)>,
}

impl PushPlan {
    /// Tells whether the launcher serves a transport.
    pub fn is_on(&self) -> bool {
        !self.remotes.is_empty()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error("{origin}: sandpen cannot carry Git's transport with {engine}, {reason}")]
    Unavailable { origin: Origin, engine: &'static str, reason: &'static str },
    #[error("{origin}: there is no `git` on PATH outside of mounted directories")]
    NoGit { origin: Origin },
}

impl Diagnostic for PushError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Unavailable { .. } => vec!["drop --push, or use an engine on this machine".into()],
            Self::NoGit { .. } => vec!["install Git, or drop --push".into()],
        }
    }
}

/// Lists the programs that `--push` needs on the host.
pub fn programs(config: &Config, ssh_command: Option<&str>) -> Vec<String> {
    if config.push.is_empty() {
        return Vec::new();
    }
    [CURL.to_owned()].into_iter().chain(ssh_command.and_then(ssh_program)).collect()
}

impl Draft<'_> {
    /// Decides which remotes the guest reaches through sandpen, and mounts what Git inside needs.
    pub fn push(&mut self, engine: &EnginePlan) -> Result<PushPlan> {
        let rules = self.config.push.clone();
        let Some(origin) = rules.first().map(|rule| rule.origin.clone()) else { return Ok(PushPlan::default()) };
        let unavailable =
            |reason| PushError::Unavailable { origin: origin.clone(), engine: engine.kind.name(), reason };
        if engine.kind == EngineKind::SandboxExec {
            return Err(unavailable("which cannot mount its helper").into());
        }
        if engine.kind == EngineKind::Kubernetes && self.facts.helper.is_none() {
            return Err(unavailable("for which the guest helper is missing").into());
        }
        let found = Remotes::of(&self.facts.git.settings);
        for name in &found.marked {
            let key = shell_word(&format!("remote.{name}.{MARK}").into());
            self.warnings.push(Warning::new(
                WarningTopic::Git,
                format!("the remote `{name}` was added by a sandbox, so {origin} leaves it out. Accept it: `git config --unset {key}`"),
            ));
        }
        if found.usable.is_empty() {
            self.warnings.push(Warning::new(
                WarningTopic::Git,
                format!("{origin} has no effect: no remote of this repository has an SSH or HTTPS URL"),
            ));
            return Ok(PushPlan { rules, ..PushPlan::default() });
        }
        let git = self.facts.git.program.clone().ok_or(PushError::NoGit { origin: origin.clone() })?;
        let feature = "--push";
        let program = self.facts.helper.clone().ok_or(HelperError::Missing { feature, arch: self.host.arch })?;
        let control_dir = self.control_dir();
        let why = |reason: &str| Why::new(reason, origin.clone()).about(Topic::Git);
        let (gate, inside) = (self.session_dir.join(SOCKET), control_dir.join(SOCKET));
        let why_socket = why("the socket through which Git reaches this repository's remotes");
        let channel = self.has_channel().then(|| ChannelSocket {
            kind: StreamKind::Push,
            inside: inside.clone(),
            gate: gate.clone(),
            why: why_socket.clone(),
        });
        if channel.is_none() {
            self.mounts.add(Mount::file(gate, inside, Access::Ro, why_socket));
        }
        self.mounts.add(Mount::file(
            program,
            control_dir.join(DIRECTORY).join(HELPER),
            Access::Ro,
            why("the remote helper by which Git uses that socket"),
        ));
        let dirs = self.facts.git_dirs.first().and_then(|dirs| dirs.full.first());
        let roots: Vec<HostPath> = questions::writable(self.host, self.config, self.workspace).collect();
        let is_kept = |path: &&HostPath| !roots.iter().any(|root| path.is_within(root));
        let objects = dirs.map_or_else(Vec::new, |dir| {
            let alternates = dir.alternates.iter().filter(is_kept).cloned();
            [dir.path.join("objects")].into_iter().chain(alternates).collect()
        });
        let (settings, left_out) = transport_settings(self.host, &self.facts.git.settings, &roots);
        for key in left_out {
            self.warnings.push(Warning::new(
                WarningTopic::Git,
                format!("{origin} does not use `{key}`, which names a file that the sandbox can write"),
            ));
        }
        let has_shared_objects = self.git_mode()? == GitMode::Shared;
        Ok(PushPlan {
            remotes: found.usable,
            rewrites: found.rewrites,
            ssh: self.ssh_words().into(),
            git: Some(git),
            curl: self.facts.programs.get(CURL).map(|found| found.path.clone()),
            path: self.facts.path.for_host(),
            objects,
            shallow: dirs.map(|dir| dir.path.join("shallow")),
            channel,
            settings,
            has_shared_objects,
            rules,
        })
    }

    /// Returns the path of the helper inside.
    pub(super) fn push_helper(&self) -> String {
        self.control_dir().join(DIRECTORY).join(HELPER).to_string()
    }

    /// Returns the directory inside that belongs at the end of PATH.
    pub(super) fn push_path(&self) -> String {
        self.control_dir().join(DIRECTORY).to_string()
    }
}

/// Variables of Git that stand for settings.
const VARIABLES: [(&str, &str); 4] = [
    ("GIT_SSL_CAINFO", "http.sslcainfo"),
    ("GIT_SSL_CAPATH", "http.sslcapath"),
    ("GIT_SSL_CERT", "http.sslcert"),
    ("GIT_SSL_KEY", "http.sslkey"),
];

/// Selects the user's settings for HTTP and logins. Those of the repository could name programs. Returns
/// the keys of settings that name a file of the guest, too.
fn transport_settings(
    host: &Host,
    settings: &[Setting],
    roots: &[HostPath],
) -> (Vec<(String, String)>, BTreeSet<String>) {
    let is_selected = |setting: &&Setting| {
        setting.scope.is_users() && (setting.key.starts_with("http.") || setting.key.starts_with("credential."))
    };
    let (mut selected, mut left_out) = (Vec::new(), BTreeSet::new());
    let of_files = settings.iter().filter(is_selected).map(|setting| (setting.key.as_str(), setting.value.as_str()));
    let of_variables = VARIABLES.iter().filter_map(|(variable, key)| Some((*key, host.env.text(variable)?)));
    for (key, value) in of_files.chain(of_variables) {
        let home = host.home.to_str().unwrap_or_default();
        let expanded = value.replace("~/", &format!("{home}/"));
        if roots.iter().any(|root| names_path_below(&expanded, root)) {
            left_out.insert(key.to_owned());
        } else {
            selected.push((key.to_owned(), value.to_owned()));
        }
    }
    (selected, left_out)
}
