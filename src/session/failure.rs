//! Looks closer when a launch failed, and says what was wrong: the image, its architecture, the command, or the engine itself.

use crate::error::{Error, Result};
use crate::facts::image::{self, Inspection};
use crate::host::Host;
use crate::launch::ContainerLaunch;
use crate::plan::{ImagePlan, Plan};
use crate::process::Outcome;
use crate::process::status_file::Report;
use crate::ui::Ui;

/// R1.1: where users get help with images.
pub const SUPPORT: &str = "https://github.com/vybestack/llxprt-code/discussions";

/// The exit codes with which Docker and Podman say that they themselves failed, or could not start the first process.
const ENGINE_FAILED: [Outcome; 3] = [Outcome::Exited(125), Outcome::Exited(126), Outcome::Exited(127)];

/// The engine's own failure, when the guest has not ended with this code.
const CLIENT_FAILED: Outcome = Outcome::Exited(125);

/// Decides between the guest's own end and a failed launch.
pub fn judge(
    host: &Host,
    plan: &Plan,
    launch: &ContainerLaunch,
    outcome: Outcome,
    report: Option<Report>,
    ui: Ui,
) -> Result<Outcome> {
    match report {
        // The client failed while the guest ran on, which ends now, with its launcher.
        Some(Report::Started) if outcome == CLIENT_FAILED => Err(lost(plan)),
        // The guest had ended when the client failed: a daemon that stops ends its containers first.
        Some(Report::Ended(code)) if outcome == CLIENT_FAILED => Ok(Outcome::Exited(code)),
        Some(Report::Started | Report::Ended(_)) => Ok(outcome),
        Some(Report::OutOfMemory) => {
            explain_memory(plan, outcome, ui);
            Ok(outcome)
        }
        Some(Report::WrongArchitecture) => Err(wrong_architecture(host, plan, None)),
        Some(report @ (Report::NotFound | Report::NotExecutable)) => {
            explain_command(plan, report, ui);
            Ok(outcome)
        }
        // Nothing inside reported: the helper never ran (or there is none), so the engine's word counts.
        None if ENGINE_FAILED.contains(&outcome) => Err(launch_failed(host, plan, launch)),
        None => Ok(outcome),
    }
}

/// The engine's program vanished or cannot be executed.
pub fn client_missing(plan: &Plan, error: &std::io::Error) -> Error {
    Error::launch(format!("the engine's program `{}` cannot be started", plan.engine.kind.name())).cause(error)
}

fn lost(plan: &Plan) -> Error {
    let engine = plan.engine.kind.name();
    Error::launch(format!("{engine} lost the sandbox: its client failed while the guest was running"))
        .hint("its daemon may have been stopped or restarted; the guest has ended too")
}

fn launch_failed(host: &Host, plan: &Plan, launch: &ContainerLaunch) -> Error {
    let Some(image) = &plan.image else { return Error::launch("the sandbox could not be started") };
    match image::inspect(&launch.client, &image.reference) {
        Inspection::Missing => image_missing(plan, image),
        Inspection::Silent => Error::launch("the machine of the sandbox does not answer any more")
            .hint("check that it runs: `podman machine list`, `podman machine start`"),
        Inspection::Known(facts) if facts.arch.as_deref().is_some_and(|arch| arch != host.arch) => {
            wrong_architecture(host, plan, facts.arch)
        }
        Inspection::Known(_) => {
            Error::launch(format!("{} could not start the sandbox; its own words are above", plan.engine.kind.name()))
                .hint("`sandpen explain` shows the exact command line; `-v` shows it at the launch")
        }
    }
}

/// R1: the image's name, what to check, and where to ask; no other project's contact.
fn image_missing(plan: &Plan, image: &ImagePlan) -> Error {
    let error = Error::launch(format!("the sandbox image `{}` is missing and could not be pulled", image.reference));
    let error = match image.reference.is_local() {
        true => error.hint("it is an image of this machine and is never pulled: build it first, with `sandpen build`"),
        false => error.hint(format!(
            "check the image's name ({}), your network connection and your login at its registry (`{} pull {}`)",
            image.from,
            plan.engine.kind.name(),
            image.reference
        )),
    };
    error.hint(format!("if it should be there, ask at {SUPPORT}"))
}

fn wrong_architecture(host: &Host, plan: &Plan, arch: Option<String>) -> Error {
    let name = plan.image.as_ref().map_or(String::new(), |image| image.reference.to_string());
    let arch = arch.map_or("another architecture".to_owned(), |arch| format!("the architecture {arch}"));
    Error::launch(format!("the image `{name}` is for {arch}, and this machine is {}", host.arch))
        .hint(format!("pull the right one: `{} pull --platform linux/{} {name}`", plan.engine.kind.name(), host.arch))
        .hint("or install an emulator on the host: `apt-get install qemu-user-static binfmt-support`")
}

/// A 137 that nobody sent: the kernel killed for want of memory.
pub fn explain_memory(plan: &Plan, outcome: Outcome, ui: Ui) {
    if outcome.exit_code() != 137 {
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

/// 126 and 127 are the guest's own codes; what they mean here is said once.
pub fn explain_command(plan: &Plan, report: Report, ui: Ui) {
    let command = plan.command.first().map_or("sh".into(), |name| name.display().to_string());
    let image = plan.image.as_ref().map_or(String::new(), |image| format!(" in the image `{}`", image.reference));
    if report == Report::NotExecutable {
        ui.notice(&format!("`{command}` cannot be executed{image}: check its permissions"));
        return;
    }
    ui.notice(&format!("`{command}` was not found{image}"));
    if plan.image.is_none() {
        ui.notice("this engine shows the host's own programs: install it, check the spelling, or name an image that has it with `--image`");
        return;
    }
    match crate::config::preset::Preset::dockerfile(&command) {
        Some(_) => ui.notice(&format!(
            "build an image that has it: `sandpen build --agent {command}`, then run with `--image {}`",
            crate::config::preset::agent_image(&command)
        )),
        None => ui.notice("name an image that has it with `--image`, or check the spelling"),
    }
}
