//! Lists decisions that are neither a mount nor a variable, each with value, reason and origin, for
//! `explain`.

use serde::Serialize;

use super::engine::EnginePlan;
use super::{CONTROL_DIR, HelperConfig, NestedPlan, PACKAGE_INDEX_PORT};
use crate::config::value::EngineKind;
use crate::config::{Config, Origin, Sourced};

/// A decision that is neither a mount nor a variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// Names the subject, for example `terminal` or `pids`.
    pub name: &'static str,
    /// Shows the result for people.
    pub value: String,
    /// Tells the user why.
    pub reason: String,
    /// The layer that set the option.
    pub from: Origin,
}

struct Details(Vec<Detail>);

impl Details {
    fn add(&mut self, name: &'static str, value: impl Into<String>, reason: &str, from: &Origin) {
        self.0.push(Detail { name, value: value.into(), reason: reason.to_owned(), from: from.clone() });
    }

    fn add_default(&mut self, name: &'static str, value: impl Into<String>, reason: &str) {
        self.add(name, value, reason, &Origin::Default);
    }
}

pub fn details(
    config: &Config,
    engine: &EnginePlan,
    nested: &NestedPlan,
    helper_config: &HelperConfig,
    terminal: bool,
    has_helper: bool,
) -> Vec<Detail> {
    let mut details = Details(Vec::new());
    process(engine, terminal, has_helper, &mut details);
    limits(config, engine, &mut details);
    if let NestedPlan::Allowed { reason, from } = nested {
        details.add("nested", "allowed", reason, from);
    }
    if let Some(name) = &config.name {
        details.add("name", name.value.to_string(), "the id for ps, exec and stop", &name.origin);
    }
    if let (Some(keep), true) = (&config.keep, engine.kind.is_container()) {
        let reason = "the container and its files are kept after it exits, until `sandpen prune`";
        details.add("keep", "yes", reason, &keep.origin);
    }
    for port in &config.ports {
        // Native and Seatbelt share the host's network, where the port is not restricted to
        // 127.0.0.1.
        let (address, reason) = if engine.kind.is_container() {
            ("127.0.0.1:", "published; the guest may listen on its loopback or on all addresses")
        } else {
            ("", "the host's network is shared: the guest listens on the host's addresses")
        };
        details.add("port", format!("{address}{}", port.value), reason, &port.origin);
    }
    for path in &helper_config.append_path {
        let reason = if path.starts_with(CONTROL_DIR) {
            "Git's remote helper of --push, appended inside"
        } else {
            "a directory of the workspace on the host's PATH, appended inside"
        };
        details.add_default("PATH", path, reason);
    }
    for path in &helper_config.append_python_path {
        let reason = "a directory of the workspace on the host's PYTHONPATH, appended inside";
        details.add_default("PYTHONPATH", path, reason);
    }
    if let Some(index) = &helper_config.package_index {
        let reason = format!("pip's index on port {PACKAGE_INDEX_PORT} inside, because the sandbox has no network");
        details.add_default("package index", &index.directory, &reason);
    }
    if let Some(file) = &helper_config.startup {
        details.add_default("startup", file, "sourced by a shell inside before the command starts");
    }
    if engine.kind == EngineKind::Podman && engine.abilities.needs_empty_auth {
        let reason = "you have no Podman logins; without it Podman asks Docker's credential helpers, which may hang";
        details.add_default("authfile", "empty", reason);
    }
    for Sourced { value, origin } in &config.engine_flags {
        details.add("engine flag", value, "passed to the engine after sandpen's flags", origin);
    }
    details.0
}

fn process(engine: &EnginePlan, terminal: bool, has_helper: bool, details: &mut Details) {
    let tty = if terminal { "yes" } else { "no" };
    details.add_default("terminal", tty, "allocated only if stdin and stdout are both terminals");
    details.add_default("stdin", "passed through", "the guest reads sandpen's stdin unchanged");
    let init = match (engine.kind, has_helper) {
        (EngineKind::Docker | EngineKind::Podman, false) => "the engine's --init",
        _ => "sandpen",
    };
    details.add_default("init", init, "reaps processes and forwards signals");
    let exit = "128 + n if signal n killed it; 44 if the sandbox could not be started";
    details.add_default("exit code", "the command's", exit);
}

fn limits(config: &Config, engine: &EnginePlan, details: &mut Details) {
    let unlimited = "no limit by default";
    match &config.cpus {
        Some(cpus) => details.add("cpus", cpus.value.to_string(), "requested", &cpus.origin),
        None => details.add_default("cpus", "unlimited", unlimited),
    }
    match &config.memory {
        Some(memory) => details.add("memory", memory.value.to_string(), "requested", &memory.origin),
        None => details.add_default("memory", "unlimited", unlimited),
    }
    if engine.kind == EngineKind::Native {
        let (bound, origin) = match &config.memory {
            Some(memory) => (memory.value.to_string(), &memory.origin),
            None => ("half of the machine's memory".to_owned(), &Origin::Default),
        };
        let reason = "/tmp, /dev/shm and all other directories in memory share this space and its inodes";
        details.add("memory files", bound, reason, origin);
    }
    let is_asked = config.pids.is_asked_for();
    if engine.kind == EngineKind::SandboxExec && !is_asked {
        details.add_default("pids", "unlimited", "Seatbelt has no limits");
    } else if engine.abilities.skips_default_pids && !is_asked {
        let reason = "root's processes are limited only with --pids here: joining a cgroup of version 1 is slow";
        details.add_default("pids", "unlimited", reason);
    } else {
        let reason = if is_asked { "requested" } else { "enough for a parallel build, and stops a fork bomb" };
        details.add("pids", config.pids.value.to_string(), reason, &config.pids.origin);
    }
}
