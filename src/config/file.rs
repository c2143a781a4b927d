//! Configuration files and profiles: TOML, and JSON as llxprt writes it. Unknown keys are errors.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, schema_for};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::read::{Language, read};
use super::settings::Settings;
use super::sourced::{Origin, Sourced};
use super::value::{
    AgentMode, Cpus, EngineSetting, Guard, HostRule, ImageRef, Memory, MountRequest, NetworkMode, Pids, Port, Reader,
    TmpMode, UserMode, Value, Variables,
};
use crate::error::Result;

/// The keys of a file; the same for TOML and JSON. What is said of a key here is what editors, the manual and `profile init` say.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(title = "sandpen's configuration and profiles", description = "")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default, expecting = "a table of options")]
struct Document {
    /// What runs the sandbox. `auto`: a container engine if an image is named anywhere, else the host's own tools.
    engine: Maybe<EngineSetting>,
    /// The container image. Naming one asks for a container.
    image: Maybe<ImageRef>,
    /// What else is seen inside, read-only unless the mode says otherwise. What is mounted must exist.
    mounts: Vec<MountRequest>,
    /// Further workspace directories, read-write.
    include_dirs: Vec<PathBuf>,
    /// Variables inside, with their values.
    env: Variables,
    /// Ports that the host reaches at 127.0.0.1, also when the guest listens on its own loopback only.
    ports: Vec<Port>,
    /// Limits.
    resources: Resources,
    /// The network policy: as outside, none at all, or only the hosts that are allowed.
    network: Maybe<NetworkMode>,
    /// Hosts that may be reached, on ports 80 and 443 unless one is named. Implies `proxied`.
    allow_hosts: Vec<HostRule>,
    /// A proxy of your own, a command on the host that listens on 8877. Implies `proxied`.
    proxy_command: Option<String>,
    /// Whether the SSH agent is forwarded. Keys never enter; `auto` forwards an agent that answers.
    ssh_agent: Maybe<AgentMode>,
    /// Who the guest is. `auto`: the host's user on Linux, the image's own on macOS.
    user: Maybe<UserMode>,
    /// The temporary directory inside: the sandbox's own, or the host's with all that is in it.
    tmp: Maybe<TmpMode>,
    /// The preset of an agent, or `none`. Without it the command's name decides.
    agent: Option<String>,
    /// What is done about code planted in the repository's Git files.
    guard: Maybe<Guard>,
    /// Permits the whole home as the working directory.
    allow_home: Option<bool>,
    /// What cannot be enforced here is an error, not a warning.
    strict: Option<bool>,
    /// Further flags for Docker or Podman, after sandpen's own.
    engine_flags: Vec<String>,
    /// The Seatbelt profile on macOS: one of six names, or a file of yours. Without it the network policy decides.
    seatbelt_profile: Option<String>,
    /// Where editors find the schema; without effect.
    #[serde(rename = "$schema")]
    #[schemars(with = "Option<String>")]
    _schema: IgnoredAny,
}

/// Limits.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { cpus = 2, memory = \"4g\" }")]
struct Resources {
    /// How many CPUs the sandbox may use.
    cpus: Maybe<Cpus>,
    /// How much memory the sandbox may use.
    memory: Maybe<Memory>,
    /// How many processes and threads the sandbox may have.
    pids: Maybe<Pids>,
}

/// What editors know of a file.
pub fn schema() -> Schema {
    let mut schema = schema_for!(Document);
    schema.remove("description");
    schema
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

impl<T: Value> JsonSchema for Maybe<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
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
