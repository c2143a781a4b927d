//! Checks every engine, whether it is chosen or not, and knows the command that makes one work.

use super::DoctorInput;
use super::check::{Check, Group, one_line};
use crate::command::report::State;
use crate::error::Error;
use crate::facts::engines::checkup::About;
use crate::facts::{DockerFacts, EndpointOrigin, MachineProvider, PodmanFacts, Reach};
use crate::host::Platform;
use crate::plan::EngineKind;
use crate::plan::engine::{docker_problem, podman_problem};
use crate::ui::{counted, size};

const UNUSABLE: &str = "chosen, but cannot be used: see above";

impl DoctorInput<'_> {
    pub(super) fn engines(&self) -> Vec<Check> {
        let checkup = self.checkup;
        vec![
            self.container_engine(
                EngineKind::Docker,
                &checkup.docker.reach,
                docker_problem(&checkup.docker),
                &checkup.docker_says,
            ),
            self.container_engine(
                EngineKind::Podman,
                &checkup.podman.reach,
                podman_problem(&checkup.podman),
                &checkup.podman_says,
            ),
            self.native(),
            self.seatbelt(),
        ]
    }

    fn is_chosen(&self, kind: EngineKind) -> bool {
        self.planned.is_ok_and(|planned| planned.plan.engine.kind == kind)
    }

    fn chosen_suffix(&self, kind: EngineKind) -> &'static str {
        if self.is_chosen(kind) { "; chosen" } else { "" }
    }

    fn container_engine(
        &self,
        kind: EngineKind,
        reach: &Reach,
        problem: Option<Error>,
        answer: &Option<Result<About, String>>,
    ) -> Check {
        if *reach == Reach::NoProgram {
            return line(State::Note, kind, "not installed");
        }
        let error = match (problem, answer) {
            (None, Some(Ok(about))) => {
                return line(State::Ok, kind, format!("{}{}", describe(about), self.chosen_suffix(kind)));
            }
            (None, None) => return line(State::Note, kind, "not installed"),
            (Some(problem), _) => one_line(&problem),
            (None, Some(Err(error))) => format!("cannot be used: {error}"),
        };
        // The first section reports the problem of the chosen engine.
        if self.is_chosen(kind) {
            return line(State::Note, kind, UNUSABLE);
        }
        // An engine that nothing needs is no problem.
        if self.planned.is_ok_and(|planned| planned.plan.engine.problem.is_none()) {
            return line(State::Note, kind, error);
        }
        Check { fix: self.fix(kind), ..line(State::Warning, kind, error) }
    }

    fn native(&self) -> Check {
        let (kind, kernel) = (EngineKind::Native, &self.checkup.kernel);
        if self.host.platform == Platform::Macos {
            return line(State::Note, kind, "Linux only");
        }
        match &kernel.problem {
            None => {
                let chosen = self.chosen_suffix(kind);
                line(State::Ok, kind, format!("Linux {}, nothing to install{chosen}", kernel.release))
            }
            Some(_) if self.is_chosen(kind) => line(State::Note, kind, UNUSABLE),
            Some(problem) => Check::from_error(Group::Engines, State::Warning, kind.name(), problem),
        }
    }

    fn seatbelt(&self) -> Check {
        let kind = EngineKind::SandboxExec;
        match &self.checkup.sandbox_exec {
            None => line(State::Note, kind, "macOS only"),
            Some(Some(program)) => line(State::Ok, kind, format!("{program}{}", self.chosen_suffix(kind))),
            Some(None) => line(State::Warning, kind, "`/usr/bin/sandbox-exec` does not exist"),
        }
    }

    /// Returns the one command that makes an engine work.
    pub(super) fn fix(&self, kind: EngineKind) -> Option<String> {
        match kind {
            EngineKind::Docker => Some(self.fix_docker(&self.checkup.docker)),
            EngineKind::Podman => Some(self.fix_podman(&self.checkup.podman)),
            EngineKind::Native | EngineKind::SandboxExec | EngineKind::Kubernetes => None,
        }
    }

    fn fix_docker(&self, docker: &DockerFacts) -> String {
        match (&docker.reach, &docker.chosen_by, docker.provider()) {
            (Reach::NoProgram, ..) => "install Docker: https://docs.docker.com/engine/install",
            (Reach::Denied(_), ..) => "use Podman or rootless Docker: https://docs.docker.com/engine/security/rootless",
            (_, EndpointOrigin::Environment, _) => "start the daemon there, or: unset DOCKER_HOST",
            (.., Some(MachineProvider::Colima)) => "colima start",
            (.., Some(MachineProvider::RancherDesktop)) => "start Rancher Desktop",
            _ if self.host.platform == Platform::Macos => "open -a Docker",
            _ if docker.is_desktop() => "systemctl --user start docker-desktop",
            (_, EndpointOrigin::RootlessSocket, _) => "systemctl --user restart docker",
            _ => "sudo systemctl start docker",
        }
        .into()
    }

    fn fix_podman(&self, podman: &PodmanFacts) -> String {
        match &podman.reach {
            Reach::NoProgram => "install Podman: https://podman.io/docs/installation",
            _ if self.host.platform == Platform::Macos => "podman machine start",
            _ if self.host.env.text("CONTAINER_HOST").is_some() => "start its service, or: unset CONTAINER_HOST",
            _ => "podman info, which prints details",
        }
        .into()
    }
}

fn line(state: State, kind: EngineKind, text: impl Into<String>) -> Check {
    Check::new(Group::Engines, state, kind.name(), text)
}

fn describe(about: &About) -> String {
    let mut text = if about.version.is_empty() { "version unknown".to_owned() } else { about.version.clone() };
    text += if about.rootless { ", rootless" } else { ", as root" };
    if let Some(bytes) = about.memory {
        text += &format!(", {} of memory", size(bytes));
    }
    if let Some(cpus) = about.cpus {
        text += &format!(", {}", counted(cpus as usize, "CPU"));
    }
    text
}
