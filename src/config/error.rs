//! The errors of the configuration: a value, a file, a profile, a preset or a project file.

use std::io;
use std::path::PathBuf;

use super::node::{Problem, ProblemKind};
use super::sourced::{Origin, Sourced};
use super::syntax::position;
use super::value::{EnvRequest, InvalidValue, NetworkMode, Port, Value};
use crate::error::{Diagnostic, Kind};
use crate::path::{HostPath, PathError};
use crate::ui::suggest::nearest;

/// An error in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{origin}: {invalid}")]
    Value { origin: Origin, invalid: InvalidValue },
    #[error("env {0}: the value is not UTF-8")]
    NotUtf8(&'static str),
    #[error("{origin}: `{text}` has an unbalanced quote")]
    UnbalancedQuote { origin: Origin, text: String },
    #[error(transparent)]
    InFile(Box<FileError>),
    #[error("{}: port {} cannot be published with the network {}", port.origin, port.value, network_state(network.value))]
    PortWithoutNetwork { port: Sourced<Port>, network: Sourced<NetworkMode> },
    #[error("{filter} asks for a filtered network, but {} says `{}`", network.origin, network.value)]
    NetworkConflict { filter: Origin, network: Sourced<NetworkMode> },
    #[error("cannot read the {what} `{}`", path.display())]
    Read { what: &'static str, path: PathBuf, source: io::Error },
    #[error("flag --env-file: `{}`: line {line} is not a variable", path.display())]
    EnvLine { path: PathBuf, line: usize },
    #[error("{}: there is no profile `{}`", .0.origin, .0.name)]
    UnknownProfile(Box<UnknownName>),
    #[error("`{0}` cannot be the name of a profile")]
    ProfileName(String),
    #[error("a profile `{name}` already exists: `{}`", path.display())]
    ProfileExists { name: String, path: PathBuf },
    #[error("{}: there is no preset for an agent `{}`", .0.origin, .0.name)]
    UnknownPreset(Box<UnknownName>),
    #[error("{file}: key `name`: `{found}` is not the file's name")]
    PresetName { file: HostPath, found: String, expected: String },
    #[error("{file}: key `directories`: `{directory}` holds sandpen's own files")]
    PresetOwnFiles { file: HostPath, directory: HostPath },
    #[error("{file}: key `directories`: `{directory}` is in `{parent}`, which the agent can write to")]
    PresetInWritable { file: HostPath, directory: HostPath, parent: HostPath },
    #[error("`{}` is not a text file of at most 1 MiB", .0.display())]
    ProjectFile(PathBuf),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("cannot record the decision in `{}`", path.display())]
    RecordTrust { path: PathBuf, source: io::Error },
    #[error("cannot remove `{}`", path.display())]
    RemoveTrust { path: PathBuf, source: io::Error },
}

/// A problem in a file, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}:{column}: {}{kind}", key_prefix(key, kind))]
pub struct FileError {
    file: String,
    line: usize,
    column: usize,
    key: String,
    kind: ProblemKind,
}

/// A profile or preset that does not exist.
#[derive(Debug)]
pub struct UnknownName {
    pub origin: Origin,
    pub name: String,
    pub known: Vec<String>,
    /// The directory of the user's files.
    pub directory: PathBuf,
}

impl UnknownName {
    fn did_you_mean(&self) -> Option<String> {
        let near = nearest(&self.name, self.known.iter().map(String::as_str))?;
        Some(format!("did you mean `{near}`?"))
    }
}

impl ConfigError {
    /// Adds the file's name and the line to a problem in its `text`.
    pub fn in_file(file: &str, text: &str, problem: Problem) -> Self {
        let (line, column) = position(text, problem.offset);
        let Problem { key, kind, .. } = problem;
        ConfigError::InFile(Box::new(FileError { file: file.to_owned(), line, column, key, kind }))
    }
}

impl Diagnostic for ConfigError {
    fn kind(&self) -> Kind {
        match self {
            ConfigError::RecordTrust { .. } | ConfigError::RemoveTrust { .. } => Kind::Failed,
            _ => Kind::Usage,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            ConfigError::Value { invalid, .. } => invalid.causes(),
            ConfigError::InFile(error) => match &error.kind {
                ProblemKind::Invalid(invalid) => invalid.causes(),
                _ => Vec::new(),
            },
            ConfigError::Read { source, .. }
            | ConfigError::RecordTrust { source, .. }
            | ConfigError::RemoveTrust { source, .. } => vec![source.to_string()],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ConfigError::Value { invalid, .. } => invalid.hints(),
            ConfigError::NotUtf8(name) => vec![format!("set {name} to plain text, or unset it")],
            ConfigError::UnbalancedQuote { .. } => vec!["expected words as a shell reads them".to_owned()],
            ConfigError::InFile(error) => error.kind.hints(),
            ConfigError::PortWithoutNetwork { network, .. } => {
                vec![format!("the network is {} because of: {}", network_state(network.value), network.origin)]
            }
            ConfigError::NetworkConflict { .. } => {
                vec!["use `--network proxied`, or drop one of the two".to_owned()]
            }
            ConfigError::UnknownProfile(unknown) => {
                let known = format!(
                    "known profiles: {}; yours are in {}",
                    unknown.known.join(", "),
                    unknown.directory.display()
                );
                unknown.did_you_mean().into_iter().chain([known]).collect()
            }
            ConfigError::EnvLine { .. } => vec![format!("expected {}", EnvRequest::FORM)],
            ConfigError::ProfileName(_) => {
                vec!["it becomes the name of a file: no slash, and no dot in front".to_owned()]
            }
            ConfigError::UnknownPreset(unknown) => {
                let known = format!("known presets: {}", unknown.known.join(", "));
                unknown.did_you_mean().into_iter().chain([known]).collect()
            }
            ConfigError::PresetName { expected, .. } => {
                vec![format!("expected `{expected}`, the command that it is for; or rename the file")]
            }
            ConfigError::PresetInWritable { .. } => {
                vec!["leave it out: it is mounted with the other directory".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}

fn key_prefix(key: &str, kind: &ProblemKind) -> String {
    if key.is_empty() || kind.names_key() { String::new() } else { format!("key `{key}`: ") }
}

fn network_state(network: NetworkMode) -> &'static str {
    match network {
        NetworkMode::On => "on",
        NetworkMode::Off => "off",
        NetworkMode::Proxied => "filtered",
    }
}
