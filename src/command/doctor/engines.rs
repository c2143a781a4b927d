//! The engines: each of them, and whether the one that `run` would choose can do what is asked for.

use crate::command::doctor::report::{Check, Group, State, in_a_line};
use crate::command::doctor::{DoctorInput, Planned};
use crate::error::Error;
use crate::facts::engines::checkup::About;
use crate::facts::image::Inspection;
use crate::facts::{DockerFacts, PodmanFacts, Reach};
use crate::host::Platform;
use crate::plan::EngineKind;
use crate::plan::engine::{docker_problem, podman_problem};
use crate::warning::WarningTopic;

/// Rootless Podman learnt then to keep the user's ids under other numbers.
const KEEP_ID: (u32, u32) = (4, 3);

/// The first line of all says why.
const UNUSABLE: &str = "chosen, and cannot be used: see above";

impl DoctorInput<'_> {
    /// What `run` would do, and whether the chosen engine can.
    pub(super) fn sandbox(&self, planned: &Planned) -> Vec<Check> {
        let plan = &planned.plan;
        let kind = plan.engine.kind;
        let mut checks = vec![match self.obstacle(planned) {
            Some((error, fix)) => {
                let check = Check::of(Group::Sandbox, State::Problem, "engine", &error);
                Check { text: format!("{}: {}", kind.name(), check.text), fix: fix.or(check.fix), ..check }
            }
            None => {
                let text = format!("{}: {} ({})", kind.name(), plan.engine.reason, plan.engine.from);
                Check::new(Group::Sandbox, State::Ok, "engine", text)
            }
        }];
        checks.extend(self.image(planned));
        checks.extend(self.limits(planned));
        for downgrade in planned.launch.downgrades() {
            let text = format!("{}: {}, because {}", downgrade.asked, downgrade.got, downgrade.reason);
            checks.push(Check::new(Group::Sandbox, State::Warning, "not enforced", text));
        }
        for warning in &plan.warnings {
            // The sections on SSH and on configuration files have lines of their own for these.
            if !matches!(warning.topic, WarningTopic::ConfigFile | WarningTopic::SshAgent) {
                checks.push(Check::new(Group::Sandbox, State::Warning, "options", &warning.text));
            }
        }
        checks
    }

    /// Why the chosen engine cannot run, and the command that helps.
    fn obstacle(&self, planned: &Planned) -> Option<(Error, Option<String>)> {
        let engine = &planned.plan.engine;
        if let Some(problem) = &engine.problem {
            // Where none answers, any of them would do, and the error names them all.
            let named = engine.from != crate::config::Origin::Default;
            return Some((problem.clone(), named.then(|| self.fix(engine.kind)).flatten()));
        }
        let silent = |says: &Option<Result<About, String>>| {
            let error = says.as_ref()?.as_ref().err()?;
            Some((Error::launch("it cannot be used").cause(error), self.fix(engine.kind)))
        };
        match engine.kind {
            EngineKind::Docker => silent(&self.checkup.docker_says),
            EngineKind::Podman => silent(&self.checkup.podman_says).or_else(|| Some((self.old_podman()?, None))),
            EngineKind::Native => self.checkup.kernel.problem.clone().map(|problem| (problem, None)),
            EngineKind::SandboxExec => None,
        }
    }

    fn old_podman(&self) -> Option<Error> {
        let about = self.checkup.podman_says.as_ref()?.as_ref().ok()?;
        let text = format!("rootless Podman {} cannot give the guest your user id (4.3 can)", about.version);
        (about.rootless && about.is_before(KEEP_ID)).then(|| Error::launch(text).hint("upgrade Podman to 4.3 or newer"))
    }

    fn about(&self, kind: EngineKind) -> Option<&About> {
        let says = match kind {
            EngineKind::Docker => &self.checkup.docker_says,
            EngineKind::Podman => &self.checkup.podman_says,
            EngineKind::Native | EngineKind::SandboxExec => return None,
        };
        says.as_ref()?.as_ref().ok()
    }

    fn image(&self, planned: &Planned) -> Option<Check> {
        let (image, found) = (planned.plan.image.as_ref()?, planned.image.as_ref()?);
        let (engine, name) = (planned.plan.engine.kind, &image.reference);
        let check = |state, text: String| Check::new(Group::Sandbox, state, "image", text);
        Some(match found {
            Inspection::Silent => {
                check(State::Problem, format!("{name}: {} does not say whether it has it", engine.name()))
            }
            Inspection::Missing if planned.config.build.is_some() => {
                check(State::Note, format!("{name}: built before the first run"))
            }
            Inspection::Missing if name.is_local() => {
                let agent = name.as_str().strip_prefix("localhost/sandpen/").filter(|rest| !rest.contains('/'));
                let check = check(
                    State::Problem,
                    format!("{name}: {} does not have it, and it is never pulled", engine.name()),
                );
                match agent {
                    Some(agent) => check.fix(format!("sandpen build --agent {agent}")),
                    None => check.fix(format!("sandpen build -f FILE -t {name}")),
                }
            }
            Inspection::Missing => check(State::Note, format!("{name}: not here yet, the first run pulls it"))
                .fix(format!("{} pull {name}", engine.name())),
            Inspection::Known(facts) => {
                let machine = self.about(engine).and_then(|about| about.arch.as_deref()).unwrap_or(self.host.arch);
                match facts.arch.as_deref().filter(|arch| *arch != machine) {
                    Some(arch) => check(
                        State::Warning,
                        format!(
                            "{name}: made for {arch}, and the machine is {machine}: slow, or it does not start at all"
                        ),
                    )
                    .fix(format!("{} pull --platform linux/{machine} {name}", engine.name())),
                    None => check(State::Ok, format!("{name}: here, {machine}")),
                }
            }
        })
    }

    /// What is asked for against what the engine's machine has.
    fn limits(&self, planned: &Planned) -> Vec<Check> {
        let Some(about) = self.about(planned.plan.engine.kind) else { return Vec::new() };
        let (limits, engine) = (&planned.plan.limits, planned.plan.engine.kind);
        let mut checks = Vec::new();
        if let (Some(asked), Some(has)) = (&limits.memory, about.memory) {
            let text = format!("{} asked for ({}), {} has {}", asked.value, asked.origin, engine.name(), size(has));
            checks.push(match asked.value.bytes() > has {
                false => Check::new(Group::Sandbox, State::Ok, "memory", text),
                true => Check::new(Group::Sandbox, State::Warning, "memory", text)
                    .fix(self.more_memory(engine, asked.value.bytes())),
            });
        }
        if let (Some(asked), Some(has)) = (&limits.cpus, about.cpus) {
            let text = format!("{} asked for ({}), {} has {has}", asked.value, asked.origin, engine.name());
            let too_many = u64::from(asked.value.millis()) > u64::from(has) * 1000;
            // Docker refuses to start then, Podman does not care.
            let state = match (too_many, engine) {
                (false, _) => State::Ok,
                (true, EngineKind::Docker) => State::Problem,
                (true, _) => State::Warning,
            };
            let check = Check::new(Group::Sandbox, state, "cpus", text);
            checks.push(if too_many { check.fix(format!("ask for less: --cpus {has}")) } else { check });
        }
        checks
    }

    fn more_memory(&self, engine: EngineKind, wanted: u64) -> String {
        match (engine, self.host.platform) {
            (EngineKind::Podman, Platform::Macos) => {
                let mebibytes = wanted.div_ceil(1 << 20);
                format!("podman machine stop && podman machine set --memory {mebibytes} && podman machine start")
            }
            (_, Platform::Macos) => {
                "give Docker's machine more memory in its settings, or ask for less with --memory".into()
            }
            _ => "ask for less with --memory".into(),
        }
    }

    /// Each engine, whether it is chosen or not.
    pub(super) fn engines(&self) -> Vec<Check> {
        let checkup = self.checkup;
        let kind = |kind| self.planned.ok().is_some_and(|planned| planned.plan.engine.kind == kind);
        let about =
            |name, is_chosen, problem: Option<Error>, says: &Option<Result<About, String>>, fix: Option<String>| {
                let line = |state, text| Check { fix: fix.clone(), ..Check::new(Group::Engines, state, name, text) };
                match (problem, says) {
                    (Some(_), _) | (None, Some(Err(_))) if is_chosen => {
                        Check::new(Group::Engines, State::Note, name, UNUSABLE)
                    }
                    (Some(problem), _) => line(State::Warning, in_a_line(&problem)),
                    (None, Some(Err(error))) => line(State::Warning, format!("it cannot be used: {error}")),
                    (None, Some(Ok(about))) => Check::new(Group::Engines, State::Ok, name, describe(about, is_chosen)),
                    (None, None) => Check::new(Group::Engines, State::Note, name, "not installed"),
                }
            };
        let docker = docker_problem(&checkup.docker).filter(|_| checkup.docker.reach != Reach::NoProgram);
        let podman = podman_problem(&checkup.podman).filter(|_| checkup.podman.reach != Reach::NoProgram);
        let fix = |kind| self.fix(kind);
        let mut checks = vec![
            about("docker", kind(EngineKind::Docker), docker, &checkup.docker_says, fix(EngineKind::Docker)),
            about("podman", kind(EngineKind::Podman), podman, &checkup.podman_says, fix(EngineKind::Podman)),
        ];
        let chosen = |kind_: EngineKind| if kind(kind_) { "; chosen" } else { "" };
        checks.push(match (&checkup.kernel.problem, self.host.platform) {
            (_, Platform::Macos) => Check::new(Group::Engines, State::Note, "native", "Linux only"),
            (None, _) => {
                let text =
                    format!("Linux {}, nothing to install{}", checkup.kernel.release, chosen(EngineKind::Native));
                Check::new(Group::Engines, State::Ok, "native", text)
            }
            (Some(_), _) if kind(EngineKind::Native) => Check::new(Group::Engines, State::Note, "native", UNUSABLE),
            (Some(problem), _) => Check::of(Group::Engines, State::Warning, "native", problem),
        });
        checks.push(match &checkup.sandbox_exec {
            None => Check::new(Group::Engines, State::Note, "sandbox-exec", "macOS only"),
            Some(Some(program)) => Check::new(
                Group::Engines,
                State::Ok,
                "sandbox-exec",
                format!("{program}{}", chosen(EngineKind::SandboxExec)),
            ),
            Some(None) => {
                Check::new(Group::Engines, State::Warning, "sandbox-exec", "there is no `/usr/bin/sandbox-exec`")
            }
        });
        checks
    }

    /// The one command that makes an engine work.
    fn fix(&self, kind: EngineKind) -> Option<String> {
        match kind {
            EngineKind::Docker => Some(self.fix_docker(&self.checkup.docker)),
            EngineKind::Podman => Some(self.fix_podman(&self.checkup.podman)),
            EngineKind::Native | EngineKind::SandboxExec => None,
        }
    }

    fn fix_docker(&self, docker: &DockerFacts) -> String {
        let is_macos = self.host.platform == Platform::Macos;
        match &docker.reach {
            Reach::NoProgram => "install Docker: https://docs.docker.com/engine/install".into(),
            Reach::Denied(_) => "sudo usermod -aG docker $USER, and log in again".into(),
            _ if docker.chosen_by == "env DOCKER_HOST" => "start the daemon there, or: unset DOCKER_HOST".into(),
            _ if docker.product() == Some("Colima") => "colima start".into(),
            _ if docker.product() == Some("Rancher Desktop") => "start Rancher Desktop".into(),
            _ if is_macos => "open -a Docker".into(),
            _ if docker.is_desktop() => "systemctl --user start docker-desktop".into(),
            _ if docker.chosen_by == "rootless socket" => "systemctl --user restart docker".into(),
            _ => "sudo systemctl start docker".into(),
        }
    }

    fn fix_podman(&self, podman: &PodmanFacts) -> String {
        match &podman.reach {
            Reach::NoProgram => "install Podman: https://podman.io/docs/installation".into(),
            _ if self.host.platform == Platform::Macos => "podman machine start".into(),
            _ if self.host.env.text("CONTAINER_HOST").is_some() => "start its service, or: unset CONTAINER_HOST".into(),
            _ => "podman info, which says more".into(),
        }
    }

    /// What native needs; nothing where there is no Linux.
    pub(super) fn kernel(&self) -> Vec<Check> {
        if self.host.platform == Platform::Macos {
            return Vec::new();
        }
        let kernel = &self.checkup.kernel;
        let line = |state, name: &str, text: String| Check::new(Group::Kernel, state, name, text);
        let namespaces = match &kernel.problem {
            None => line(State::Ok, "namespaces", "may be made".into()),
            Some(_) => line(State::Warning, "namespaces", "may not be made by this user".into()),
        };
        let landlock = match kernel.landlock {
            0 => line(
                State::Note,
                "landlock",
                "none: the host's abstract sockets are kept away by --network off only".into(),
            ),
            abi @ 1..6 => line(
                State::Note,
                "landlock",
                format!(
                    "version {abi}: the host's abstract sockets are kept away by --network off only (version 6, Linux 6.12)"
                ),
            ),
            abi => line(State::Ok, "landlock", format!("version {abi}: signals and abstract sockets stay inside")),
        };
        let seccomp = match kernel.seccomp {
            true => line(State::Ok, "seccomp", "system calls can be filtered".into()),
            false => {
                line(State::Warning, "seccomp", "this kernel cannot filter system calls: native does not start".into())
            }
        };
        let limits = match kernel.cannot_limit.as_slice() {
            [] => line(State::Ok, "limits", "cpus, memory and pids can be limited".into()),
            missing => line(
                State::Note,
                "limits",
                format!("no control group for {} may be made by this user", missing.join(", ")),
            ),
        };
        vec![namespaces, landlock, seccomp, limits]
    }
}

fn describe(about: &About, is_chosen: bool) -> String {
    let mut text = if about.version.is_empty() { "version unknown".to_owned() } else { about.version.clone() };
    text += if about.rootless { ", rootless" } else { ", as root" };
    if let Some(bytes) = about.memory {
        text += &format!(", {} of memory", size(bytes));
    }
    if let Some(cpus) = about.cpus {
        text += &format!(", {cpus} CPU{}", if cpus == 1 { "" } else { "s" });
    }
    if is_chosen { text + "; chosen" } else { text }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_073_741_824 => format!("{}m", bytes >> 20),
        _ => format!("{:.1}g", bytes as f64 / 1_073_741_824.0),
    }
}
