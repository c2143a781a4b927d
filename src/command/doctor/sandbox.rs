//! Checks the sandbox that `run` would start: its engine, image, limits and warnings.

use super::check::{Check, Group};
use super::error::EngineProblem;
use super::{DoctorInput, Planned, cluster};
use crate::command::report::State;
use crate::config::Origin;
use crate::config::Sourced;
use crate::config::value::{Cpus, ImageRef, Memory};
use crate::error::Error;
use crate::facts;
use crate::facts::engines::checkup::About;
use crate::facts::image::Inspection;
use crate::host::Platform;
use crate::launch::Launch;
use crate::plan::EngineKind;
use crate::ui::size;
use crate::warning::WarningTopic;

/// Rootless Podman can map the user's ids (`keep-id:uid=…`) since this version.
const KEEP_ID: (u32, u32) = (4, 3);

/// The local images that `sandpen build --agent` builds.
const AGENT_IMAGES: &str = "localhost/sandpen/";

impl DoctorInput<'_> {
    pub(super) fn sandbox(&self, planned: &Planned) -> Vec<Check> {
        let mut checks = vec![self.chosen_engine(planned)];
        if let Launch::Kubernetes(launch) = &planned.launch {
            checks.extend(cluster::checks(launch));
        }
        checks.extend(self.helper_elsewhere(planned));
        checks.extend(self.image(planned));
        checks.extend(self.limits(planned));
        for downgrade in planned.launch.downgrades() {
            let text = format!("{}: {}, because {}", downgrade.asked, downgrade.got, downgrade.reason);
            checks.push(line(State::Warning, "not enforced", text));
        }
        for warning in &planned.plan.warnings {
            // The sections SSH agent and Configuration report these.
            if !matches!(warning.topic, WarningTopic::ConfigFile | WarningTopic::SshAgent) {
                checks.push(line(State::Warning, "options", &warning.text));
            }
        }
        checks
    }

    fn chosen_engine(&self, planned: &Planned) -> Check {
        let engine = &planned.plan.engine;
        let name = engine.kind.name();
        match self.engine_problem(planned) {
            None => line(State::Ok, "engine", format!("{name}: {} ({})", engine.reason, engine.from)),
            Some((error, fix)) => {
                let check = Check::from_error(Group::Sandbox, State::Problem, "engine", &error);
                Check { text: format!("{name}: {}", check.text), fix: fix.or(check.fix), ..check }
            }
        }
    }

    /// Returns why the chosen engine cannot run, and the command that fixes it.
    fn engine_problem(&self, planned: &Planned) -> Option<(Error, Option<String>)> {
        let engine = &planned.plan.engine;
        if let Some(problem) = &engine.problem {
            // If no engine was requested, the error names them all and any of them would do.
            let is_requested = engine.from != Origin::Default;
            return Some((problem.clone(), is_requested.then(|| self.fix(engine.kind)).flatten()));
        }
        match engine.kind {
            EngineKind::Docker => Some((no_answer(&self.checkup.docker_says)?, self.fix(engine.kind))),
            EngineKind::Podman => match no_answer(&self.checkup.podman_says) {
                Some(error) => Some((error, self.fix(engine.kind))),
                None => Some((self.old_podman()?, None)),
            },
            EngineKind::Native => Some((self.checkup.kernel.problem.clone()?, None)),
            EngineKind::SandboxExec | EngineKind::Kubernetes => None,
        }
    }

    /// Looks for the helper that an engine on another machine is sent.
    fn helper_elsewhere(&self, planned: &Planned) -> Option<Check> {
        let address = &planned.plan.remote.as_ref()?.address;
        let arch = self.about(planned.plan.engine.kind)?.arch.as_deref()?;
        Some(match facts::helper_for(self.host, arch) {
            Some(_) => line(State::Ok, "helper", format!("the one for {arch} is sent to {address}")),
            None => {
                let text = format!("{address} is {arch}, and there is no `sandpen-linux-{arch}` beside sandpen");
                line(State::Problem, "helper", text).fix("scripts/build-helper")
            }
        })
    }

    fn old_podman(&self) -> Option<Error> {
        let about = self.about(EngineKind::Podman)?;
        let is_old = about.rootless && about.is_before(KEEP_ID);
        is_old.then(|| EngineProblem::OldPodman { version: about.version.clone() }.into())
    }

    fn about(&self, kind: EngineKind) -> Option<&About> {
        let answer = match kind {
            EngineKind::Docker => &self.checkup.docker_says,
            EngineKind::Podman => &self.checkup.podman_says,
            EngineKind::Native | EngineKind::SandboxExec | EngineKind::Kubernetes => return None,
        };
        answer.as_ref()?.as_ref().ok()
    }

    fn image(&self, planned: &Planned) -> Option<Check> {
        let (image, inspection) = (&planned.plan.image.as_ref()?.reference, planned.image.as_ref()?);
        let kind = planned.plan.engine.kind;
        let engine = kind.name();
        Some(match inspection {
            Inspection::Silent => {
                line(State::Problem, "image", format!("{image}: {engine} did not answer whether it has the image"))
            }
            Inspection::Missing if planned.config.build.is_some() => {
                line(State::Note, "image", format!("{image}: will be built before the first run"))
            }
            Inspection::Missing if image.is_local() => missing_local_image(image, engine),
            Inspection::Missing => line(State::Note, "image", format!("{image}: not present, the first run pulls it"))
                .fix(format!("{engine} pull {image}")),
            Inspection::Known(facts) => {
                let machine = self.about(kind).and_then(|about| about.arch.as_deref()).unwrap_or(self.host.arch);
                match facts.arch.as_deref().filter(|arch| *arch != machine) {
                    None => line(State::Ok, "image", format!("{image}: present, {machine}")),
                    Some(arch) => {
                        let text = format!("{image}: built for {arch}, but the machine is {machine}: slow or unusable");
                        line(State::Warning, "image", text)
                            .fix(format!("{engine} pull --platform linux/{machine} {image}"))
                    }
                }
            }
        })
    }

    /// Compares the requested limits with the resources of the engine's machine.
    fn limits(&self, planned: &Planned) -> Vec<Check> {
        let Some(about) = self.about(planned.plan.engine.kind) else { return Vec::new() };
        let (limits, engine) = (&planned.plan.limits, planned.plan.engine.kind);
        let memory = limits.memory.as_ref().zip(about.memory).map(|(memory, has)| self.memory(engine, memory, has));
        let cpus = limits.cpus.as_ref().zip(about.cpus).map(|(cpus, has)| self.cpus(engine, cpus, has));
        memory.into_iter().chain(cpus).collect()
    }

    fn memory(&self, engine: EngineKind, requested: &Sourced<Memory>, available: u64) -> Check {
        let Sourced { value, origin } = requested;
        let text = format!("{value} requested ({origin}), {} has {}", engine.name(), size(available));
        if value.bytes() <= available {
            return line(State::Ok, "memory", text);
        }
        let fix = match (engine, self.host.platform) {
            (EngineKind::Podman, Platform::Macos) => {
                let mebibytes = value.bytes().div_ceil(1 << 20);
                format!("podman machine stop && podman machine set --memory {mebibytes} && podman machine start")
            }
            (_, Platform::Macos) => {
                "give Docker's machine more memory in its settings, or request less with --memory".into()
            }
            _ => "request less with --memory".into(),
        };
        line(State::Warning, "memory", text).fix(fix)
    }

    fn cpus(&self, engine: EngineKind, requested: &Sourced<Cpus>, available: u32) -> Check {
        let Sourced { value, origin } = requested;
        let text = format!("{value} requested ({origin}), {} has {available}", engine.name());
        if u64::from(value.millis()) <= u64::from(available) * 1000 {
            return line(State::Ok, "cpus", text);
        }
        // Docker refuses to start with more CPUs than it has; Podman does not.
        let state = if engine == EngineKind::Docker { State::Problem } else { State::Warning };
        line(state, "cpus", text).fix(format!("request less: --cpus {available}"))
    }
}

fn line(state: State, name: &str, text: impl Into<String>) -> Check {
    Check::new(Group::Sandbox, state, name, text)
}

fn no_answer(answer: &Option<Result<About, String>>) -> Option<Error> {
    let error = answer.as_ref()?.as_ref().err()?;
    Some(EngineProblem::Unusable { answer: error.clone() }.into())
}

fn missing_local_image(image: &ImageRef, engine: &str) -> Check {
    let agent = image.as_str().strip_prefix(AGENT_IMAGES).filter(|rest| !rest.contains('/'));
    let fix = match agent {
        Some(agent) => format!("sandpen build --agent {agent}"),
        None => format!("sandpen build -f FILE -t {image}"),
    };
    line(State::Problem, "image", format!("{image}: {engine} does not have it, and it is never pulled")).fix(fix)
}
