//! Configuration files and profiles: TOML, and JSON as llxprt writes it. Unknown keys are errors.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use super::read::{Language, read};
use super::settings::Settings;
use super::sourced::{Origin, Sourced};
use super::value::{
    AgentMode, Cpus, EngineSetting, Guard, HostRule, ImageRef, Memory, MountRequest, NetworkMode, Pids, Port, Reader,
    TmpMode, UserMode, Value, Variables,
};
use crate::error::Result;

/// The keys of a file; the same for TOML and JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default, expecting = "a table of options")]
struct Document {
    engine: Maybe<EngineSetting>,
    image: Maybe<ImageRef>,
    mounts: Vec<MountRequest>,
    env: Variables,
    ports: Vec<Port>,
    resources: Resources,
    network: Maybe<NetworkMode>,
    allow_hosts: Vec<HostRule>,
    proxy_command: Option<String>,
    ssh_agent: Maybe<AgentMode>,
    user: Maybe<UserMode>,
    tmp: Maybe<TmpMode>,
    engine_flags: Vec<String>,
    include_dirs: Vec<PathBuf>,
    seatbelt_profile: Option<String>,
    agent: Option<String>,
    guard: Maybe<Guard>,
    allow_home: Option<bool>,
    strict: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { cpus = 2, memory = \"4g\" }")]
struct Resources {
    cpus: Maybe<Cpus>,
    memory: Maybe<Memory>,
    pids: Maybe<Pids>,
}

/// A setting that may be absent or empty.
#[derive(Debug)]
struct Maybe<T>(Option<T>);

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Maybe(None)
    }
}

impl<'de, T: Value> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Reader(PhantomData)).map(Maybe)
    }
}

/// Reads a file's text. `name` is how messages call it; relative paths in it are taken from `base`.
pub fn parse(text: &str, language: Language, name: &str, base: Option<&Path>, origin: &Origin) -> Result<Settings> {
    Ok(read::<Document>(text, language, name)?.into_settings(base, origin))
}

impl Document {
    fn into_settings(self, base: Option<&Path>, origin: &Origin) -> Settings {
        fn one<T>(value: Option<T>, origin: &Origin) -> Option<Sourced<T>> {
            value.map(|value| Sourced::new(value, origin.clone()))
        }
        fn many<T>(values: impl IntoIterator<Item = T>, origin: &Origin) -> Vec<Sourced<T>> {
            values.into_iter().map(|value| Sourced::new(value, origin.clone())).collect()
        }
        let text = |value: Option<String>| one(value.filter(|text| !text.is_empty()), origin);
        let rebase = |path: PathBuf| match base {
            Some(base) if !path.starts_with("~") => base.join(path),
            _ => path,
        };
        let mounts = self.mounts.into_iter().map(|mount| MountRequest { from: rebase(mount.from), ..mount });
        Settings {
            engine: one(self.engine.0, origin),
            image: one(self.image.0, origin),
            cpus: one(self.resources.cpus.0, origin),
            memory: one(self.resources.memory.0, origin),
            pids: one(self.resources.pids.0, origin),
            network: one(self.network.0, origin),
            proxy_command: text(self.proxy_command),
            ssh_agent: one(self.ssh_agent.0, origin),
            user: one(self.user.0, origin),
            tmp: one(self.tmp.0, origin),
            seatbelt_profile: text(self.seatbelt_profile),
            agent: text(self.agent),
            guard: one(self.guard.0, origin),
            allow_home: one(self.allow_home, origin),
            strict: one(self.strict, origin),
            build: None,
            name: None,
            keep: None,
            mounts: many(mounts, origin),
            env: many(self.env.0, origin),
            ports: many(self.ports, origin),
            allow_hosts: many(self.allow_hosts, origin),
            engine_flags: many(self.engine_flags, origin),
            include_dirs: many(self.include_dirs.into_iter().map(rebase), origin),
        }
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
