//! Decides which engine and which image run the sandbox. Looks at no engine; `facts::engines` does.

use super::{Inputs, seatbelt};
use crate::config::preset::Preset;
use crate::config::value::{EngineKind, EngineSetting, ImageRef, Value};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Diagnostic, Error, Kind, Result};
use crate::facts::engines::Controller;
use crate::facts::{DockerFacts, EndpointOrigin, Facts, KubernetesFacts, PodmanFacts, Reach};
use crate::host::{Host, Platform};
use crate::path::HostPath;

/// Contains Git and SSH, but no coding agent. Used for commands without a preset.
const DEFAULT_IMAGE: &str = "docker.io/library/buildpack-deps:bookworm-scm";

const INSTALL: &str =
    "install Docker or Podman: https://docs.docker.com/engine/install or https://podman.io/docs/installation";

/// Features of the engine on this host that its command line depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Abilities {
    /// Names of limits that cannot be enforced, for example by a rootless engine without delegated
    /// controllers.
    pub cannot_limit: Vec<Controller>,
    /// Whether the default limit of processes is left out because setting it would take longer than
    /// the launch.
    pub skips_default_pids: bool,
    /// Whether the guest can reach the host's abstract sockets because the kernel cannot restrict
    /// them.
    pub leaves_abstract_sockets: bool,
    /// Whether Podman would otherwise fall back to Docker's credential helpers, which may hang or
    /// fail.
    pub needs_empty_auth: bool,
    /// Whether SELinux is enabled: its labels would deny the guest access to the host's files.
    pub selinux: bool,
    /// Whether the engine is on another machine, or in a virtual one.
    pub remote: bool,
    /// Whether the directories of this machine do not exist there, so that files are copied.
    pub copies_files: bool,
}

/// The engine that runs the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnginePlan {
    /// Selects the engine.
    pub kind: EngineKind,
    /// The engine's client; `None` for the native engine, and if the client is not installed.
    pub program: Option<HostPath>,
    /// Tells the user why this engine was chosen.
    pub reason: String,
    /// The layer that set the option `engine`.
    pub from: Origin,
    /// The reason for which the engine cannot run. `run` stops with it, `explain` shows it as a
    /// warning.
    pub problem: Option<Error>,
    /// Features that the command line depends on.
    pub abilities: Abilities,
}

impl EnginePlan {
    fn new(kind: EngineKind, reason: String, config: &Config, facts: &Facts, problem: Option<Error>) -> Self {
        let native = facts.native.as_ref().filter(|_| kind == EngineKind::Native);
        let podman = facts.podman.as_ref().filter(|_| kind == EngineKind::Podman);
        let docker = facts.docker.as_ref().filter(|_| kind == EngineKind::Docker);
        let seatbelt = facts.seatbelt.as_ref().filter(|_| kind == EngineKind::SandboxExec);
        let kubernetes = facts.kubernetes.as_ref().filter(|_| kind == EngineKind::Kubernetes);
        let program = podman
            .and_then(|podman| podman.program.clone())
            .or_else(|| docker.and_then(|docker| docker.program.clone()))
            .or_else(|| seatbelt.and_then(|seatbelt| seatbelt.program.clone()))
            .or_else(|| kubernetes.and_then(|kubernetes| kubernetes.program.clone()));
        let delegated = match (podman, docker) {
            (Some(podman), _) if podman.rootless && !podman.remote => Some(&podman.controllers),
            (_, Some(docker)) if docker.rootless => Some(&docker.controllers),
            _ => None,
        };
        let is_missing = |controller: &Controller| {
            delegated.is_some_and(|known| !known.iter().any(|known| known == controller.name()))
        };
        let cannot_limit = match kind {
            EngineKind::Native => native.map_or_else(Vec::new, |native| native.cannot_limit.clone()),
            _ => Controller::ALL.into_iter().filter(is_missing).collect(),
        };
        let abilities = Abilities {
            cannot_limit,
            skips_default_pids: native.is_some_and(|native| !native.limits_processes),
            leaves_abstract_sockets: native.is_some_and(|native| !native.scopes_sockets),
            needs_empty_auth: podman.is_some_and(|podman| !podman.has_auth),
            selinux: facts.selinux,
            remote: podman.is_some_and(|podman| podman.remote) || docker.is_some_and(|docker| docker.remote),
            copies_files: kind == EngineKind::Kubernetes
                || podman.is_some_and(|podman| podman.elsewhere.is_some())
                || docker.is_some_and(DockerFacts::is_on_another_machine),
        };
        EnginePlan { kind, program, reason, from: config.engine.origin.clone(), problem, abilities }
    }
}

/// The image that a container is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePlan {
    /// Names the image as the engine does.
    pub reference: ImageRef,
    /// Tells the user why this image was chosen.
    pub reason: String,
    /// The layer that named it.
    pub from: Origin,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{origin}: `sandbox-exec` exists on macOS only")]
    NotMacos { origin: Origin },
    #[error("{origin}: the engine `{}` has no Seatbelt profiles", engine.name())]
    NoProfiles { origin: Origin, engine: EngineKind },
    #[error("{origin}: the engine `{}` has no images: it runs the host's tools", engine.name())]
    NoImages { origin: Origin, engine: EngineKind },
    #[error("the image `{reference}` is not in sandpen's store")]
    NotStored { reference: String },
    #[error("the image `{reference}` is for {platform}, and this machine runs linux/{machine}")]
    OtherPlatform { reference: String, platform: String, machine: &'static str },
    #[error("{origin}: the engine `{}` has no command line for `{flag}`", engine.name())]
    NoCommandLine { origin: Origin, engine: EngineKind, flag: String },
    #[error("Docker is not installed: there is no `docker` on PATH")]
    DockerMissing,
    #[error("cannot connect to Docker at `{endpoint}`")]
    DockerDenied { endpoint: String, error: String },
    #[error("Docker does not answer at `{endpoint}` ({chosen_by}): its daemon is not running there")]
    DockerSilent { endpoint: String, chosen_by: EndpointOrigin, error: String },
    #[error(
        "{engine} at `{address}` ({chosen_by}) is on another machine, where the directories of this one do not exist"
    )]
    Elsewhere { engine: &'static str, address: String, chosen_by: String },
    #[error("{engine} at `{address}` ({chosen_by}) does not answer")]
    RemoteSilent { engine: &'static str, address: String, chosen_by: String, error: String },
    #[error("Podman is not installed: there is no `podman` on PATH")]
    PodmanMissing,
    #[error("Podman's remote service does not answer at CONTAINER_HOST")]
    PodmanSilent { error: String },
    #[error("kubectl is not installed: there is no `kubectl` on PATH")]
    KubectlMissing,
    #[error("kubectl has no cluster to use")]
    NoCluster { error: String },
    #[error("this is already a sandbox of sandpen (`{sandbox}`), and no other can be started in it")]
    InSandbox { sandbox: String },
    /// An engine that was chosen explicitly cannot run.
    #[error("{}", problem.message())]
    Chosen { problem: Error, alternative: EngineKind },
    #[error("{}", if native.is_some() { "no engine can run here" } else { "no container engine is available" })]
    NoneAvailable { native: Option<Error>, docker: Error, podman: Error, none_is_installed: bool },
}

impl Diagnostic for EngineError {
    fn kind(&self) -> Kind {
        match self {
            Self::NotMacos { .. } | Self::NoProfiles { .. } | Self::NoImages { .. } | Self::NoCommandLine { .. } => {
                Kind::Usage
            }
            _ => Kind::Launch,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::DockerDenied { error, .. }
            | Self::DockerSilent { error, .. }
            | Self::PodmanSilent { error }
            | Self::RemoteSilent { error, .. }
            | Self::NoCluster { error } => {
                vec![error.clone()]
            }
            Self::Chosen { problem, .. } => problem.causes().to_vec(),
            Self::NoneAvailable { native, docker, podman, .. } => {
                native.iter().chain([docker, podman]).map(Error::to_string).collect()
            }
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::NotMacos { .. } => "use `docker`, `podman` or `auto`",
            Self::NoProfiles { .. } => "drop it, or use `--engine sandbox-exec` on macOS",
            Self::NoImages { .. } => "drop the image, or use `--engine docker` or `--engine podman`",
            Self::NotStored { reference } => {
                return vec![format!("`run` pulls it, and so does: sandpen image pull {reference}")];
            }
            Self::OtherPlatform { .. } => {
                "pull it for this machine, or emulate the other one with `--engine docker` or `--engine podman`"
            }
            Self::NoCommandLine { .. } => "drop it, or use `--engine docker` or `--engine podman`",
            Self::DockerMissing => "install Docker",
            Self::DockerDenied { .. } => {
                "use Podman or rootless Docker, which need no rights: https://docs.docker.com/engine/security/rootless"
            }
            Self::DockerSilent { .. } => "start Docker (`sudo systemctl start docker`, or Docker Desktop)",
            Self::Elsewhere { engine, .. } => {
                return vec![format!(
                    "to copy the workspace to that machine and run there: `--engine {}`",
                    engine.to_lowercase()
                )];
            }
            Self::RemoteSilent { .. } => "see whether that machine, its network and its daemon are up",
            Self::PodmanMissing => "install Podman",
            Self::KubectlMissing => "install kubectl: https://kubernetes.io/docs/tasks/tools",
            Self::NoCluster { .. } => {
                "list what there is with `kubectl config get-contexts`, and choose with `--context` or `kubectl config use-context`"
            }
            Self::PodmanSilent { .. } => {
                "start it (`podman machine start`, or `podman system service`), or unset CONTAINER_HOST"
            }
            Self::InSandbox { .. } => "run the command itself: it has the walls of this sandbox",
            Self::Chosen { problem, alternative } => {
                let other = format!("or use another engine: --engine {}", alternative.name());
                return problem.hints().iter().cloned().chain([other]).collect();
            }
            Self::NoneAvailable { native, docker, podman, none_is_installed } => {
                // One of the two is enough; a hint for each would read as if both were needed.
                let containers = if *none_is_installed {
                    vec![INSTALL.to_owned()]
                } else {
                    [docker.hints(), podman.hints()].concat()
                };
                return native.iter().flat_map(Error::hints).cloned().chain(containers).collect();
            }
        };
        vec![hint.to_owned()]
    }
}

/// Returns the user's image, else the one that the preset's project publishes.
fn named_image(config: &Config, preset: Option<&Preset>) -> Option<ImagePlan> {
    if let Some(Sourced { value, origin }) = &config.image {
        let reason = match &config.build {
            Some(build) if build.origin == *origin => {
                "built from the project's sandbox.Dockerfile before the launch".to_owned()
            }
            _ => "chosen by the user".to_owned(),
        };
        return Some(ImagePlan { reference: value.clone(), reason, from: origin.clone() });
    }
    let preset = preset?;
    let reason = format!("published by the {} project", preset.name);
    Some(ImagePlan { reference: preset.image.clone()?, reason, from: Origin::Preset(preset.name.clone()) })
}

/// Chooses the engine and, for containers, the image.
pub fn choose(inputs: Inputs) -> Result<(EnginePlan, Option<ImagePlan>)> {
    let Inputs { host, config, facts, preset, is_installed, .. } = inputs;
    let named = named_image(config, preset);
    let kind = match config.engine.value {
        EngineSetting::Docker => Some(EngineKind::Docker),
        EngineSetting::Podman => Some(EngineKind::Podman),
        EngineSetting::Native => Some(EngineKind::Native),
        EngineSetting::SandboxExec if host.platform != Platform::Macos => {
            return Err(EngineError::NotMacos { origin: config.engine.origin.clone() }.into());
        }
        EngineSetting::SandboxExec => Some(EngineKind::SandboxExec),
        EngineSetting::Kubernetes => Some(EngineKind::Kubernetes),
        EngineSetting::Auto => None,
    };
    let plan = match kind {
        Some(kind) => named_engine(kind, config, facts),
        // The image of a preset asks for a container only if the host lacks the command.
        None => {
            let asks = |image: &&ImagePlan| !(is_installed && matches!(image.from, Origin::Preset(_)));
            automatic(config, facts, named.as_ref().filter(asks))
        }
    };
    let plan = EnginePlan { problem: inside_sandbox(host, &plan).or(plan.problem), ..plan };
    refuse_unsupported(config, plan.kind, named.as_ref())?;
    if plan.kind == EngineKind::Native {
        // The image of a preset does not replace the host's tools of somebody who names `native`.
        let image = named.filter(|image| kind.is_none() || !matches!(image.from, Origin::Preset(_)));
        let image = image.filter(|_| kind.is_some() || facts.root_image.is_some());
        let problem = image.as_ref().and_then(|image| image_problem(host, facts, image));
        return Ok((EnginePlan { problem: plan.problem.clone().or(problem), ..plan }, image));
    }
    if !plan.kind.is_container() {
        return Ok((plan, None));
    }
    let image = named.map_or_else(default_image, Ok)?;
    Ok((plan, Some(image)))
}

/// Returns the reason for which an image cannot be the root of a native sandbox.
fn image_problem(host: &Host, facts: &Facts, image: &ImagePlan) -> Option<Error> {
    let reference = image.reference.to_string();
    let Some(stored) = &facts.root_image else { return Some(EngineError::NotStored { reference }.into()) };
    let is_for_this_machine = stored.platform == format!("linux/{}", host.arch);
    let platform = stored.platform.clone();
    (!is_for_this_machine).then(|| EngineError::OtherPlatform { reference, platform, machine: host.arch }.into())
}

/// Returns the problem of an engine inside a sandbox, where the sockets of container engines do not
/// exist, unless the user names an endpoint that does.
fn inside_sandbox(host: &Host, plan: &EnginePlan) -> Option<Error> {
    let sandbox = host.sandbox.clone()?;
    let is_reachable = match plan.kind {
        EngineKind::Docker => host.env.text("DOCKER_HOST").is_some(),
        EngineKind::Podman => host.env.text("CONTAINER_HOST").is_some(),
        EngineKind::Native | EngineKind::SandboxExec | EngineKind::Kubernetes => plan.problem.is_none(),
    };
    (!is_reachable).then(|| EngineError::InSandbox { sandbox }.into())
}

/// Refuses flags that the engine cannot follow. Only flags: a variable or file is often meant for
/// other engines.
fn refuse_unsupported(config: &Config, engine: EngineKind, image: Option<&ImagePlan>) -> Result<()> {
    if let (Some(Sourced { origin: origin @ Origin::Flag(_), .. }), true) =
        (&config.seatbelt_profile, engine != EngineKind::SandboxExec)
    {
        return Err(EngineError::NoProfiles { origin: origin.clone(), engine }.into());
    }
    if engine.is_container() {
        return Ok(());
    }
    let is_flag = |image: &&ImagePlan| matches!(image.from, Origin::Flag(_)) && engine != EngineKind::Native;
    if let Some(image) = image.filter(is_flag) {
        return Err(EngineError::NoImages { origin: image.from.clone(), engine }.into());
    }
    let by_flag = config.engine_flags.iter().find(|flag| matches!(flag.origin, Origin::Flag(_)));
    if let Some(Sourced { value, origin }) = by_flag {
        return Err(EngineError::NoCommandLine { origin: origin.clone(), engine, flag: value.clone() }.into());
    }
    Ok(())
}

fn default_image() -> Result<ImagePlan> {
    let reference = ImageRef::from_text(DEFAULT_IMAGE)?;
    Ok(ImagePlan { reference, reason: "the default: git and ssh, no coding agent".into(), from: Origin::Default })
}

fn named_engine(kind: EngineKind, config: &Config, facts: &Facts) -> EnginePlan {
    let or_use = |alternative| move |problem| EngineError::Chosen { problem, alternative }.into();
    let problem = match kind {
        EngineKind::Podman => facts.podman.as_ref().and_then(podman_silence).map(or_use(EngineKind::Docker)),
        EngineKind::Docker => facts.docker.as_ref().and_then(docker_silence).map(or_use(EngineKind::Podman)),
        EngineKind::Native => native_problem(facts).cloned(),
        EngineKind::SandboxExec => seatbelt::problem(facts),
        EngineKind::Kubernetes => facts.kubernetes.as_ref().and_then(kubernetes_problem),
    };
    EnginePlan::new(kind, "chosen explicitly; no other engine is tried".to_owned(), config, facts, problem)
}

fn automatic(config: &Config, facts: &Facts, image: Option<&ImagePlan>) -> EnginePlan {
    let host_tools = "no image is set, so the host's tools are used".to_owned();
    let can_run_native = facts.native.is_some() && native_problem(facts).is_none();
    if can_run_native && image.is_none() {
        return EnginePlan::new(EngineKind::Native, host_tools, config, facts, None);
    }
    let seatbelt_problem = seatbelt::problem(facts);
    if facts.seatbelt.is_some() && seatbelt_problem.is_none() {
        return EnginePlan::new(EngineKind::SandboxExec, host_tools, config, facts, None);
    }
    let host_problem = native_problem(facts).or(seatbelt_problem.as_ref());
    let why_container = match (image, host_problem) {
        (Some(image), _) => format!("the image `{}` needs a container engine", image.reference),
        (None, Some(problem)) => {
            format!("no image is set, but the host's tools cannot run in a sandbox here ({})", problem.message())
        }
        (None, None) => "no image is set".to_owned(),
    };
    let docker = facts.docker.as_ref().and_then(docker_problem);
    let podman = facts.podman.as_ref().and_then(podman_problem);
    let (kind, reason, problem) = match (docker, podman) {
        (None, _) => (EngineKind::Docker, format!("{why_container}; Docker is available"), None),
        (Some(docker), None) => (
            EngineKind::Podman,
            format!("{why_container}; Podman is available, Docker is not ({})", docker.message()),
            None,
        ),
        (Some(docker), Some(podman)) if can_run_native && facts.root_image.is_some() => (
            EngineKind::Native,
            format!(
                "no container engine is available ({}; {}), and the image is in sandpen's own store",
                docker.message(),
                podman.message()
            ),
            None,
        ),
        (Some(docker), Some(podman)) => {
            let native = host_problem.filter(|_| image.is_none()).cloned();
            let none_is_installed = facts.docker.as_ref().is_some_and(|docker| docker.reach == Reach::NoProgram)
                && facts.podman.as_ref().is_some_and(|podman| podman.reach == Reach::NoProgram);
            let problem = EngineError::NoneAvailable { native, docker, podman, none_is_installed };
            (EngineKind::Docker, format!("{why_container}; none is available"), Some(problem.into()))
        }
    };
    EnginePlan::new(kind, reason, config, facts, problem)
}

fn native_problem(facts: &Facts) -> Option<&Error> {
    facts.native.as_ref().and_then(|native| native.problem.as_ref())
}

/// Returns the reason for which kubectl cannot be used. The cluster itself is asked at the launch.
pub fn kubernetes_problem(facts: &KubernetesFacts) -> Option<Error> {
    match &facts.reach {
        Reach::Answers => None,
        Reach::NoProgram => Some(EngineError::KubectlMissing.into()),
        Reach::Denied(error) | Reach::Silent(error) => Some(EngineError::NoCluster { error: error.clone() }.into()),
    }
}

/// Returns the reason for which Docker is not chosen unasked.
pub fn docker_problem(facts: &DockerFacts) -> Option<Error> {
    if facts.program.is_none() || !facts.is_on_another_machine() {
        return docker_silence(facts);
    }
    let (address, chosen_by) = (facts.endpoint.clone(), facts.chosen_by.to_string());
    Some(EngineError::Elsewhere { engine: "Docker", address, chosen_by }.into())
}

/// Returns the reason for which Docker cannot be used.
pub fn docker_silence(facts: &DockerFacts) -> Option<Error> {
    let (endpoint, chosen_by) = (facts.endpoint.clone(), facts.chosen_by.clone());
    let problem = match facts.reach.clone() {
        Reach::NoProgram => EngineError::DockerMissing,
        Reach::Answers => return None,
        Reach::Denied(error) | Reach::Silent(error) if facts.is_on_another_machine() => {
            let chosen_by = chosen_by.to_string();
            EngineError::RemoteSilent { engine: "Docker", address: endpoint, chosen_by, error }
        }
        Reach::Denied(error) => EngineError::DockerDenied { endpoint, error },
        Reach::Silent(error) => EngineError::DockerSilent { endpoint, chosen_by, error },
    };
    Some(problem.into())
}

/// Returns the reason for which Podman is not chosen unasked.
pub fn podman_problem(facts: &PodmanFacts) -> Option<Error> {
    let Some(elsewhere) = facts.elsewhere.clone().filter(|_| facts.program.is_some()) else {
        return podman_silence(facts);
    };
    let (address, chosen_by) = (elsewhere.address, elsewhere.chosen_by.to_owned());
    Some(EngineError::Elsewhere { engine: "Podman", address, chosen_by }.into())
}

/// Returns the reason for which Podman cannot be used.
pub fn podman_silence(facts: &PodmanFacts) -> Option<Error> {
    let problem = match facts.reach.clone() {
        Reach::NoProgram => EngineError::PodmanMissing,
        Reach::Answers => return None,
        Reach::Denied(error) | Reach::Silent(error) => EngineError::PodmanSilent { error },
    };
    Some(problem.into())
}
