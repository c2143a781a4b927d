//! Configuration files and profiles: TOML, and JSON as llxprt writes it. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::settings::Settings;
use super::sourced::{Origin, Sourced};
use super::value::{
    AgentMode, Cpus, EngineSetting, EnvRequest, Guard, HostRule, ImageRef, Memory, MountRequest, NetworkMode, Pids,
    Port, TmpMode, UserMode,
};
use crate::error::{Error, Result};
use crate::suggest::nearest;

/// The keys of a file; the same for TOML and JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Document {
    engine: Option<EngineSetting>,
    image: Option<ImageRef>,
    mounts: Vec<MountRequest>,
    env: BTreeMap<String, Scalar>,
    ports: Vec<Port>,
    resources: Resources,
    network: Option<NetworkMode>,
    allow_hosts: Vec<HostRule>,
    proxy_command: Option<String>,
    ssh_agent: Option<AgentMode>,
    user: Option<UserMode>,
    tmp: Option<TmpMode>,
    engine_flags: Vec<String>,
    include_dirs: Vec<PathBuf>,
    seatbelt_profile: Option<String>,
    agent: Option<String>,
    guard: Option<Guard>,
    allow_home: Option<bool>,
    strict: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Resources {
    cpus: Option<Cpus>,
    memory: Option<Memory>,
    pids: Option<Pids>,
}

/// A variable's value in a file: text, or a number or truth value as text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Integer(i64),
    Truth(bool),
}

/// Which language a file is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl Language {
    /// By the file's name.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "json") { Language::Json } else { Language::Toml }
    }
}

/// Reads a file's text. `name` is how messages call it; relative paths in it are taken from `base`.
pub fn parse(text: &str, language: Language, name: &str, base: Option<&Path>, origin: &Origin) -> Result<Settings> {
    let document: Document = match language {
        Language::Toml => toml::Deserializer::parse(text)
            .map_err(|error| (String::new(), error))
            .and_then(|reader| {
                serde_path_to_error::deserialize(reader).map_err(|error| (key(error.path()), error.into_inner()))
            })
            .map_err(|(key, error)| {
                let place = position(text, error.span().map_or(0, |span| span.start));
                invalid(name, place, &key, error.message())
            })?,
        Language::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let document = serde_path_to_error::deserialize(&mut reader);
            let document = document.map_err(|error| (key(error.path()), error.into_inner()));
            document
                .and_then(|document| reader.end().map(|()| document).map_err(|error| (String::new(), error)))
                .map_err(|(key, error)| {
                    let message = error.to_string();
                    // serde_json appends the position, which is said in front here.
                    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
                    invalid(name, (error.line(), error.column()), &key, message)
                })?
        }
    };
    document.into_settings(name, base, origin)
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

/// `resources.memory`; empty at the top of the file.
fn key(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    if path == "." { String::new() } else { path }
}

fn invalid(name: &str, (line, column): (usize, usize), key: &str, message: &str) -> Error {
    let key = if key.is_empty() { String::new() } else { format!("key `{key}`: ") };
    let message = message
        .trim()
        .replace("a boolean", "`true` or `false`")
        .replace("a sequence", "a list")
        .replace("a map", "a table");
    let (message, expected) = match message.split_once("; expected ") {
        Some((message, expected)) => (message.to_owned(), Some(format!("expected {expected}"))),
        None => (message.clone(), None),
    };
    let error =
        Error::usage(format!("{name}:{line}:{column}: {key}{}", message.replace("unknown field", "unknown key")));
    // serde words an unknown key in one fixed way: "unknown field `x`, expected one of `a`, `b`".
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let error = match quoted.split_first() {
        Some((wrong, known)) if message.starts_with("unknown ") => match nearest(wrong, known.iter().copied()) {
            Some(known) => error.hint(format!("did you mean `{known}`?")),
            None => error,
        },
        _ => error,
    };
    match expected {
        Some(expected) => error.hint(expected),
        None => error,
    }
}

impl Document {
    fn into_settings(self, name: &str, base: Option<&Path>, origin: &Origin) -> Result<Settings> {
        fn one<T>(value: Option<T>, origin: &Origin) -> Option<Sourced<T>> {
            value.map(|value| Sourced::new(value, origin.clone()))
        }
        fn many<T>(values: impl IntoIterator<Item = T>, origin: &Origin) -> Vec<Sourced<T>> {
            values.into_iter().map(|value| Sourced::new(value, origin.clone())).collect()
        }
        let rebase = |path: PathBuf| match base {
            Some(base) if !path.starts_with("~") => base.join(path),
            _ => path,
        };
        let env = self
            .env
            .into_iter()
            .map(|(variable, value)| {
                let value = match value {
                    Scalar::Text(text) => text,
                    Scalar::Integer(number) => number.to_string(),
                    Scalar::Truth(truth) => truth.to_string(),
                };
                if EnvRequest::is_name(&variable) && !value.contains('\0') {
                    Ok(EnvRequest { name: variable, value: Some(value) })
                } else {
                    Err(Error::usage(format!(
                        "{name}: key `env.{variable}` is not a variable's name, or its value holds a NUL byte"
                    )))
                }
            })
            .collect::<Result<Vec<_>>>()?;
        let mounts = self.mounts.into_iter().map(|mount| MountRequest { from: rebase(mount.from), ..mount });
        Ok(Settings {
            engine: one(self.engine, origin),
            image: one(self.image, origin),
            cpus: one(self.resources.cpus, origin),
            memory: one(self.resources.memory, origin),
            pids: one(self.resources.pids, origin),
            network: one(self.network, origin),
            proxy_command: one(self.proxy_command, origin),
            ssh_agent: one(self.ssh_agent, origin),
            user: one(self.user, origin),
            tmp: one(self.tmp, origin),
            seatbelt_profile: one(self.seatbelt_profile, origin),
            agent: one(self.agent, origin),
            guard: one(self.guard, origin),
            allow_home: one(self.allow_home, origin),
            strict: one(self.strict, origin),
            build: None,
            mounts: many(mounts, origin),
            env: many(env, origin),
            ports: many(self.ports, origin),
            allow_hosts: many(self.allow_hosts, origin),
            engine_flags: many(self.engine_flags, origin),
            include_dirs: many(self.include_dirs.into_iter().map(rebase), origin),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, language: Language) -> Result<Settings> {
        parse(text, language, "f", None, &Origin::Profile("p".into()))
    }

    #[test]
    fn llxprt_profiles_load_unchanged() {
        let text = r#"{"engine":"podman","image":"x:1","resources":{"cpus":2,"memory":"4g","pids":256},"network":"on",
            "sshAgent":"auto","mounts":[{"from":"~/a","to":"/a","mode":"rw"}],"env":{"A":"b"}}"#;
        let settings = read(text, Language::Json);
        let settings = settings.as_ref();
        assert_eq!(settings.map(|s| s.cpus.as_ref().map(|c| c.value.to_string())), Ok(Some("2".into())));
        assert_eq!(settings.map(|s| s.mounts.len() + s.env.len()), Ok(2));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place_and_the_nearest_known_key() {
        let error = read("engine = \"docker\"\nnetwrok = \"on\"\n", Language::Toml).err();
        let error = error.as_ref();
        assert!(error.is_some_and(|e| e.message().contains("unknown key `netwrok`")), "{error:?}");
        assert_eq!(error.map(|e| e.hints().to_vec()), Some(vec!["did you mean `network`?".to_owned()]));
        let error = read("{\"sshagent\": \"on\"}", Language::Json).err();
        assert_eq!(error.as_ref().map(|e| e.hints().to_vec()), Some(vec!["did you mean `sshAgent`?".to_owned()]));
    }

    #[test]
    fn a_wrong_value_names_itself_and_the_form() {
        for (text, part) in [
            ("resources.memory = \"lots\"", "`lots` is not an amount of memory"),
            ("ports = [0]", "`0` is not a port"),
            ("network = \"maybe\"", "key `network`: `maybe` is not a network policy"),
        ] {
            let error = read(text, Language::Toml).err();
            assert!(error.as_ref().is_some_and(|e| e.message().contains(part)), "{error:?}");
        }
    }
}
