//! The entries of a plan: mounts and variables. None can be made without a reason and an origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::Origin;
use crate::config::value::Access;
use crate::path::{GuestPath, HostPath, MachinePath};
use crate::secret::Secret;

/// What an entry is about: `explain` groups by it, and knows the option that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// The sandbox's own: its helper, its accounts, its name.
    Sandbox,
    /// The workspace.
    Workspace,
    /// What must not be changed in the workspace.
    Guard,
    /// The guest's home.
    Home,
    /// Temporary files.
    Temp,
    /// What the user asked for.
    Asked,
    /// What an agent's preset exposes.
    Preset,
    /// The host's programs and settings, for its own tools.
    System,
    /// Git's configuration.
    Git,
    /// The SSH agent.
    Ssh,
    /// The way to the network.
    Network,
}

/// Why an entry is in the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// What it is about.
    pub topic: Topic,
    /// A phrase for the user.
    pub reason: String,
    /// The layer that asked for it.
    pub from: Origin,
    /// The requirement it fulfils.
    pub requirement: Option<&'static str>,
}

impl Why {
    /// A reason and an origin.
    pub fn new(reason: impl Into<String>, from: Origin) -> Self {
        let topic = if matches!(from, Origin::Preset(_)) { Topic::Preset } else { Topic::Sandbox };
        Why { topic, reason: reason.into(), from, requirement: None }
    }

    /// What it is about.
    #[must_use]
    pub fn about(self, topic: Topic) -> Self {
        Why { topic, ..self }
    }

    /// What sandpen does unasked.
    pub fn default(reason: impl Into<String>) -> Self {
        Self::new(reason, Origin::Default)
    }

    /// Fulfils a requirement of the seeds.
    #[must_use]
    pub fn requirement(mut self, number: &'static str) -> Self {
        self.requirement = Some(number);
        self
    }
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or directory of the host.
    Host(HostPath),
    /// A socket in the engine's virtual machine.
    Machine(MachinePath),
    /// An empty memory file system.
    Tmpfs {
        /// The permissions of its root.
        mode: u32,
    },
    /// A volume of the engine's, by name; where two containers meet that share nothing with this machine.
    Volume(String),
    /// A generated file; for the native engine, which needs no copy of it on the host.
    Text(String),
    /// A symbolic link, made anew; for the native engine, whose root is put together from parts.
    Link(PathBuf),
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// What.
    pub source: Source,
    /// Where.
    pub target: GuestPath,
    /// Whether the guest may write.
    pub access: Access,
    /// Whether the target is a directory, so that a mount point of the right kind can be made.
    pub is_directory: bool,
    /// R5.2: relabelled for SELinux on Podman.
    pub relabel: bool,
    /// Why.
    pub why: Why,
}

impl Mount {
    /// A directory of the host.
    pub fn directory(source: HostPath, target: GuestPath, access: Access, why: Why) -> Self {
        Mount { source: Source::Host(source), target, access, is_directory: true, relabel: false, why }
    }

    /// A file (or socket) of the host.
    pub fn file(source: HostPath, target: GuestPath, access: Access, why: Why) -> Self {
        Mount { is_directory: false, ..Self::directory(source, target, access, why) }
    }

    /// Mounts a socket of the engine's virtual machine.
    pub fn machine_socket(source: MachinePath, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Machine(source), target, access: Access::Rw, is_directory: false, relabel: false, why }
    }

    /// A volume of the engine's, which the guest cannot write to.
    pub fn volume(name: String, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Volume(name), target, access: Access::Ro, is_directory: true, relabel: false, why }
    }

    /// A symbolic link.
    pub fn link(to: PathBuf, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Link(to), target, access: Access::Ro, is_directory: false, relabel: false, why }
    }

    /// A generated file.
    pub fn text(content: String, target: GuestPath, why: Why) -> Self {
        Mount { source: Source::Text(content), target, access: Access::Ro, is_directory: false, relabel: false, why }
    }

    /// A private memory file system.
    pub fn tmpfs(target: GuestPath, mode: u32, why: Why) -> Self {
        Mount { source: Source::Tmpfs { mode }, target, access: Access::Rw, is_directory: true, relabel: false, why }
    }
}

/// A variable's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableValue {
    /// May be shown.
    Plain(String),
    /// Must not be shown.
    Secret(Secret),
}

/// One variable inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: VariableValue,
    /// Why.
    pub why: Why,
}

/// Mounts by target: the first to claim a target keeps it, so higher layers are added first.
#[derive(Debug, Default)]
pub struct MountTable(BTreeMap<OsString, Mount>);

impl MountTable {
    /// Adds a mount unless its target is taken.
    pub fn add(&mut self, mount: Mount) {
        self.0.entry(mount.target.as_os_str().to_owned()).or_insert(mount);
    }

    /// The mounts so far.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.values()
    }

    /// Drops those that this engine has no use for.
    pub fn retain(&mut self, keep: impl Fn(&Mount) -> bool) {
        self.0.retain(|_, mount| keep(mount));
    }

    /// The mounts in the order in which they are made: a directory before what lies below it.
    ///
    /// The order is the byte order of the targets, in which a parent always precedes its children. Every engine keeps it.
    pub fn into_sorted(self) -> Vec<Mount> {
        self.0.into_values().collect()
    }
}

/// Variables by name: the first to claim a name keeps it.
#[derive(Debug, Default)]
pub struct VariableTable(Vec<Variable>);

impl VariableTable {
    /// Adds a variable that may be shown, unless its name is taken.
    pub fn plain(&mut self, name: &str, value: impl Into<String>, why: Why) {
        self.add(Variable { name: name.to_owned(), value: VariableValue::Plain(value.into()), why });
    }

    /// Adds a variable that must not be shown.
    pub fn secret(&mut self, name: &str, value: impl Into<OsString>, why: Why) {
        self.add(Variable { name: name.to_owned(), value: VariableValue::Secret(Secret::new(value)), why });
    }

    /// The value of a variable that may be shown.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|variable| variable.name == name).and_then(|variable| match &variable.value {
            VariableValue::Plain(value) => Some(value.as_str()),
            VariableValue::Secret(_) => None,
        })
    }

    /// Adds a variable that may be shown, whoever claimed its name before. Tells who did, if the value was another.
    pub fn force(&mut self, name: &str, value: &str, why: Why) -> Option<Origin> {
        let claimed = self.0.iter().position(|other| other.name == name).map(|index| self.0.remove(index));
        self.plain(name, value, why);
        claimed.filter(|other| other.value != VariableValue::Plain(value.to_owned())).map(|other| other.why.from)
    }

    /// Adds a variable that may be shown, also where sandpen itself set it before; what was asked for stays.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>, why: Why) {
        self.0.retain(|other| other.name != name || other.why.from != Origin::Default);
        self.plain(name, value, why);
    }

    fn add(&mut self, variable: Variable) {
        if !self.0.iter().any(|other| other.name == variable.name) {
            self.0.push(variable);
        }
    }

    /// The variables in the order of their names.
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
