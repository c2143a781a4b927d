//! Presets: the directories, variables, hosts and image of an agent. Each preset is a TOML file.

use super::project::MAX_FILE_SIZE;
use std::io::ErrorKind;

use serde_json::{Value as Json, json};

use super::error::{ConfigError, UnknownName};
use super::file::merge;
use super::login::LoginForm;
use super::node::{FromNode, table_value};
use super::sourced::Sourced;
use super::syntax::{self, Language};
use super::value::{
    Access, EnvRequest, HomePath, HostRule, ImageRef, PartName, RestartCode, SecretHeader, SecretHost, VariableName,
};
use crate::host::Host;
use crate::path::{GuestPath, HostPath};
use crate::process::untrusted;

/// The built-in presets: name, data, and the Dockerfile that `sandpen build --agent NAME` builds.
const BUILT_IN: &[(&str, &str, &str)] = &[
    ("llxprt", include_str!("presets/llxprt.toml"), include_str!("presets/llxprt.Dockerfile")),
    ("gemini", include_str!("presets/gemini.toml"), include_str!("presets/gemini.Dockerfile")),
    ("claude", include_str!("presets/claude.toml"), include_str!("presets/claude.Dockerfile")),
    ("codex", include_str!("presets/codex.toml"), include_str!("presets/codex.Dockerfile")),
    ("aider", include_str!("presets/aider.toml"), include_str!("presets/aider.Dockerfile")),
    ("opencode", include_str!("presets/opencode.toml"), include_str!("presets/opencode.Dockerfile")),
    ("copilot", include_str!("presets/copilot.toml"), include_str!("presets/copilot.Dockerfile")),
    ("qwen", include_str!("presets/qwen.toml"), include_str!("presets/qwen.Dockerfile")),
    ("amp", include_str!("presets/amp.toml"), include_str!("presets/amp.Dockerfile")),
    ("goose", include_str!("presets/goose.toml"), include_str!("presets/goose.Dockerfile")),
    ("cursor-agent", include_str!("presets/cursor-agent.toml"), include_str!("presets/cursor-agent.Dockerfile")),
    ("crush", include_str!("presets/crush.toml"), include_str!("presets/crush.Dockerfile")),
];

/// The name that stands for no preset.
pub const NONE: &str = "none";

table_value! {
    /// The directories, variables, hosts and image of one agent.
    #[expected = "a preset: name = \"…\" and what it needs"]
    pub struct Preset {
        /// The agent's name, which is also the name of the command that selects it.
        pub name: String,
        /// The image that the agent's project publishes.
        pub image: Option<ImageRef>,
        /// The home directory of the image's user.
        pub image_home: Option<GuestPath>,
        /// Variables with keys and tokens, passed by name.
        pub secrets: Vec<VariableName>,
        /// The hosts of keys, whose values then stay outside.
        pub keys: Vec<PresetKey>,
        /// The version of the agent with which keys outside were seen to work.
        pub keys_outside: Option<String>,
        /// The agent's logins, whose tokens then stay outside.
        pub logins: Vec<LoginForm>,
        /// Variables passed with their values.
        pub variables: Vec<VariableName>,
        /// Variables that name a file, which is mounted read-only.
        pub credential_files: Vec<VariableName>,
        /// Variables that are set inside as `NAME=VALUE`, unless the host sets them.
        pub set: Vec<EnvRequest>,
        /// The exit code with which the agent asks to be started again.
        pub restart_on: Option<RestartCode>,
        /// Hosts that the agent needs when the network is filtered.
        pub hosts: Vec<HostRule>,
        /// Whether the agent runs commands in a sandbox of its own.
        pub nested: bool,
        /// Arguments that turn the agent's own sandbox off; the first is proposed where it cannot work.
        pub sandbox_off: Vec<String>,
        /// The agent's directories and files on the host.
        pub directories: Vec<Directory>,
    }
}

table_value! {
    /// A key among `secrets`, and the hosts that get it.
    #[expected = "a table such as { name = \"MINE_API_KEY\", hosts = [\"api.example.org\"] }"]
    pub struct PresetKey {
        /// The variable.
        pub name: VariableName,
        /// The hosts that get the value.
        pub hosts: Vec<SecretHost>,
        /// The header that carries it.
        pub header: Option<SecretHeader>,
        /// The variable with a URL that the agent uses in place of its usual host.
        pub base_url: Option<VariableName>,
    }
}

table_value! {
    /// A directory or file where an agent keeps its state.
    #[expected = "a table such as { path = \"~/…\", reason = \"…\" }"]
    pub struct Directory {
        /// The path, which starts with `~/`.
        pub path: HomePath,
        /// Whether the agent may write.
        pub mode: Access,
        /// Whether a missing one is created on the host, so that a first login is not lost.
        pub create: bool,
        /// The content of a file that is created on the host if it is missing.
        pub content: Option<String>,
        /// Whether the directory is the sandboxes' own inside: the host's `obeyed` parts are brought in and never out.
        pub own: bool,
        /// The parts of such a directory that are the host's inside: `NAME`, or `NAME/` for a directory.
        pub shared: Vec<PartName>,
        /// The keys of a JSON file that come out of the sandbox, such as `projects.*.history`.
        pub shared_keys: Vec<String>,
        /// A description for `explain`.
        pub reason: String,
        /// Files in it that the agent obeys on the host; changes by the sandbox are reported.
        pub obeyed: Vec<String>,
    }
}

impl Preset {
    /// Finds a preset by name: the user's file, else the built-in one. `none` is no preset.
    pub fn named(host: &Host, agent: &Sourced<String>) -> Result<Option<Self>, ConfigError> {
        let name = agent.value.as_str();
        if name == NONE {
            return Ok(None);
        }
        if let Some(preset) = Self::own(host, name)? {
            return Ok(Some(preset));
        }
        if let Some((_, text, _)) = BUILT_IN.iter().find(|(known, ..)| *known == name) {
            return Self::parse(text, &format!("built-in preset {name}")).map(Some);
        }
        let built_in = BUILT_IN.iter().map(|(name, ..)| (*name).to_owned());
        let known: Vec<String> = built_in.chain(own_names(host)).chain([NONE.to_owned()]).collect();
        Err(ConfigError::UnknownPreset(Box::new(UnknownName {
            origin: agent.origin.clone(),
            name: name.to_owned(),
            known,
            directory: directory(host).as_path().to_owned(),
        })))
    }

    /// Lists all presets: the built-in ones, then the user's own. An own one replaces a built-in one
    /// of its name.
    pub fn all(host: &Host) -> Result<Vec<(Self, Option<HostPath>)>, ConfigError> {
        let own = own_names(host);
        let built_in = BUILT_IN.iter().map(|(name, ..)| (*name).to_owned()).filter(|name| !own.contains(name));
        let names: Vec<String> = built_in.chain(own.iter().cloned()).collect();
        let mut presets = Vec::new();
        for name in names {
            let file = own.contains(&name).then(|| directory(host).join(format!("{name}.toml")));
            presets.extend(Self::named(host, &Sourced::default(name))?.map(|preset| (preset, file)));
        }
        Ok(presets)
    }

    /// Finds the preset that a command's name selects.
    pub fn for_command(host: &Host, command: &str) -> Result<Option<Self>, ConfigError> {
        // The names are compared first, so that no data is parsed for other commands.
        if BUILT_IN.iter().any(|(name, ..)| *name == command) {
            Self::named(host, &Sourced::default(command.to_owned()))
        } else {
            Self::own(host, command)
        }
    }

    /// Returns the JSON schema of a preset's file, for editors.
    pub fn file_schema() -> Json {
        let mut schema = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Preset" });
        merge(&mut schema, Preset::schema());
        schema
    }

    /// Returns the name of the image that `sandpen build --agent NAME` makes.
    pub fn image(name: &str) -> String {
        format!("localhost/sandpen/{name}")
    }

    /// Returns the Dockerfile of a built-in preset.
    pub fn dockerfile(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, ..)| *known == name).map(|(.., dockerfile)| *dockerfile)
    }

    pub(super) fn own(host: &Host, name: &str) -> Result<Option<Self>, ConfigError> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Ok(None);
        }
        let path = directory(host).join(format!("{name}.toml"));
        match untrusted::read_linked(path.as_path(), MAX_FILE_SIZE) {
            Ok(text) => Self::parse(&text, &path.to_string())?.check(host, name, &path).map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(source) => Err(ConfigError::Read { what: "preset file", path: path.as_path().to_owned(), source }),
        }
    }

    fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        let preset = syntax::parse(text, Language::Toml).and_then(|root| Self::from_node(&root));
        preset.map_err(|problem| ConfigError::in_file(name, text, problem))
    }

    /// Refuses what is wrong only in combination with the host or another key.
    fn check(self, host: &Host, name: &str, file: &HostPath) -> Result<Self, ConfigError> {
        let file = file.clone();
        if self.name != name {
            return Err(ConfigError::PresetName { file, found: self.name, expected: name.to_owned() });
        }
        let places: Vec<(HostPath, Access)> =
            self.directories.iter().map(|entry| (host.home.join(entry.path.below()), entry.mode)).collect();
        for (place, _) in &places {
            let directory = place.clone();
            // The usual places are refused by name; these may be elsewhere.
            if host.keeps_files_in(place) {
                return Err(ConfigError::PresetOwnFiles { file, directory });
            }
            // In a writable directory the agent could plant a link, and so choose the next mount.
            let is_above =
                |other: &&(HostPath, Access)| other.1 == Access::Rw && other.0 != *place && place.is_within(&other.0);
            if let Some((parent, _)) = places.iter().find(is_above) {
                return Err(ConfigError::PresetInWritable { file, directory, parent: parent.clone() });
            }
        }
        Ok(self)
    }
}

/// Returns the directory of the user's presets.
pub(super) fn directory(host: &Host) -> HostPath {
    host.config_dir().join("presets")
}

/// Lists the names of the user's presets.
pub(super) fn own_names(host: &Host) -> Vec<String> {
    let entries = std::fs::read_dir(directory(host).as_path()).into_iter().flatten().flatten();
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
            assert_eq!(preset.map(|preset| preset.name).map_err(|error| error.to_string()), Ok((*name).to_owned()));
            assert!(dockerfile.lines().any(|line| line.starts_with("FROM ")), "{name}");
        }
    }
}
