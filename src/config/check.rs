//! Reads every configuration file by itself, for `doctor`, which reports all mistakes and not only
//! the first.

use std::path::PathBuf;

use super::error::ConfigError;
use super::preset::{self, Preset, own_names};
use super::profile::{self, Profile};
use super::project::ProjectFile;
use super::sourced::Origin;
use super::{Options, Settings, user_file};
use crate::error::Error;
use crate::host::Host;

/// A file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// The kind of file, such as `profile review`.
    pub what: String,
    pub path: PathBuf,
    pub effect: Effect,
    pub error: Option<Error>,
}

/// When a file takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Now,
    /// If `--profile` or `--agent` names it.
    WhenNamed,
    /// After `sandpen trust`.
    WhenTrusted,
}

/// Reads all files. `agent` is the preset that applies.
pub fn files(host: &Host, options: &Options, agent: Option<&str>) -> Vec<FoundFile> {
    let mut files = Vec::new();
    let mut add = |what: String, path: PathBuf, effect: Effect, read: Result<(), ConfigError>| {
        files.push(FoundFile { what, path, effect, error: read.err().map(Error::from) });
    };
    let own = host.config_dir().join("config.toml");
    if own.as_path().symlink_metadata().is_ok() {
        add("user file".into(), own.as_path().to_owned(), Effect::Now, user_file(host).map(drop));
    }
    match ProjectFile::find(host) {
        Ok(None) => {}
        Ok(Some(file)) => {
            let effect = if file.is_trusted(host) { Effect::Now } else { Effect::WhenTrusted };
            add("project file".into(), file.path(), effect, file.settings().map(drop));
        }
        // The error stops every run, whether the file is trusted or not.
        Err(error) => {
            let path = match &error {
                ConfigError::ProjectFile(path) => path.clone(),
                _ => host.cwd.join(".sandpen/config.toml").as_path().to_owned(),
            };
            add("project file".into(), path, Effect::Now, Err(error))
        }
    }
    let flags = Settings::from_flags(options).unwrap_or_default();
    let environment = Settings::from_environment(&host.env).unwrap_or_default();
    let named = flags.over(environment).profile.map(|named| named.value);
    for name in profile::names(host) {
        let found = Profile::find(host, &name, &Origin::Flag("--profile"));
        let path = match &found {
            Ok(Profile { file: None, .. }) => continue,
            Ok(Profile { file: Some(file), .. }) => file.clone(),
            Err(ConfigError::Read { path, .. }) => path.clone(),
            Err(_) => profile::directory(host).join(&name),
        };
        let effect = if named.as_deref() == Some(name.as_str()) { Effect::Now } else { Effect::WhenNamed };
        add(format!("profile {name}"), path, effect, found.and_then(|profile| profile.settings()).map(drop));
    }
    for name in own_names(host) {
        let path = preset::directory(host).join(format!("{name}.toml")).as_path().to_owned();
        let effect = if agent == Some(name.as_str()) { Effect::Now } else { Effect::WhenNamed };
        add(format!("preset {name}"), path, effect, Preset::own(host, &name).map(drop));
    }
    files
}
