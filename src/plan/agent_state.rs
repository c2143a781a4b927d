//! Decides which files of an agent the sandbox shares with the host. What an agent on the host
//! obeys, such as settings, hooks and lists of MCP servers, is brought in and never out; logins,
//! sessions and history go both ways. Copies nothing itself; `gate::agent_state` does.
//!
//! A directory of an agent is the sandboxes' own inside, kept in sandpen's state directory, with the
//! host's shared directories mounted into it. Files are copied: a file that is a mount point could
//! not be replaced by renaming, which is how most agents write.

use super::entry::{Mount, Why};
use super::logins::{LoginDecision, LoginPlace, LoginPlan};
use super::mounts::existing;
use super::prepare::Prepare;
use super::{Detail, Draft};
use crate::config::Origin;
use crate::config::preset::{Directory, Preset};
use crate::config::value::{Access, EngineKind};
use crate::facts::FileKind;
use crate::host::Host;
use crate::path::HostPath;

/// Everything that is copied between the host and the sandbox, and what is reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentState {
    /// The directory of the agent in sandpen's state directory.
    pub own: Option<HostPath>,
    pub files: Vec<KeptFile>,
    /// Parts of the sandboxes' own directories that the agent obeys, each with its path on the host.
    pub obeyed: Vec<(HostPath, HostPath)>,
    /// The private home directory, if its content is reported at the end.
    pub reported_home: Option<HostPath>,
}

/// A file of the agent of which the guest has a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// The host's file.
    pub host: HostPath,
    /// The directory that the guest writes, as the launcher sees it.
    pub directory: HostPath,
    /// The name of the copy in it.
    pub name: String,
    /// The content on which both sides agreed last.
    pub base: HostPath,
    /// The copy and the base of earlier sessions, for a file that is not in a kept directory.
    pub earlier: Option<(HostPath, HostPath)>,
    pub sharing: Sharing,
}

/// The direction in which a file's content goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// Both ways.
    Whole,
    /// These keys of a JSON file go both ways, all others only in; changes of `obeyed` are reported.
    Keys { shared: Vec<String>, obeyed: Vec<String> },
    /// In only.
    HostOnly,
    /// A copy with placeholders in place of the tokens of a login. Nothing comes out.
    Login(Box<LoginPlan>),
    /// Both ways, until another sandbox has placeholders in the file.
    FirstLogin(Box<LoginPlan>),
}

impl AgentState {
    /// Describes the copies, for `explain`. Obeyed files that are only brought in are left out: most
    /// do not exist.
    pub fn details(&self, preset: &Preset) -> Vec<Detail> {
        let described = |file: &KeptFile| {
            let reason = match &file.sharing {
                Sharing::HostOnly => return None,
                Sharing::Whole | Sharing::FirstLogin(_) => {
                    "copied both ways, so that both sides can replace it".to_owned()
                }
                Sharing::Login(_) => "a copy with placeholders: the tokens stay outside".to_owned(),
                Sharing::Keys { shared, .. } => format!("copied; these keys come out: {}", shared.join(", ")),
            };
            let from = Origin::Preset(preset.name.clone());
            Some(Detail { name: "copied", value: file.host.to_string(), reason, from })
        };
        let restart = preset.restart_on.map(|code| Detail {
            name: "restart",
            value: format!("exit code {}", code.0),
            reason: "the command asks with it to be started again".to_owned(),
            from: Origin::Preset(preset.name.clone()),
        });
        self.files.iter().filter_map(described).chain(restart).collect()
    }
}

/// Lists the parts of an agent's directories that decisions depend on, for the facts to look at.
pub fn parts(host: &Host, preset: &Preset) -> Vec<HostPath> {
    let parts = preset.directories.iter().flat_map(|directory| {
        let names = directory.shared.iter().map(|name| name.name()).chain(directory.obeyed.iter().map(String::as_str));
        names.map(|name| host.home.join(directory.path.below()).join(name))
    });
    parts.collect()
}

impl Draft<'_> {
    /// Whether the guest gets copies of an agent's files. A guest with another uid could not write
    /// them, and Seatbelt has no mounts.
    pub(super) fn has_own_state(&self) -> bool {
        self.engine != EngineKind::SandboxExec && self.user.is_host_user()
    }

    fn own_state_dir(&mut self, preset: &Preset) -> HostPath {
        let mut own = self.host.state_dir().join("agents").join(&preset.name);
        // Sandboxes with tokens inside share no file with those that have placeholders.
        if self.login_decisions.iter().any(|decision| decision.place == LoginPlace::Inside) {
            own = own.join("inside");
        }
        self.agent_state.own = Some(own.clone());
        own
    }

    /// Adds a directory of which only some parts are shared; returns `false` if it is to be mounted
    /// as a whole.
    pub(super) fn divided_directory(&mut self, preset: &Preset, directory: &Directory, why: &Why) -> bool {
        if !directory.own || directory.mode != Access::Rw || !self.has_own_state() {
            return false;
        }
        let below = directory.path.below();
        let path = self.host.home.join(below);
        let host = match self.facts.files.get(&path) {
            Some(fact) if fact.kind != FileKind::Directory => return false,
            Some(fact) => fact.real.clone(),
            None if directory.create => path.clone(),
            None => return false,
        };
        let state = self.own_state_dir(preset);
        let own = state.join(below);
        self.prepare.push(Prepare::Keep { path: host.clone() });
        let mut directories = Vec::new();
        for name in &directory.shared {
            if name.is_directory() {
                let source = self.facts.files.get(&path.join(name.name())).map(|fact| fact.real.clone());
                let source = source.unwrap_or_else(|| host.join(name.name()));
                self.prepare.push(Prepare::Keep { path: source.clone() });
                directories.push(name.name().to_owned());
                for target in self.homes(below) {
                    self.mounts.add(Mount::directory(
                        source.clone(),
                        target.join(name.name()),
                        Access::Rw,
                        why.clone(),
                    ));
                }
            } else {
                self.agent_state.files.push(KeptFile {
                    host: host.join(name.name()),
                    directory: own.clone(),
                    name: name.name().to_owned(),
                    base: state.join("base").join(below).join(name.name()),
                    earlier: None,
                    sharing: self.sharing(&format!("{below}/{}", name.name())),
                });
            }
        }
        for name in &directory.obeyed {
            self.agent_state.obeyed.push((own.join(name), path.join(name)));
            match self.facts.files.get(&path.join(name)) {
                Some(fact) if fact.kind == FileKind::Directory => {
                    directories.push(name.clone());
                    for target in self.homes(below) {
                        self.mounts.add(existing(fact, target.join(name), Access::Ro, why.clone()));
                    }
                }
                _ => self.agent_state.files.push(KeptFile {
                    host: host.join(name),
                    directory: own.clone(),
                    name: name.clone(),
                    base: state.join("base").join(below).join(name),
                    earlier: None,
                    sharing: Sharing::HostOnly,
                }),
            }
        }
        self.prepare.push(Prepare::Own { path: own.clone(), directories });
        let why =
            Why { reason: format!("{}: the sandboxes' own, without what the host obeys", why.reason), ..why.clone() };
        for target in self.homes(below) {
            self.mounts.add(Mount::directory(own.clone(), target, Access::Rw, why.clone()));
        }
        true
    }

    fn sharing(&self, below: &str) -> Sharing {
        match self.login_at(below) {
            Some(LoginDecision { place: LoginPlace::Outside, plan, .. }) => Sharing::Login(Box::new(plan.clone())),
            Some(LoginDecision { place: LoginPlace::First, plan, .. }) => Sharing::FirstLogin(Box::new(plan.clone())),
            _ => Sharing::Whole,
        }
    }

    /// Adds a copy of a file that is directly in the home; returns `false` if it is to be mounted.
    pub(super) fn copied_file(&mut self, preset: &Preset, directory: &Directory) -> bool {
        let below = directory.path.below();
        let path = self.host.home.join(below);
        let host = match self.facts.files.get(&path) {
            Some(fact) if fact.kind == FileKind::File => fact.real.clone(),
            None if directory.content.is_some() => path,
            _ => return false,
        };
        if let Some(content) = &directory.content {
            self.prepare.push(Prepare::KeepFile { path: host.clone(), content: content.clone() });
        }
        // A guest can replace a directory of its home by a link, but not the home itself.
        if directory.mode != Access::Rw || below.contains('/') || !self.has_own_state() || !self.has_private_home() {
            return false;
        }
        let state = self.own_state_dir(preset);
        self.agent_state.files.push(KeptFile {
            host,
            directory: self.session_dir.join("home"),
            name: below.to_owned(),
            base: self.session_dir.join("agent-base").join(below),
            earlier: Some((state.join("home").join(below), state.join("base").join(below))),
            sharing: match directory.shared_keys.is_empty() {
                true => Sharing::Whole,
                false => Sharing::Keys { shared: directory.shared_keys.clone(), obeyed: directory.obeyed.clone() },
            },
        });
        true
    }

    /// Whether the home inside is a directory of the session, and not one that the user mounts.
    fn has_private_home(&self) -> bool {
        !self.mounts.iter().any(|mount| self.user.home.is_within(&mount.target))
    }
}
