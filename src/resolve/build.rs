//! Builds images from the project's `sandbox.Dockerfile` or from the one of an agent's preset.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::preset::Preset;
use crate::config::value::{EngineSetting, ImageRef, Value};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Diagnostic, Kind, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::{EngineKind, Inputs, engine, flat_name};
use crate::process::{Client, Outcome};
use crate::session;
use crate::session_id::random_name;
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// Paths of a project's Dockerfile, of which the first that exists is built.
const PROJECT_FILES: &[&str] = &[".sandpen/sandbox.Dockerfile", ".llxprt/sandbox.Dockerfile"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipe {
    /// `context` is the directory that the Dockerfile may copy from.
    File { file: PathBuf, context: HostPath },
    /// The text of a Dockerfile that is built with an empty context.
    BuiltIn(&'static str),
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("there is no `{}` to build", PROJECT_FILES.join("` or `"))]
    NoProjectFile,
    #[error("flag --file: `{}` is not a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{origin}: the preset `{preset}` has no Dockerfile")]
    NoPresetFile { origin: Origin, preset: String },
    #[error("{origin}: macOS Seatbelt has no images to build")]
    Seatbelt { origin: Origin },
    #[error("{origin}: the engine `{engine}` has no images to build")]
    NoImages { origin: Origin, engine: EngineSetting },
    #[error("`{directory}` cannot be written")]
    NotWritable { directory: HostPath, source: std::io::Error },
    #[error("the image `{image}` could not be built; see the output of {} above", engine.name())]
    Failed { image: ImageRef, engine: EngineKind },
}

impl Diagnostic for BuildError {
    fn kind(&self) -> Kind {
        match self {
            Self::Seatbelt { .. } | Self::NotWritable { .. } | Self::Failed { .. } => Kind::Launch,
            _ => Kind::Usage,
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::NoProjectFile => {
                "write one, name another with -f FILE, or build an agent's image: sandpen build --agent claude"
            }
            Self::NotAFile { .. } => "expected a Dockerfile",
            Self::NoPresetFile { .. } => "name one: sandpen build -f FILE",
            Self::Seatbelt { .. } => "unset it, or use `--engine docker` or `--engine podman`",
            Self::NoImages { .. } => "use `--engine docker` or `--engine podman`",
            Self::NotWritable { .. } | Self::Failed { .. } => return Vec::new(),
        };
        vec![hint.to_owned()]
    }
}

impl Recipe {
    /// Finds the project's Dockerfile and names the image.
    pub fn of_project(host: &Host) -> Result<(Self, ImageRef)> {
        match PROJECT_FILES.iter().find(|file| host.cwd.as_path().join(file).is_file()) {
            Some(file) => Self::of_file(host, Path::new(file)),
            None => Err(BuildError::NoProjectFile.into()),
        }
    }

    /// Uses a Dockerfile by its path. The image is named after the project, with a digest of its
    /// path.
    pub fn of_file(host: &Host, file: &Path) -> Result<(Self, ImageRef)> {
        let path = host.expand(file);
        if !path.is_file() {
            return Err(BuildError::NotAFile { path }.into());
        }
        let name = flat_name(host.cwd.join("image").as_path()).to_ascii_lowercase();
        let image = ImageRef::from_text(&format!("localhost/sandpen/project-{name}"))?;
        Ok((Recipe::File { file: path, context: host.cwd.clone() }, image))
    }

    /// Uses the Dockerfile of an agent's preset.
    pub fn of_agent(host: &Host, agent: &Sourced<String>) -> Result<(Self, ImageRef)> {
        let name = agent.value.as_str();
        // The preset is looked up first, so that the error for a misspelt name suggests the right
        // one.
        Preset::named(host, agent)?;
        let text = Preset::dockerfile(name)
            .ok_or_else(|| BuildError::NoPresetFile { origin: agent.origin.clone(), preset: name.to_owned() })?;
        Ok((Recipe::BuiltIn(text), ImageRef::from_text(&Preset::image(name))?))
    }
}

/// Refuses `--build` with Seatbelt, which has no images.
pub fn refuse_seatbelt(config: &Config) -> Result<()> {
    match (&config.build, config.engine.value) {
        (Some(build), EngineSetting::SandboxExec) => Err(BuildError::Seatbelt { origin: build.origin.clone() }.into()),
        _ => Ok(()),
    }
}

/// Refuses engines that have no images.
pub fn check_engine(config: &Config) -> Result<()> {
    let Sourced { value: engine, origin } = &config.engine;
    match *engine {
        engine @ (EngineSetting::Native | EngineSetting::SandboxExec | EngineSetting::Kubernetes) => {
            Err(BuildError::NoImages { origin: origin.clone(), engine }.into())
        }
        _ => Ok(()),
    }
}

/// Builds with the engine that would run the image.
pub fn run(inputs: Inputs, recipe: &Recipe, tag: &ImageRef, ui: Ui) -> Result<()> {
    check_engine(inputs.config)?;
    let facts = inputs.facts;
    let (engine, _) = engine::choose(inputs)?;
    if let Some(problem) = engine.problem {
        return Err(problem);
    }
    let temporary = facts.session_base.join(format!("build-{}", random_name()));
    let (file, context) = match recipe {
        Recipe::File { file, context } => (file.clone(), context.as_path().to_owned()),
        Recipe::BuiltIn(text) => {
            let directory = temporary.as_path();
            let file = directory.join("Dockerfile");
            fs::create_dir_all(directory)
                .and_then(|()| fs::write(&file, text))
                .map_err(|source| BuildError::NotWritable { directory: temporary.clone(), source })?;
            (file, directory.to_owned())
        }
    };
    let name = engine.kind.name();
    let argv: Vec<OsString> = [
        name.into(),
        "build".into(),
        "--file".into(),
        file.into(),
        "--tag".into(),
        tag.as_str().into(),
        context.into(),
    ]
    .into();
    let progress = Progress::beside(ui, format!("{name} to build {tag}"), || true);
    let outcome = session::run_engine(
        &Client { program: engine.program, path: facts.path.for_host(), machine: None, endpoint: Vec::new() },
        &argv,
    );
    drop(progress);
    let _ = fs::remove_dir_all(temporary.as_path());
    match outcome? {
        Outcome::Exited(0) => Ok(()),
        _ => Err(BuildError::Failed { image: tag.clone(), engine: engine.kind }.into()),
    }
}
