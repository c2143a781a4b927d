//! Brings an image into sandpen's own store before a native launch: from a container engine of this
//! machine that has it, or from its registry.

use std::cell::Cell;
use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Resolved;
use crate::config::value::ImageRef;
use crate::error::Result;
use crate::facts::image::{self, Inspection};
use crate::facts::{DockerFacts, PodmanFacts, Reach, RootImageFacts, SearchPath};
use crate::host::Host;
use crate::image::archive::{ArchiveSource, import};
use crate::image::pull::{Logins, PullContext, PullProgress, pull};
use crate::image::{ImageError, Store, StoredImage};
use crate::path::HostPath;
use crate::plan::{EngineKind, engine};
use crate::process::Client;
use crate::tls;
use crate::ui::{Ui, size};

const STATUS_INTERVAL: Duration = Duration::from_millis(200);

impl Resolved {
    /// Adds the image to the store, if the launch needs it and the store does not have it.
    pub(super) fn bring_image(&mut self, ui: Ui) -> Result<()> {
        let (engine, image) = engine::choose(self.inputs())?;
        let Some(image) = image.filter(|_| engine.kind == EngineKind::Native && self.facts.root_image.is_none()) else {
            return Ok(());
        };
        let is_usable = self.facts.native.as_ref().is_some_and(|native| native.problem.is_none());
        if is_usable {
            if !self.take_from_engine(&image.reference, ui)? {
                if image.reference.is_local() {
                    return Err(ImageError::Local { reference: image.reference.to_string() }.into());
                }
                ui.notice(&format!("pulling {}", image.reference));
                pull_image(&self.host, &image.reference, &self.facts.path, ui)?;
            }
            self.facts.root_image = RootImageFacts::look(&self.host, &image.reference);
        }
        Ok(())
    }

    /// Takes the image from an engine of this machine. Returns whether one has it.
    fn take_from_engine(&self, image: &ImageRef, ui: Ui) -> Result<bool> {
        for (engine, program) in self.answering_engines() {
            let client = Client {
                program: Some(program),
                path: self.facts.path.for_host(),
                machine: None,
                endpoint: Vec::new(),
            };
            if !matches!(image::inspect(&client, image), Inspection::Known(_)) {
                continue;
            }
            ui.notice(&format!("taking {image} from {engine}"));
            save(&client, image, engine, &Store::of(&self.host))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Lists the engines that answer at once, with their programs.
    fn answering_engines(&self) -> Vec<(&'static str, HostPath)> {
        let docker = DockerFacts::look(&self.host, self.facts.path.find("docker"));
        let podman = PodmanFacts::look(&self.host, self.facts.path.find("podman"));
        let docker = docker.program.filter(|_| docker.reach == Reach::Answers);
        let podman = podman.program.filter(|_| podman.reach == Reach::Answers);
        [("Docker", docker), ("Podman", podman)]
            .into_iter()
            .filter_map(|(name, program)| Some((name, program?)))
            .collect()
    }
}

/// Pulls an image from its registry. Credential helpers are searched on `path`.
pub fn pull_image(host: &Host, image: &ImageRef, path: &SearchPath, ui: Ui) -> Result<StoredImage> {
    let client = tls::Client::new(host).map_err(ImageError::Tls)?;
    let find_program = |name: &str| {
        let program = path.find(name)?;
        Some(Client { program: Some(program), path: path.for_host(), machine: None, endpoint: Vec::new() })
    };
    let last = Cell::new(None::<Instant>);
    let shows = ui.has_status_line() && !ui.is_quiet();
    let report = |progress: PullProgress| {
        let is_due = last.get().is_none_or(|last| last.elapsed() >= STATUS_INTERVAL);
        if shows && is_due {
            last.set(Some(Instant::now()));
            let (done, total) = (size(progress.bytes), size(progress.total));
            ui.status(&format!("pulling {image}: layer {} of {}, {done} of {total}", progress.layer, progress.layers));
        }
    };
    let context = PullContext {
        client: &client,
        logins: Logins::of(host, &find_program),
        architecture: host.arch,
        report: &report,
    };
    let pulled = pull(&Store::of(host), image, &context);
    if last.get().is_some() {
        ui.status("");
    }
    Ok(pulled?)
}

/// Imports what the engine's `save` prints.
fn save(client: &Client, image: &ImageRef, engine: &'static str, store: &Store) -> Result<()> {
    let failed = |source| ImageError::Engine { reference: image.to_string(), engine, source };
    let mut command = client.quiet_command(["save", image.as_str()])?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().map_err(failed)?;
    let output = child.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    let origin = format!("taken from {engine}");
    let imported = import(store, output, &ArchiveSource { name: image.as_str(), tag: Some(image), origin: &origin });
    if imported.is_err() {
        // It may wait for its output to be read.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    let imported = imported.map(drop);
    if imported.is_ok() && !status.success() {
        return Err(failed(io::Error::other(format!("`save` ended with {status}"))).into());
    }
    Ok(imported?)
}
