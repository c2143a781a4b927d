//! Decides whether programs inside may make sandboxes of their own: user namespaces, and mounts in
//! them.

use std::ffi::OsString;

use super::{Inputs, Request};
use crate::config::Origin;
use crate::config::value::{EngineKind, NestedMode, UserMode};
use crate::facts::DockerFacts;
use crate::host::Platform;
use crate::warning::{Warning, WarningTopic};

/// Browsers that refuse to start without a sandbox, and bubblewrap itself.
const PROGRAMS: [&str; 9] = [
    "bwrap",
    "chromium",
    "chromium-browser",
    "chrome",
    "google-chrome",
    "google-chrome-stable",
    "brave-browser",
    "microsoft-edge",
    "electron",
];
/// Turns the browsers' own sandbox off.
const NO_SANDBOX: &str = "--no-sandbox";

/// Whether programs inside may make sandboxes of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NestedPlan {
    /// No program may.
    Denied,
    /// Every program may.
    Allowed {
        /// Tells the user why.
        reason: String,
        /// The layer that decided it.
        from: Origin,
    },
    /// It was asked for, and this engine cannot allow it.
    Unavailable {
        /// The option that asked for it.
        from: Origin,
        /// Tells the user why.
        reason: &'static str,
    },
}

impl NestedPlan {
    /// Whether programs inside may make sandboxes of their own.
    pub fn is_allowed(&self) -> bool {
        matches!(self, NestedPlan::Allowed { .. })
    }
}

/// A program that is known to make a sandbox of its own.
struct KnownProgram {
    name: String,
    from: Origin,
    /// Arguments that turn its sandbox off.
    sandbox_off: Vec<String>,
}

pub fn plan(inputs: Inputs, request: &Request, engine: EngineKind, warnings: &mut Vec<Warning>) -> NestedPlan {
    let setting = &inputs.config.nested;
    let known = known_program(inputs, &request.command);
    let denied = unavailable(inputs, engine);
    match (setting.value, denied, known) {
        (NestedMode::Off, ..) | (NestedMode::Auto, _, None) => NestedPlan::Denied,
        (NestedMode::On, Some(reason), _) => NestedPlan::Unavailable { from: setting.origin.clone(), reason },
        (NestedMode::On, None, _) => NestedPlan::Allowed { reason: "requested".into(), from: setting.origin.clone() },
        (NestedMode::Auto, Some(reason), Some(known)) => {
            if let Some(flag) = known.sandbox_off.first() {
                let name = known.name;
                let text = format!("{name}'s own sandbox does not work here ({reason}); turn it off with `{flag}`");
                warnings.push(Warning::new(WarningTopic::Preset, text));
            }
            NestedPlan::Denied
        }
        (NestedMode::Auto, None, Some(known)) => {
            NestedPlan::Allowed { reason: format!("{} makes a sandbox of its own", known.name), from: known.from }
        }
    }
}

/// Returns the program, unless its own sandbox is turned off on the command line.
fn known_program(inputs: Inputs, command: &[OsString]) -> Option<KnownProgram> {
    let known = match inputs.preset {
        Some(preset) if preset.nested => KnownProgram {
            name: preset.name.clone(),
            from: Origin::Preset(preset.name.clone()),
            sandbox_off: preset.sandbox_off.clone(),
        },
        _ => {
            let word = command.first()?.to_str()?;
            let name = word.rsplit('/').next().unwrap_or(word);
            let name = PROGRAMS.iter().find(|known| **known == name)?;
            let sandbox_off = if *name == "bwrap" { Vec::new() } else { vec![NO_SANDBOX.to_owned()] };
            KnownProgram { name: (*name).to_owned(), from: Origin::Default, sandbox_off }
        }
    };
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let is_given = |off: &String| {
        let off: Vec<&str> = off.split(' ').collect();
        words.windows(off.len()).any(|window| window == off) || words.contains(&off.join("=").into())
    };
    (!known.sandbox_off.iter().any(is_given)).then_some(known)
}

/// Tells why an engine cannot allow it.
fn unavailable(inputs: Inputs, engine: EngineKind) -> Option<&'static str> {
    match engine {
        // The guest of root has uid 0 of the host. A namespace in which it is root could give files
        // capabilities that count on the host, so the kernel refuses to map uid 0 for it.
        EngineKind::Native if inputs.host.uid == 0 => {
            Some("the kernel denies it to root's sandbox; run sandpen as an ordinary user")
        }
        EngineKind::Native => None,
        EngineKind::Docker => unavailable_in_docker(inputs),
        EngineKind::Podman => unavailable_in_podman(inputs),
        EngineKind::Kubernetes => Some("pods have no user namespaces of their own"),
        EngineKind::SandboxExec => Some("macOS denies a sandbox within a sandbox"),
    }
}

/// Podman permits user namespaces. Only a guest who is an ordinary user of the host may see the parts
/// of /proc that Podman masks: they belong to the host's root, who could write some of them.
fn unavailable_in_podman(inputs: Inputs) -> Option<&'static str> {
    if inputs.facts.podman.as_ref().is_none_or(|podman| podman.remote) {
        Some("Podman runs on another machine, whose kernel settings are unknown")
    } else {
        unavailable_to_user(inputs)
    }
}

/// Docker's seccomp profile can be replaced, if the engine is on this machine.
fn unavailable_in_docker(inputs: Inputs) -> Option<&'static str> {
    let docker = inputs.facts.docker.as_ref();
    let is_elsewhere = |docker: &DockerFacts| docker.remote || docker.is_desktop() || docker.provider().is_some();
    if inputs.host.platform != Platform::Linux || docker.is_none_or(is_elsewhere) {
        Some("Docker runs on another machine, whose kernel settings are unknown")
    } else if docker.is_some_and(|docker| docker.rootless) {
        Some("the guest is root of rootless Docker's namespace, and the kernel maps root to no other one")
    } else if inputs.facts.apparmor {
        Some("AppArmor's profile for Docker denies mounts")
    } else if inputs.facts.helper.is_none() {
        Some("without the guest helper no filter replaces Docker's")
    } else {
        unavailable_to_user(inputs)
    }
}

/// The parts of /proc that engines cover must be visible, and belong to root.
fn unavailable_to_user(inputs: Inputs) -> Option<&'static str> {
    if inputs.host.uid == 0 {
        Some("root's containers must not see all of /proc; run sandpen as an ordinary user")
    } else if inputs.config.user.value == UserMode::Image {
        Some("the image's user may be root, who must not see all of /proc")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::PROGRAMS;

    #[test]
    fn programs_are_named_without_a_directory() {
        assert!(PROGRAMS.iter().all(|name| !name.contains('/')));
    }
}
