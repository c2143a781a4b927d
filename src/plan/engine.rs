//! Which engine runs the sandbox, and why; the image with it.

use super::{Inputs, seatbelt};
use crate::config::preset::Preset;
use crate::config::value::{EngineKind, EngineSetting, ImageRef, Value};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Error, Result};
use crate::facts::{DockerFacts, Facts, PodmanFacts, Reach};
use crate::host::Platform;
use crate::path::HostPath;

/// Git and SSH, no agent; for commands that are not a preset's.
const DEFAULT_IMAGE: &str = "docker.io/library/buildpack-deps:bookworm-scm";

/// What to do without any container engine.
const INSTALL: &str =
    "install Docker or Podman: https://docs.docker.com/engine/install or https://podman.io/docs/installation";

/// What the engine can do here, as far as its command line depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Abilities {
    /// A rootless engine without delegated controllers cannot limit these.
    pub cannot_limit: Vec<&'static str>,
    /// The default limit of processes is left out: it would cost more than the launch.
    pub skips_default_pids: bool,
    /// The kernel cannot keep the guest from the host's abstract sockets.
    pub leaves_abstract_sockets: bool,
    /// Podman would fall back to Docker's credential helpers, which may hang or fail.
    pub needs_empty_auth: bool,
    /// SELinux is there: labels would keep the guest from the host's files.
    pub selinux: bool,
    /// The engine is on another machine.
    pub remote: bool,
}

/// The engine that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnginePlan {
    /// Which.
    pub kind: EngineKind,
    /// Its program.
    pub program: Option<HostPath>,
    /// Why this one.
    pub reason: String,
    /// Who asked.
    pub from: Origin,
    /// Why it cannot run now. `run` stops with it, `explain` warns.
    pub problem: Option<Error>,
    /// What it can do here.
    pub abilities: Abilities,
}

impl EnginePlan {
    fn new(kind: EngineKind, reason: String, config: &Config, facts: &Facts, problem: Option<Error>) -> Self {
        let native = facts.native.as_ref().filter(|_| kind == EngineKind::Native);
        let podman = facts.podman.as_ref().filter(|_| kind == EngineKind::Podman);
        let docker = facts.docker.as_ref().filter(|_| kind == EngineKind::Docker);
        let seatbelt = facts.seatbelt.as_ref().filter(|_| kind == EngineKind::SandboxExec);
        let program = podman
            .and_then(|podman| podman.program.clone())
            .or_else(|| docker.and_then(|docker| docker.program.clone()))
            .or_else(|| seatbelt.and_then(|seatbelt| seatbelt.program.clone()));
        let delegated = match (podman, docker) {
            (Some(podman), _) if podman.rootless && !podman.remote => Some(&podman.controllers),
            (_, Some(docker)) if docker.rootless => Some(&docker.controllers),
            _ => None,
        };
        let is_missing =
            |controller: &&str| delegated.is_some_and(|known| !known.iter().any(|known| known == controller));
        let cannot_limit = match kind {
            EngineKind::Native => native.map_or_else(Vec::new, |native| native.cannot_limit.clone()),
            _ => ["cpu", "memory", "pids"].into_iter().filter(is_missing).collect(),
        };
        let abilities = Abilities {
            cannot_limit,
            skips_default_pids: native.is_some_and(|native| !native.limits_processes),
            leaves_abstract_sockets: native.is_some_and(|native| !native.scopes_sockets),
            needs_empty_auth: podman.is_some_and(|podman| !podman.has_auth),
            selinux: facts.selinux,
            remote: podman.is_some_and(|podman| podman.remote) || docker.is_some_and(|docker| docker.remote),
        };
        EnginePlan { kind, program, reason, from: config.engine.origin.clone(), problem, abilities }
    }
}

/// The image that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePlan {
    /// Its reference.
    pub reference: ImageRef,
    /// Why this one.
    pub reason: String,
    /// Who asked.
    pub from: Origin,
}

/// The image that is asked for by name: the user's, else the preset's published one.
fn named_image(config: &Config, preset: Option<&Preset>) -> Option<ImagePlan> {
    if let Some(Sourced { value, origin }) = &config.image {
        let reason = match &config.build {
            Some(build) if build.origin == *origin => "built first, from the project's sandbox.Dockerfile".to_owned(),
            _ => "named by the user".to_owned(),
        };
        return Some(ImagePlan { reference: value.clone(), reason, from: origin.clone() });
    }
    let preset = preset?;
    let reason = format!("published by the {} project", preset.name);
    Some(ImagePlan { reference: preset.image.clone()?, reason, from: Origin::Preset(preset.name.clone()) })
}

/// Chooses the engine by the rule for `auto` in the interface, and the image.
pub fn choose(inputs: Inputs) -> Result<(EnginePlan, Option<ImagePlan>)> {
    let Inputs { host, config, facts, preset, .. } = inputs;
    let named = named_image(config, preset);
    let kind = match config.engine.value {
        EngineSetting::Docker => Some(EngineKind::Docker),
        EngineSetting::Podman => Some(EngineKind::Podman),
        EngineSetting::Native => Some(EngineKind::Native),
        EngineSetting::SandboxExec if host.platform != Platform::Macos => {
            return Err(Error::usage(format!("{}: `sandbox-exec` exists on macOS only", config.engine.origin))
                .hint("use `docker`, `podman` or `auto`"));
        }
        EngineSetting::SandboxExec => Some(EngineKind::SandboxExec),
        EngineSetting::Auto => None,
    };
    let engine = match kind {
        Some(kind) => named_engine(kind, config, facts),
        None => automatic(config, facts, named.as_ref()),
    };
    // A flag is meant for this run; the variable is often there for other tools and must not stop a container.
    if let (Some(Sourced { origin: origin @ Origin::Flag(_), .. }), true) =
        (&config.seatbelt_profile, engine.kind != EngineKind::SandboxExec)
    {
        return Err(Error::usage(format!("{origin}: the engine `{}` has no Seatbelt profiles", engine.kind.name()))
            .hint("drop it, or use `--engine sandbox-exec` on macOS"));
    }
    if !engine.kind.is_container() {
        if let Some(image) = named.filter(|image| matches!(image.from, Origin::Flag(_))) {
            return Err(Error::usage(format!(
                "{}: the engine `{}` has no images: it shows the host's own tools",
                image.from,
                engine.kind.name()
            ))
            .hint("drop the image, or use `--engine docker` or `--engine podman`"));
        }
        let by_flag = config.engine_flags.iter().find(|flag| matches!(flag.origin, Origin::Flag(_)));
        if let Some(Sourced { value, origin }) = by_flag {
            return Err(Error::usage(format!(
                "{origin}: the engine `{}` has no command line for `{value}`",
                engine.kind.name()
            ))
            .hint("drop it, or use `--engine docker` or `--engine podman`"));
        }
        return Ok((engine, None));
    }
    let image = named.map_or_else(default_image, Ok)?;
    Ok((engine, Some(image)))
}

fn default_image() -> Result<ImagePlan> {
    let reference = ImageRef::from_text(DEFAULT_IMAGE)?;
    Ok(ImagePlan { reference, reason: "git and ssh, no agent: nothing else was named".into(), from: Origin::Default })
}

fn named_engine(kind: EngineKind, config: &Config, facts: &Facts) -> EnginePlan {
    let problem = match kind {
        EngineKind::Podman => facts
            .podman
            .as_ref()
            .and_then(podman_problem)
            .map(|problem| problem.hint("or use another engine: --engine docker")),
        EngineKind::Docker => facts
            .docker
            .as_ref()
            .and_then(docker_problem)
            .map(|problem| problem.hint("or use another engine: --engine podman")),
        EngineKind::Native => native_problem(facts).cloned(),
        EngineKind::SandboxExec => seatbelt::problem(facts),
    };
    EnginePlan::new(kind, "named; no other is tried".to_owned(), config, facts, problem)
}

fn automatic(config: &Config, facts: &Facts, image: Option<&ImagePlan>) -> EnginePlan {
    if facts.native.is_some() && native_problem(facts).is_none() {
        let reason = "no image is named, so the host's own tools are meant".to_owned();
        return EnginePlan::new(EngineKind::Native, reason, config, facts, None);
    }
    let seatbelt_problem = seatbelt::problem(facts);
    if facts.seatbelt.is_some() && seatbelt_problem.is_none() {
        let reason = "no image is named, so the host's own tools are meant".to_owned();
        return EnginePlan::new(EngineKind::SandboxExec, reason, config, facts, None);
    }
    let own_tools = native_problem(facts).or(seatbelt_problem.as_ref());
    let meant = match (image, own_tools) {
        (Some(image), _) => format!("the image `{}` asks for a container", image.reference),
        (None, Some(problem)) => {
            format!("no image is named, but the host's own tools cannot run in a sandbox here ({})", problem.message())
        }
        (None, None) => "no image is named".to_owned(),
    };
    let (kind, reason, problem) =
        match (facts.docker.as_ref().and_then(docker_problem), facts.podman.as_ref().and_then(podman_problem)) {
            (None, _) => (EngineKind::Docker, format!("{meant}; Docker answers"), None),
            (Some(why), None) => {
                (EngineKind::Podman, format!("{meant}; Podman answers, Docker does not ({})", why.message()), None)
            }
            (Some(docker), Some(podman)) => {
                let native = own_tools.filter(|_| image.is_none());
                let problem = none_answers(native, &docker, &podman, facts);
                (EngineKind::Docker, format!("{meant}; none answers"), Some(problem))
            }
        };
    EnginePlan::new(kind, reason, config, facts, problem)
}

/// Why neither the host's own tools nor a container can be had, and what helps.
fn none_answers(native: Option<&Error>, docker: &Error, podman: &Error, facts: &Facts) -> Error {
    let what = if native.is_some() { "no engine can run here" } else { "no container engine answers" };
    let error = native.into_iter().chain([docker, podman]).fold(Error::launch(what), Error::cause);
    let none_is_installed = facts.docker.as_ref().is_some_and(|docker| docker.reach == Reach::NoProgram)
        && facts.podman.as_ref().is_some_and(|podman| podman.reach == Reach::NoProgram);
    let containers: Vec<String> = match none_is_installed {
        // Either will do; two lines would read as if both were needed.
        true => vec![INSTALL.to_owned()],
        false => docker.hints().iter().chain(podman.hints()).cloned().collect(),
    };
    native.into_iter().flat_map(Error::hints).cloned().chain(containers).fold(error, Error::hint)
}

fn native_problem(facts: &Facts) -> Option<&Error> {
    facts.native.as_ref().and_then(|native| native.problem.as_ref())
}

/// Why Docker cannot be used.
pub fn docker_problem(facts: &DockerFacts) -> Option<Error> {
    let DockerFacts { endpoint, chosen_by, reach, .. } = facts;
    match reach {
        Reach::Answers => None,
        Reach::NoProgram => {
            Some(Error::launch("Docker is not installed: there is no `docker` on PATH").hint("install Docker"))
        }
        Reach::Denied(error) => {
            Some(Error::launch(format!("Docker refuses this user at `{endpoint}`")).cause(error).hint(
                "join the group `docker` and log in again (`sudo usermod -aG docker $USER`), or use rootless Docker",
            ))
        }
        Reach::Silent(error) => Some(
            Error::launch(format!(
                "Docker does not answer at `{endpoint}` ({chosen_by}): its daemon is not running there"
            ))
            .cause(error)
            .hint("start Docker (`sudo systemctl start docker`, or Docker Desktop)"),
        ),
    }
}

/// Why Podman cannot be used.
pub fn podman_problem(facts: &PodmanFacts) -> Option<Error> {
    match &facts.reach {
        Reach::Answers => None,
        Reach::NoProgram => {
            Some(Error::launch("Podman is not installed: there is no `podman` on PATH").hint("install Podman"))
        }
        Reach::Denied(error) | Reach::Silent(error) => Some(
            Error::launch("Podman's remote service does not answer at CONTAINER_HOST")
                .cause(error)
                .hint("start it (`podman machine start`, or `podman system service`), or unset CONTAINER_HOST"),
        ),
    }
}
