//! Takes layers of package caches for a container. An engine's root keeps notes in a layer that the
//! user cannot remove, so further sandboxes of a project get spare layers beside the project's, which
//! are used again, instead of layers in the directories of their sessions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cache::{CacheLayers, NOT_KEPT, empty};
use super::error::SessionError;
use crate::error::Result;
use crate::launch::ContainerLaunch;
use crate::path::HostPath;
use crate::plan::{Plan, Source};
use crate::ui::Ui;

/// How many sandboxes of a project can run at the same time.
const MAX_SPARE: usize = 1000;

/// The layers of a container while it runs. Dropping it empties spare ones.
#[derive(Default)]
pub struct ContainerLayers {
    project: Option<CacheLayers>,
    spare: Option<(CacheLayers, PathBuf)>,
}

impl ContainerLayers {
    /// Takes the project's layers, or spare ones. Returns a launch with the latter.
    pub fn take(plan: &Plan, launch: &ContainerLaunch, ui: Ui) -> Result<(Self, Option<ContainerLaunch>)> {
        let Some(directory) = &plan.cache_layers else { return Ok((Self::default(), None)) };
        let layers = CacheLayers::take(directory.as_path()).map_err(SessionError::Cache)?;
        if !layers.is_shared() || launch.caches.is_empty() {
            return Ok((ContainerLayers { project: Some(layers), spare: None }, None));
        }
        ui.verbose(NOT_KEPT);
        let (spare, place) = take_spare(directory, launch).map_err(SessionError::Cache)?;
        let changed = launch.with_layers(plan.engine.kind, |layer| place.join(name_of(layer)))?;
        let spare = Some((spare, place.as_path().to_owned()));
        Ok((ContainerLayers { project: None, spare }, Some(changed)))
    }

    /// Notes at the end of the sandbox whether the layers have become too large.
    pub fn finish(mut self) {
        if let Some(layers) = self.project.take() {
            layers.finish();
        }
    }
}

impl Drop for ContainerLayers {
    fn drop(&mut self) {
        if let Some((lock, place)) = self.spare.take() {
            let _ = empty(&place);
            drop(lock);
        }
    }
}

fn name_of(layer: &HostPath) -> &Path {
    layer.as_path().file_name().unwrap_or_default().as_ref()
}

/// Takes the first free directory of spare layers, and empties it: a killed launcher has not.
fn take_spare(project: &HostPath, launch: &ContainerLaunch) -> io::Result<(CacheLayers, HostPath)> {
    for number in 2..MAX_SPARE {
        let mut path = project.as_path().as_os_str().to_owned();
        path.push(format!(".{number}"));
        let place = HostPath::new(path).map_err(io::Error::other)?;
        for cache in &launch.caches {
            let Source::Cache { layer, .. } = &cache.mount.source else { continue };
            for part in ["upper", "work"] {
                fs::create_dir_all(place.join(name_of(layer)).join(part).as_path())?;
            }
        }
        let layers = CacheLayers::take(place.as_path())?;
        if !layers.is_shared() {
            empty(place.as_path())?;
            return Ok((layers, place));
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}
