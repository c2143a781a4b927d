//! Every configuration file there is, each read on its own: for `doctor`, which names all mistakes and not only the first.

use std::path::PathBuf;

use super::preset::{Preset, own_names};
use super::profile::{self, Profile};
use super::project::ProjectFile;
use super::sourced::Origin;
use super::{environment, user_file};
use crate::cli::Options;
use crate::error::{Error, Result};
use crate::host::Host;

/// A file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// What it is.
    pub what: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it takes part now.
    pub effect: Effect,
    /// What is wrong with it.
    pub error: Option<Error>,
}

/// Whether a file takes part in what `run` would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It does.
    Now,
    /// When it is named.
    WhenNamed,
    /// After `sandpen trust`.
    WhenTrusted,
}

/// All of them. `agent` is the preset that applies.
pub fn files(host: &Host, options: &Options, agent: Option<&str>) -> Vec<FoundFile> {
    let mut files = Vec::new();
    let mut add = |what: String, path: PathBuf, effect: Effect, read: Result<()>| {
        files.push(FoundFile { what, path, effect, error: read.err() });
    };
    let own = host.config_dir().join("config.toml");
    if own.as_path().symlink_metadata().is_ok() {
        add("yours".into(), own.as_path().to_owned(), Effect::Now, user_file(host).map(drop));
    }
    match ProjectFile::find(host) {
        Ok(None) => {}
        Ok(Some(file)) => {
            let effect = if file.is_trusted(host) { Effect::Now } else { Effect::WhenTrusted };
            add("the project's".into(), file.path(), effect, file.settings().map(drop));
        }
        // It stops every run, trusted or not.
        Err(error) => {
            add("the project's".into(), host.cwd.join(".sandpen/config.toml").as_path().into(), Effect::Now, Err(error))
        }
    }
    let named = options.profile.clone().filter(|name| !name.is_empty());
    let named = named.or_else(|| environment::profile(&host.env).ok().flatten().map(|named| named.value));
    for name in profile::names(host) {
        let found = Profile::find(host, &name, &Origin::Flag("--profile"));
        let path = match &found {
            Ok(Profile { file: None, .. }) => continue,
            Ok(Profile { file: Some(file), .. }) => file.clone(),
            Err(_) => profile::directory(host).join(&name),
        };
        let effect = if named.as_deref() == Some(name.as_str()) { Effect::Now } else { Effect::WhenNamed };
        add(format!("profile {name}"), path, effect, found.and_then(|profile| profile.settings()).map(drop));
    }
    for name in own_names(host) {
        let path = host.config_dir().join("presets").join(format!("{name}.toml")).as_path().to_owned();
        let effect = if agent == Some(name.as_str()) { Effect::Now } else { Effect::WhenNamed };
        add(format!("preset {name}"), path, effect, Preset::own(host, &name).map(drop));
    }
    files
}
