//! Defines the entries of a plan, mounts and variables. None can be made without a reason and an
//! origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::Origin;
use crate::config::value::Access;
use crate::path::{GuestPath, HostPath, MachinePath};
use crate::secret::Secret;

/// Groups entries in `explain`, which also names the option that decides a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Parts of sandpen itself: the helper, user accounts, the sandbox's name.
    Sandbox,
    /// The directories that the guest works in.
    Workspace,
    /// Git directories and files that Git on the host obeys.
    Repository,
    /// The guest's home directory.
    Home,
    /// Temporary files.
    Temp,
    /// Mounts and variables that the user requested.
    Asked,
    /// Directories and variables of an agent's preset.
    Preset,
    /// Programs and settings of the host, for engines that run its tools.
    System,
    /// Git's configuration.
    Git,
    /// The SSH agent.
    Ssh,
    /// The network and its proxy.
    Network,
}

/// Explains why an entry is in the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Selects the group in `explain`.
    pub topic: Topic,
    /// Tells the user why, in a phrase.
    pub reason: String,
    /// The layer that requested it.
    pub from: Origin,
    /// A number from `docs/requirements.md`, if the entry fulfils a requirement.
    pub requirement: Option<&'static str>,
}

impl Why {
    /// Explains an entry that a layer requested. The topic is the preset or the sandbox.
    pub fn new(reason: impl Into<String>, from: Origin) -> Self {
        let topic = if matches!(from, Origin::Preset(_)) { Topic::Preset } else { Topic::Sandbox };
        Why { topic, reason: reason.into(), from, requirement: None }
    }

    /// Sets the topic.
    #[must_use]
    pub fn about(self, topic: Topic) -> Self {
        Why { topic, ..self }
    }

    /// Explains an entry that no option requested.
    pub fn default(reason: impl Into<String>) -> Self {
        Self::new(reason, Origin::Default)
    }

    /// Sets the requirement that the entry fulfils.
    #[must_use]
    pub fn requirement(mut self, number: &'static str) -> Self {
        self.requirement = Some(number);
        self
    }
}

/// The origin of a mount's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or directory of the host.
    Host(HostPath),
    /// A socket in the engine's virtual machine.
    Machine(MachinePath),
    /// An empty file system in memory.
    Tmpfs {
        /// The permissions of its root.
        mode: u32,
    },
    /// A volume of the engine, by name, which two containers on another machine share.
    Volume(String),
    /// A generated file. Only the native engine uses it, which needs no copy on the host.
    Text(String),
    /// A package cache of the host, and the directory of the layer over it. Only the native engine
    /// uses it.
    Cache {
        /// The cache, which is never written.
        host: HostPath,
        /// Contains `upper`, with what was added, and `work`.
        layer: HostPath,
    },
    /// A directory of the host under a layer, to which all changes go.
    Overlay {
        /// The directory, which is never written.
        host: HostPath,
        /// Contains `upper`, with what changed, and `work`.
        layer: HostPath,
    },
    /// A symbolic link to create. Only the native engine uses it, which assembles the root
    /// directory.
    Link(PathBuf),
}

/// A path that exists inside, and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Selects the content.
    pub source: Source,
    /// The path inside.
    pub target: GuestPath,
    /// Whether the guest may write.
    pub access: Access,
    /// Whether the mount point must be a directory or a file.
    pub is_directory: bool,
    /// Whether Podman relabels it for SELinux (R5.2).
    pub relabel: bool,
    /// Explains the mount.
    pub why: Why,
}

impl Mount {
    /// Mounts a directory of the host.
    pub fn directory(source: HostPath, target: GuestPath, access: Access, why: Why) -> Self {
        Mount { source: Source::Host(source), target, access, is_directory: true, relabel: false, why }
    }

    /// Mounts a file or socket of the host.
    pub fn file(source: HostPath, target: GuestPath, access: Access, why: Why) -> Self {
        Mount { is_directory: false, ..Self::directory(source, target, access, why) }
    }

    /// Mounts a socket of the engine's virtual machine.
    pub fn machine_socket(source: MachinePath, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Machine(source), target, access: Access::Rw, is_directory: false, relabel: false, why }
    }

    /// Mounts a volume of the engine, read-only.
    pub fn volume(name: String, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Volume(name), target, access: Access::Ro, is_directory: true, relabel: false, why }
    }

    /// Creates a symbolic link.
    pub fn link(to: PathBuf, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Link(to), target, access: Access::Ro, is_directory: false, relabel: false, why }
    }

    /// Mounts a generated file, read-only.
    pub fn text(content: String, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Text(content), target, access: Access::Ro, is_directory: false, relabel: false, why }
    }

    /// Mounts an empty file system in memory; `mode` is that of its root.
    pub fn tmpfs(target: GuestPath, mode: u32, why: Why) -> Self {
        Mount { source: Source::Tmpfs { mode }, target, access: Access::Rw, is_directory: true, relabel: false, why }
    }
}

/// The value of a variable, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableValue {
    /// The value may be printed.
    Plain(String),
    /// The value must not be printed.
    Secret(Secret),
}

/// An environment variable of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name of the variable.
    pub name: String,
    /// The value, which is redacted if it is secret.
    pub value: VariableValue,
    /// Explains the variable.
    pub why: Why,
}

/// Mounts by target. The first mount of a target wins, so higher layers are added first.
#[derive(Debug, Default)]
pub struct MountTable(BTreeMap<OsString, Mount>);

impl MountTable {
    /// Adds a mount unless its target is taken.
    pub fn add(&mut self, mount: Mount) {
        self.0.entry(mount.target.as_os_str().to_owned()).or_insert(mount);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.values()
    }

    pub fn retain(&mut self, keep: impl Fn(&Mount) -> bool) {
        self.0.retain(|_, mount| keep(mount));
    }

    /// Returns the mounts in the byte order of their targets, in which a directory precedes
    /// everything below it. Every engine makes them in this order.
    pub fn into_sorted(self) -> Vec<Mount> {
        self.0.into_values().collect()
    }
}

/// Variables by name. The first variable of a name wins.
#[derive(Debug, Default)]
pub struct VariableTable(Vec<Variable>);

impl VariableTable {
    /// Adds a variable that may be printed, unless its name is taken.
    pub fn plain(&mut self, name: &str, value: impl Into<String>, why: Why) {
        self.add(Variable { name: name.to_owned(), value: VariableValue::Plain(value.into()), why });
    }

    /// Adds a variable that must not be printed, unless its name is taken.
    pub fn secret(&mut self, name: &str, value: impl Into<OsString>, why: Why) {
        self.add(Variable { name: name.to_owned(), value: VariableValue::Secret(Secret::new(value)), why });
    }

    /// Returns the value of a variable that may be printed.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|variable| variable.name == name).and_then(|variable| match &variable.value {
            VariableValue::Plain(value) => Some(value.as_str()),
            VariableValue::Secret(_) => None,
        })
    }

    /// Sets a variable, replacing one of the same name. Returns the origin of the replaced one if
    /// its value differs.
    pub fn force(&mut self, name: &str, value: &str, why: Why) -> Option<Origin> {
        let claimed = self.0.iter().position(|other| other.name == name).map(|index| self.0.remove(index));
        self.plain(name, value, why);
        claimed.filter(|other| other.value != VariableValue::Plain(value.to_owned())).map(|other| other.why.from)
    }

    /// Sets a variable that must not be printed, replacing one of the same name.
    pub fn replace_by_secret(&mut self, name: &str, value: impl Into<OsString>, why: Why) {
        self.0.retain(|other| other.name != name);
        self.secret(name, value, why);
    }

    /// Returns the origin of a variable.
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.0.iter().find(|variable| variable.name == name).map(|variable| &variable.why.from)
    }

    /// Sets a variable, replacing a default of the same name. A variable that an option requested
    /// stays.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>, why: Why) {
        self.0.retain(|other| other.name != name || other.why.from != Origin::Default);
        self.plain(name, value, why);
    }

    /// Sets a variable that no option requested; returns whether it did.
    pub fn add_default(&mut self, name: &str, value: impl Into<String>, why: Why) -> bool {
        let is_free = self.origin(name).is_none();
        self.plain(name, value, why);
        is_free
    }

    fn add(&mut self, variable: Variable) {
        if !self.0.iter().any(|other| other.name == variable.name) {
            self.0.push(variable);
        }
    }

    /// Returns the variables sorted by name.
    pub fn into_sorted(mut self) -> Vec<Variable> {
        self.0.sort_by(|a, b| a.name.cmp(&b.name));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(…)");
    }
}
