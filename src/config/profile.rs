//! Profiles: named sets of options, built in or from the user's files.

use super::project::MAX_FILE_SIZE;
use std::path::PathBuf;

use super::error::{ConfigError, UnknownName};
use super::file;
use super::options::Settings;
use super::sourced::Origin;
use super::syntax::Language;
use crate::host::Host;
use crate::process::untrusted;

/// The built-in profiles: name and TOML text. `offline` is another name for `safe`: llxprt has
/// both.
const BUILT_IN: &[(&str, &str)] = &[
    ("dev", include_str!("profiles/dev.toml")),
    ("safe", include_str!("profiles/safe.toml")),
    ("tight", include_str!("profiles/tight.toml")),
    ("offline", include_str!("profiles/safe.toml")),
];

/// The text of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    /// `None` for a built-in one.
    pub file: Option<PathBuf>,
    pub text: String,
}

impl Profile {
    /// Finds a profile: the user's file of that name, else the built-in one.
    pub fn find(host: &Host, name: &str, origin: &Origin) -> Result<Self, ConfigError> {
        for file in is_plain(name).then(|| candidates(host, name)).into_iter().flatten() {
            match untrusted::read_linked(&file, MAX_FILE_SIZE) {
                Ok(text) => return Ok(Profile { name: name.to_owned(), file: Some(file), text }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(ConfigError::Read { what: "profile file", path: file, source }),
            }
        }
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Ok(Profile { name: name.to_owned(), file: None, text: (*text).to_owned() });
        }
        Err(ConfigError::UnknownProfile(Box::new(UnknownName {
            origin: origin.clone(),
            name: name.to_owned(),
            known: names(host),
            directory: directory(host),
        })))
    }

    /// Reads the profile's text.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let (name, language) = match &self.file {
            Some(file) => (file.display().to_string(), Language::of(file)),
            None => (format!("built-in profile {}", self.name), Language::Toml),
        };
        file::parse(&self.text, language, &name, None, &Origin::Profile(self.name.clone()))
    }
}

/// Returns the path for a new profile.
pub fn new_file(host: &Host, name: &str) -> Result<PathBuf, ConfigError> {
    if !is_plain(name) {
        return Err(ConfigError::ProfileName(name.to_owned()));
    }
    let [toml, json] = candidates(host, name);
    if json.symlink_metadata().is_ok() {
        return Err(ConfigError::ProfileExists { name: name.to_owned(), path: json });
    }
    Ok(toml)
}

/// Whether the name is a file name, and not a path to somewhere else.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Returns the directory of the user's profiles.
pub fn directory(host: &Host) -> PathBuf {
    host.config_dir().join("profiles").as_path().to_owned()
}

fn candidates(host: &Host, name: &str) -> [PathBuf; 2] {
    ["toml", "json"].map(|extension| directory(host).join(format!("{name}.{extension}")))
}

/// Lists the names of all profiles, built in and the user's, sorted.
pub fn names(host: &Host) -> Vec<String> {
    let own = std::fs::read_dir(directory(host)).into_iter().flatten().flatten().filter_map(|entry| {
        let path = entry.path();
        let known = path.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        known.then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten()
    });
    let mut names: Vec<String> = own.chain(BUILT_IN.iter().map(|(name, _)| (*name).to_owned())).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_parse_to_the_documented_values() {
        for (name, cpus, memory, pids, network, agent) in [
            ("dev", "2", "4g", 256, "on", "auto"),
            ("safe", "2", "4g", 128, "off", "off"),
            ("offline", "2", "4g", 128, "off", "off"),
            ("tight", "1", "2g", 64, "off", "off"),
        ] {
            let text = BUILT_IN.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| *text);
            let settings = file::parse(text, Language::Toml, name, None, &Origin::Default);
            let values = settings.map(|s| {
                let show = |value: Option<String>| value.unwrap_or_default();
                (
                    show(s.cpus.map(|v| v.value.to_string())),
                    show(s.memory.map(|v| v.value.to_string())),
                    s.pids.map(|v| v.value.0),
                    show(s.network.map(|v| v.value.to_string())),
                    show(s.ssh_agent.map(|v| v.value.to_string())),
                )
            });
            let values = values.map_err(|error| error.to_string());
            assert_eq!(values, Ok((cpus.into(), memory.into(), Some(pids), network.into(), agent.into())));
        }
    }
}
