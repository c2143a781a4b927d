//! Decisions that are neither a mount nor a variable: each with its value, reason and origin, for `explain`.

use serde::Serialize;

use super::engine::EnginePlan;
use crate::config::value::EngineKind;
use crate::config::{Config, Origin, Sourced};
use crate::plan::HelperConfig;

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// What it is about.
    pub name: &'static str,
    /// What was decided.
    pub value: String,
    /// Why.
    pub reason: String,
    /// Who asked.
    pub from: Origin,
}

/// Collects them.
pub fn details(
    config: &Config,
    engine: &EnginePlan,
    helper_config: &HelperConfig,
    terminal: bool,
    has_helper: bool,
) -> Vec<Detail> {
    let mut details = Vec::new();
    let mut add = |name, value: String, reason: &str, from: &Origin| {
        details.push(Detail { name, value, reason: reason.to_owned(), from: from.clone() });
    };
    let default = &Origin::Default;
    let tty = if terminal { "yes" } else { "no" };
    add("terminal", tty.into(), "given to the guest only when stdin and stdout both are terminals", default);
    add("stdin", "handed over".into(), "the guest reads what sandpen's stdin gives, byte by byte", default);
    let init = match (engine.kind, has_helper) {
        (EngineKind::Docker | EngineKind::Podman, false) => "the engine's --init",
        _ => "sandpen's own",
    };
    add("init", init.into(), "reaps processes and forwards signals", default);
    let exit = "128 + n when signal n ended it; 44 when the sandbox could not be started";
    add("exit code", "the command's own".into(), exit, default);
    let unlimited = "not limited unless asked for";
    match &config.cpus {
        Some(cpus) => add("cpus", cpus.value.to_string(), "asked for", &cpus.origin),
        None => add("cpus", "unlimited".into(), unlimited, default),
    }
    match &config.memory {
        Some(memory) => add("memory", memory.value.to_string(), "asked for", &memory.origin),
        None => add("memory", "unlimited".into(), unlimited, default),
    }
    if engine.kind == EngineKind::SandboxExec && !config.pids.is_asked_for() {
        add("pids", "unlimited".into(), "Seatbelt has no limits", default);
    } else if engine.abilities.skips_default_pids && !config.pids.is_asked_for() {
        let reason = "root's processes are limited only when asked for here (--pids): joining a control group of version 1 is slow";
        add("pids", "unlimited".into(), reason, default);
    } else {
        let asked = config.pids.is_asked_for();
        let reason = if asked { "asked for" } else { "enough for a parallel build, an end for a fork bomb" };
        add("pids", config.pids.value.to_string(), reason, &config.pids.origin);
    }
    if let Some(name) = &config.name {
        add("name", name.value.to_string(), "its id for ps, exec and stop", &name.origin);
    }
    if let (Some(keep), true) = (&config.keep, engine.kind.is_container()) {
        let reason = "the container and its files stay after the end, until `sandpen prune`";
        add("keep", "yes".into(), reason, &keep.origin);
    }
    for port in &config.ports {
        // Native and Seatbelt share the host's network: there is nothing to publish, and nothing that keeps the port to 127.0.0.1.
        let (place, reason) = match engine.kind.is_container() {
            true => ("127.0.0.1:", "published: reaches a guest on its loopback or on all addresses"),
            false => ("", "the host's network is shared: the guest listens on the host's own addresses"),
        };
        add("port", format!("{place}{}", port.value), reason, &port.origin);
    }
    for path in &helper_config.append_path {
        add("PATH", path.clone(), "a part of the host's PATH that lies in the workspace, appended inside", default);
    }
    for path in &helper_config.append_python_path {
        add(
            "PYTHONPATH",
            path.clone(),
            "a part of the host's PYTHONPATH that lies in the workspace, appended inside",
            default,
        );
    }
    if let Some(file) = &helper_config.startup {
        add("startup", file.clone(), "read by a shell inside before the command starts", default);
    }
    if engine.kind == EngineKind::Podman && engine.abilities.needs_empty_auth {
        add(
            "authfile",
            "empty".into(),
            "you have no Podman logins; without it Podman asks Docker's credential helpers, which may hang",
            default,
        );
    }
    for Sourced { value, origin } in &config.engine_flags {
        add("engine flag", value.clone(), "passed to the engine after sandpen's own", origin);
    }
    details
}
