//! Builds images: the project's `sandbox.Dockerfile`, or an agent's own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::preset::Preset;
use crate::config::value::{EngineSetting, ImageRef, Value};
use crate::config::{Config, Sourced};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::{Inputs, engine, flat_name};
use crate::process::Client;
use crate::process::Outcome;
use crate::session;
use crate::session_id::SessionId;
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// Where a project keeps its Dockerfile, the first that exists.
const PROJECT_FILES: &[&str] = &[".sandpen/sandbox.Dockerfile", ".llxprt/sandbox.Dockerfile"];

/// What is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipe {
    /// A file, with its project as the context.
    File {
        /// The Dockerfile.
        file: PathBuf,
        /// The directory it may copy from.
        context: HostPath,
    },
    /// A built-in text, without any context.
    BuiltIn(&'static str),
}

impl Recipe {
    /// The project's own Dockerfile, and the image it makes.
    pub fn of_project(host: &Host) -> Result<(Self, ImageRef)> {
        match PROJECT_FILES.iter().find(|file| host.cwd.as_path().join(file).is_file()) {
            Some(file) => Self::of_file(host, Path::new(file)),
            None => Err(Error::usage(format!("there is no `{}` here to build", PROJECT_FILES.join("` or `")))
                .hint("write one, name another with -f FILE, or build an agent's image: sandpen build --agent claude")),
        }
    }

    /// A Dockerfile by name, and the image it makes: named after the project, with a digest to tell projects apart.
    pub fn of_file(host: &Host, file: &Path) -> Result<(Self, ImageRef)> {
        let path = host.expand(file);
        if !path.is_file() {
            return Err(
                Error::usage(format!("flag --file: `{}` is not a file", path.display())).hint("expected a Dockerfile")
            );
        }
        let name = flat_name(host.cwd.join("image").as_path()).to_ascii_lowercase();
        let image = ImageRef::from_text(&format!("localhost/sandpen/project-{name}"))?;
        Ok((Recipe::File { file: path, context: host.cwd.clone() }, image))
    }

    /// The Dockerfile that an agent's preset brings.
    pub fn of_agent(host: &Host, agent: &Sourced<String>) -> Result<(Self, ImageRef)> {
        let name = agent.value.as_str();
        // The name is checked first, so that a misspelt one is answered with what it may have meant.
        Preset::named(host, agent)?;
        let text = Preset::dockerfile(name).ok_or_else(|| {
            Error::usage(format!("{}: the preset `{name}` brings no Dockerfile", agent.origin))
                .hint("name one: sandpen build -f FILE")
        })?;
        Ok((Recipe::BuiltIn(text), ImageRef::from_text(&Preset::image(name))?))
    }
}

/// The seeds' answer to `BUILD_SANDBOX` on macOS Seatbelt.
pub fn refuse_seatbelt(config: &Config) -> Result<()> {
    match (&config.build, config.engine.value) {
        (Some(build), EngineSetting::SandboxExec) => {
            Err(Error::launch(format!("{}: there is no image to build for macOS Seatbelt", build.origin))
                .hint("unset it, or use `--engine docker` or `--engine podman`"))
        }
        _ => Ok(()),
    }
}

/// Refuses the engines that have no images.
pub fn check_engine(config: &Config) -> Result<()> {
    let Sourced { value, origin } = &config.engine;
    match value {
        EngineSetting::Native | EngineSetting::SandboxExec => {
            Err(Error::usage(format!("{origin}: the engine `{value}` has no images to build"))
                .hint("use `--engine docker` or `--engine podman`"))
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
    let temporary = facts.session_base.join(format!("build-{}", SessionId::random()));
    let (file, context) = match recipe {
        Recipe::File { file, context } => (file.clone(), context.as_path().to_owned()),
        Recipe::BuiltIn(text) => {
            let directory = temporary.as_path();
            let write = || -> std::io::Result<()> {
                fs::create_dir_all(directory)?;
                fs::write(directory.join("Dockerfile"), text)
            };
            write().map_err(|error| Error::launch(format!("`{temporary}` cannot be written")).cause(error))?;
            (directory.join("Dockerfile"), directory.to_owned())
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
    let waiting = Progress::beside(ui, format!("{name} to build {tag}"), || true);
    let outcome =
        session::run_engine(&Client { program: engine.program, path: facts.path.for_host(), machine: None }, &argv);
    drop(waiting);
    let _ = fs::remove_dir_all(temporary.as_path());
    match outcome? {
        Outcome::Exited(0) => Ok(()),
        _ => Err(Error::launch(format!("the image `{tag}` could not be built; {name}'s own words are above"))),
    }
}
