//! Presets: what an agent needs, as data. A preset is a TOML file; adding an agent is adding one.

use std::io::ErrorKind;

use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;

use super::read::{Language, read};
use super::sourced::Sourced;
use super::value::{Access, HomePath, HostRule, ImageRef, VariableName};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::{GuestPath, HostPath};
use crate::ui::suggest::nearest;

/// The built-in ones: name, data, and the Dockerfile that `sandpen build --agent NAME` builds.
const BUILT_IN: &[(&str, &str, &str)] = &[
    ("llxprt", include_str!("presets/llxprt.toml"), include_str!("presets/llxprt.Dockerfile")),
    ("gemini", include_str!("presets/gemini.toml"), include_str!("presets/gemini.Dockerfile")),
    ("claude", include_str!("presets/claude.toml"), include_str!("presets/claude.Dockerfile")),
    ("codex", include_str!("presets/codex.toml"), include_str!("presets/codex.Dockerfile")),
    ("aider", include_str!("presets/aider.toml"), include_str!("presets/aider.Dockerfile")),
];

/// What one agent needs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a preset: name = \"…\" and what it needs")]
pub struct Preset {
    /// Its name, which is also the name of the command that selects it.
    pub name: String,
    /// The image its project publishes.
    pub image: Option<ImageRef>,
    /// The home directory of that image's own user.
    pub image_home: Option<GuestPath>,
    /// Variables with keys and tokens, passed by name.
    #[serde(default)]
    pub secrets: Vec<VariableName>,
    /// Variables passed with their values.
    #[serde(default)]
    pub variables: Vec<VariableName>,
    /// Variables that name a file, which is mounted read-only.
    #[serde(default)]
    pub credential_files: Vec<VariableName>,
    /// Hosts it needs when the network is filtered.
    #[serde(default)]
    pub hosts: Vec<HostRule>,
    /// Its directories and files on the host.
    #[serde(default)]
    pub directories: Vec<Directory>,
}

/// A directory or file where an agent keeps its state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { path = \"~/…\", reason = \"…\" }")]
pub struct Directory {
    /// Where.
    pub path: HomePath,
    /// Whether the agent may write.
    #[serde(default)]
    pub mode: Access,
    /// Whether it is made on the host when it is missing, so that a first login is not lost.
    #[serde(default)]
    pub create: bool,
    /// What it is, for `explain`.
    pub reason: String,
    /// What lies in it and is run or obeyed by the agent on the host: reported when the sandbox changed it.
    #[serde(default)]
    pub obeyed: Vec<String>,
}

impl Preset {
    /// The preset of this name: the user's own file, else the built-in one. `none` is no preset.
    pub fn named(host: &Host, agent: &Sourced<String>) -> Result<Option<Self>> {
        let name = agent.value.as_str();
        if name == "none" {
            return Ok(None);
        }
        if let Some(preset) = Self::own(host, name)? {
            return Ok(Some(preset));
        }
        if let Some((_, text, _)) = BUILT_IN.iter().find(|(known, ..)| *known == name) {
            return Self::parse(text, &format!("built-in preset {name}")).map(Some);
        }
        let built_in = BUILT_IN.iter().map(|(name, ..)| (*name).to_owned());
        let known: Vec<String> = built_in.chain(own_names(host)).chain(["none".to_owned()]).collect();
        let error = Error::usage(format!("{}: there is no preset for an agent `{name}`", agent.origin));
        let error = match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error,
        };
        Err(error.hint(format!("known presets: {}", known.join(", "))))
    }

    /// The preset that a command's name selects, if any.
    pub fn for_command(host: &Host, command: &str) -> Result<Option<Self>> {
        // The names are compared first, so that no data is parsed for other commands.
        match BUILT_IN.iter().any(|(name, ..)| *name == command) {
            true => Self::named(host, &Sourced::default(command.to_owned())),
            false => Self::own(host, command),
        }
    }

    /// What editors know of a preset's file.
    pub fn schema() -> Schema {
        schema_for!(Preset)
    }

    /// The name of the image that `sandpen build --agent NAME` makes.
    pub fn image(name: &str) -> String {
        format!("localhost/sandpen/{name}")
    }

    /// The Dockerfile of a built-in preset.
    pub fn dockerfile(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, ..)| *known == name).map(|(.., dockerfile)| *dockerfile)
    }

    pub(super) fn own(host: &Host, name: &str) -> Result<Option<Self>> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Ok(None);
        }
        let path = host.config_dir().join("presets").join(format!("{name}.toml"));
        match std::fs::read_to_string(path.as_path()) {
            Ok(text) => Self::parse(&text, &path.to_string())?.checked(host, name, &path).map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(Error::usage(format!("the preset file `{path}` cannot be read")).cause(error)),
        }
    }

    fn parse(text: &str, name: &str) -> Result<Self> {
        read(text, Language::Toml, name)
    }

    /// What no key shows by itself.
    fn checked(self, host: &Host, name: &str, file: &HostPath) -> Result<Self> {
        if self.name != name {
            return Err(Error::usage(format!("{file}: key `name`: `{}` is not the file's name", self.name))
                .hint(format!("expected `{name}`, the command that it is for; or rename the file")));
        }
        let places: Vec<(HostPath, Access)> =
            self.directories.iter().map(|entry| (host.home.join(entry.path.below()), entry.mode)).collect();
        for (place, _) in &places {
            let wrong = |why: String| Error::usage(format!("{file}: key `directories`: `{place}` {why}"));
            // Wherever they are: the usual places are refused by name.
            if host.keeps_files_in(place) {
                return Err(wrong("holds sandpen's own files".into()));
            }
            // Below it the agent could plant a link, and choose with it what is mounted the next time.
            let is_above =
                |other: &&(HostPath, Access)| other.1 == Access::Rw && other.0 != *place && place.is_within(&other.0);
            if let Some((above, _)) = places.iter().find(is_above) {
                return Err(wrong(format!("lies in `{above}`, which the agent may write to"))
                    .hint("leave it out: what is there is shown already"));
            }
        }
        Ok(self)
    }
}

/// The names of the user's own presets.
pub(super) fn own_names(host: &Host) -> Vec<String> {
    let entries = std::fs::read_dir(host.config_dir().join("presets").as_path()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_preset_parses_and_answers_to_its_name() {
        for (name, text, dockerfile) in BUILT_IN {
            let preset = Preset::parse(text, name);
            assert_eq!(preset.as_ref().map(|p| p.name.as_str()), Ok(*name));
            assert!(dockerfile.lines().any(|line| line.starts_with("FROM ")), "{name}");
        }
    }
}
