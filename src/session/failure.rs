//! Decides whether a container's client reports the guest's end or a failed launch, and explains a
//! failed launch: the image, its architecture, the command, or the engine itself.

use super::end_calls::{CALL_TIMEOUT, EndCalls};
use crate::config::preset::Preset;
use crate::error::{Diagnostic, Error, Kind, Result};
use crate::facts::image::{self, Inspection};
use crate::host::Host;
use crate::launch::{CONTAINER_ID, ContainerLaunch};
use crate::path::HostPath;
use crate::plan::Plan;
use crate::process::status_file::CommandStatus;
use crate::process::{KILLED, Outcome};
use crate::ui::Ui;

/// Where users get help with images (R1.1).
pub const SUPPORT: &str = "https://github.com/vybestack/llxprt-code/discussions";

/// The exit code with which Docker's and Podman's clients report their own failure.
pub const CLIENT_FAILED: Outcome = Outcome::Exited(125);

/// The exit codes with which they report that no container was started.
const NOT_STARTED: [Outcome; 3] = [CLIENT_FAILED, Outcome::Exited(126), Outcome::Exited(127)];
/// Greater ones report a signal.
const MAX_CLIENT_CODE: u8 = 127;

/// Why a container did not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ContainerFailure {
    #[error("{engine} lost the sandbox: its client failed while the guest was running")]
    Lost { engine: &'static str },
    #[error("cannot start the sandbox")]
    NotStarted,
    #[error("the sandbox's machine does not answer any more")]
    MachineSilent,
    #[error("{engine} does not answer any more")]
    EngineSilent { engine: &'static str },
    #[error("{engine} could not start the sandbox; see its output above")]
    EngineFailed { engine: &'static str },
    #[error("{engine} at `{address}` does not answer")]
    RemoteSilent { engine: &'static str, address: String, message: String },
    #[error("{engine} could not start the sandbox on the other machine")]
    RemoteFailed { engine: &'static str, message: String },
    /// The hints name the image, what to check, and where to ask (R1).
    #[error("the sandbox image `{image}` is missing and could not be pulled")]
    ImageMissing { engine: &'static str, image: String, origin: String, is_local: bool },
    #[error("a mounted file or directory was replaced on the host while the sandbox started: see above")]
    MountReplaced,
    #[error("the image `{image}` is for {}, and this machine is {host}", describe_architecture(arch.as_deref()))]
    WrongArchitecture { engine: &'static str, image: String, arch: Option<String>, host: String },
}

fn describe_architecture(arch: Option<&str>) -> String {
    arch.map_or_else(|| "another architecture".into(), |arch| format!("the architecture {arch}"))
}

impl Diagnostic for ContainerFailure {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::RemoteSilent { message, .. } | Self::RemoteFailed { message, .. } if !message.is_empty() => {
                vec![message.clone()]
            }
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ContainerFailure::NotStarted => Vec::new(),
            ContainerFailure::RemoteSilent { .. } => {
                vec!["see whether that machine, its network and its daemon are up".into()]
            }
            ContainerFailure::RemoteFailed { .. } => {
                vec![
                    "the image needs `sh`, `head`, `mkdir`, `chmod`, `mv` and `uname`; `-v` shows the command line"
                        .into(),
                ]
            }
            ContainerFailure::MountReplaced => {
                vec!["another program or sandbox changes this path; the command was not started".into()]
            }
            ContainerFailure::Lost { .. } => {
                vec!["its daemon may have been stopped or restarted; the guest has ended too".into()]
            }
            ContainerFailure::MachineSilent => {
                vec!["check that it is running: `podman machine list`, `podman machine start`".into()]
            }
            ContainerFailure::EngineSilent { engine } => vec![format!("check that it is running: `{engine} info`")],
            ContainerFailure::EngineFailed { .. } => {
                vec!["`sandpen explain` shows the exact command line; so does `-v` at the launch".into()]
            }
            ContainerFailure::ImageMissing { engine, image, origin, is_local } => {
                let check = if *is_local {
                    "it is a local image, which is never pulled: build it first with `sandpen build`".into()
                } else {
                    format!(
                        "check the image's name ({origin}), your network connection and your login at its registry (`{engine} pull {image}`)"
                    )
                };
                vec![check, format!("if it should exist, ask at {SUPPORT}")]
            }
            ContainerFailure::WrongArchitecture { engine, image, host, .. } => vec![
                format!("pull the right one: `{engine} pull --platform linux/{host} {image}`"),
                "or install an emulator on the host: `apt-get install qemu-user-static binfmt-support`".into(),
            ],
        }
    }
}

/// Returns the guest's outcome, or the error of a failed launch.
pub fn check(
    host: &Host,
    plan: &Plan,
    launch: &ContainerLaunch,
    outcome: Outcome,
    status: Option<CommandStatus>,
    calls: &EndCalls,
    ui: Ui,
) -> Result<Outcome> {
    let is_code_lost = outcome == CLIENT_FAILED || (outcome == KILLED && calls.is_engine_silent());
    match status {
        // The client failed while the guest was running; the guest ends with its launcher.
        Some(status) if status.is_running() && outcome == CLIENT_FAILED => {
            Err(ContainerFailure::Lost { engine: plan.engine.kind.name() }.into())
        }
        // The guest had ended when the client failed or was killed: a daemon that is stopped ends
        // its containers first.
        Some(CommandStatus::Ended(code)) if is_code_lost => Ok(Outcome::Exited(code)),
        Some(CommandStatus::Starting | CommandStatus::Started | CommandStatus::Ended(_)) => Ok(outcome),
        Some(CommandStatus::OutOfMemory) => {
            explain_memory(plan, outcome, ui);
            Ok(outcome)
        }
        Some(CommandStatus::WrongArchitecture) => Err(wrong_architecture(host, plan, None).into()),
        Some(CommandStatus::MountReplaced) => Err(ContainerFailure::MountReplaced.into()),
        Some(status @ (CommandStatus::NotFound | CommandStatus::NotExecutable)) => {
            explain_command(plan, status, ui);
            Ok(outcome)
        }
        // The helper did not run, or there is none, so the client's exit code decides.
        None if NOT_STARTED.contains(&outcome) => Err(explain_launch(host, plan, launch, calls).into()),
        // Without a container no other code is the guest's either.
        None if matches!(outcome, Outcome::Exited(1..=MAX_CLIENT_CODE)) && !has_container(plan) => {
            Err(explain_launch(host, plan, launch, calls).into())
        }
        None => Ok(outcome),
    }
}

/// Returns whether the client has created the container.
pub fn has_container(plan: &Plan) -> bool {
    plan.session_dir.join(CONTAINER_ID).as_path().exists()
}

fn explain_launch(host: &Host, plan: &Plan, launch: &ContainerLaunch, calls: &EndCalls) -> ContainerFailure {
    let Some(image) = &plan.image else { return ContainerFailure::NotStarted };
    let engine = plan.engine.kind.name();
    let inspection = if calls.is_engine_silent() {
        Inspection::Silent
    } else {
        image::inspect_within(&launch.client, &image.reference, CALL_TIMEOUT)
    };
    match inspection {
        Inspection::Missing => ContainerFailure::ImageMissing {
            engine,
            image: image.reference.to_string(),
            origin: image.from.to_string(),
            is_local: image.reference.is_local(),
        },
        Inspection::Silent if launch.client.machine.is_some() => ContainerFailure::MachineSilent,
        Inspection::Silent => ContainerFailure::EngineSilent { engine },
        Inspection::Known(facts) if facts.arch.as_deref().is_some_and(|arch| arch != host.arch) => {
            wrong_architecture(host, plan, facts.arch)
        }
        Inspection::Known(_) => ContainerFailure::EngineFailed { engine },
    }
}

/// Explains why a container on another machine did not start; `message` is what the client said last.
pub fn explain_remote(host: &Host, plan: &Plan, launch: &ContainerLaunch, calls: &EndCalls, message: String) -> Error {
    match explain_launch(host, plan, launch, calls) {
        ContainerFailure::EngineFailed { engine } => ContainerFailure::RemoteFailed { engine, message }.into(),
        ContainerFailure::EngineSilent { engine } => {
            let address = plan.remote.as_ref().map_or_else(String::new, |remote| remote.address.clone());
            ContainerFailure::RemoteSilent { engine, address, message }.into()
        }
        failure => failure.into(),
    }
}

fn wrong_architecture(host: &Host, plan: &Plan, arch: Option<String>) -> ContainerFailure {
    ContainerFailure::WrongArchitecture {
        engine: plan.engine.kind.name(),
        image: plan.image.as_ref().map_or(String::new(), |image| image.reference.to_string()),
        arch,
        host: host.arch.to_string(),
    }
}

/// Explains an exit code 137 for which the kernel is the reason.
pub fn explain_memory(plan: &Plan, outcome: Outcome, ui: Ui) {
    if outcome.exit_code() != KILLED.exit_code() {
        return;
    }
    ui.notice(&match &plan.limits.memory {
        Some(memory) => format!(
            "killed for using more memory than its limit of {} ({}); raise it with `--memory`",
            memory.value, memory.origin
        ),
        None => "killed by the kernel, because the machine ran out of memory".into(),
    });
}

/// Explains the exit codes 126 and 127, which are otherwise the guest's.
pub fn explain_command(plan: &Plan, status: CommandStatus, ui: Ui) {
    let command = plan.command.first().map_or("sh".into(), |name| name.display().to_string());
    let image = plan.image.as_ref().map_or(String::new(), |image| format!(" in the image `{}`", image.reference));
    if status == CommandStatus::NotExecutable {
        ui.notice(&format!("`{command}` cannot be executed{image}: check its permissions"));
        return;
    }
    let on_host = plan.program.clone().or_else(|| {
        let path = HostPath::new(&command).ok()?;
        path.as_path().exists().then_some(path)
    });
    if let (Some(file), None) = (&on_host, &plan.image) {
        // exec reports a missing interpreter like a missing program.
        ui.notice(&format!("`{file}` exists on the host, but it or its interpreter is not visible inside"));
        ui.notice(&format!("`sandpen explain --why {0}` tells why; `--mount {0}` mounts it read-only", file));
        return;
    }
    ui.notice(&format!("`{command}` was not found{image}"));
    if let Some(file) = &on_host {
        ui.notice(&format!("`{file}` exists on the host, but a container has the programs of its image"));
    } else if plan.image.is_none() {
        ui.notice("this engine runs the host's programs: install it, check the spelling, or pass `--image` with an image that has it");
    } else if Preset::dockerfile(&command).is_some() {
        ui.notice(&format!(
            "build an image that has it: `sandpen build --agent {command}`, then run with `--image {}`",
            Preset::image(&command)
        ));
    } else {
        ui.notice("pass `--image` with an image that has it, or check the spelling");
    }
}
