//! Every option once: the names it is set by, the form of its values, and the value it has.

use std::fmt::Display;
use std::sync::LazyLock;

use schemars::Schema;
use serde_json::{Map, Value as Json};
use toml::{Table, Value as Toml};

use super::sourced::{Origin, Sourced};
use super::value::{
    AgentMode, Cpus, EngineSetting, EnvRequest, Guard, HostRule, ImageRef, Memory, MountRequest, Name, NetworkMode,
    Pids, Port, TmpMode, UserMode, Value,
};
use super::{Config, file};
use crate::secret::Secret;
use crate::vars::{self, Setting, looks_secret};

/// One option. Not every option can be set everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// Its flag, without dashes.
    pub flag: Option<&'static str>,
    /// Its variables.
    pub variables: Option<Setting>,
    /// Its key in files; `resources.cpus` is `cpus` in the table `resources`.
    pub key: Option<&'static str>,
    /// The form of a value; empty where what is said of it says it all.
    pub form: &'static str,
    /// What a file might say, where there is no default to show; a value in TOML.
    pub example: &'static str,
    /// What a configuration says of it.
    pub read: fn(&Config) -> Present,
}

/// All of them, in the order in which people ask.
pub const OPTIONS: &[Opt] = &[
    Opt::new(EngineSetting::FORM, |config| one(&config.engine)).flag("engine").vars(vars::ENGINE).key("engine"),
    Opt::new(ImageRef::FORM, |config| maybe(&config.image))
        .flag("image")
        .vars(vars::IMAGE)
        .key("image")
        .example(r#""debian:12""#),
    Opt::new("", |_| Present::One(None)).flag("profile").vars(vars::PROFILE),
    Opt::new(AGENT, |config| maybe(&config.agent)).flag("agent").key("agent").example(r#""claude""#),
    Opt::new(MountRequest::FORM, |config| many(&config.mounts, mount))
        .flag("mount")
        .vars(vars::MOUNTS)
        .key("mounts")
        .example(r#"[{ from = "~/data", to = "/data", mode = "ro" }]"#),
    Opt::new("", |config| many(&config.include_dirs, |path, origin| text(&path.display(), origin)))
        .flag("include-dir")
        .key("includeDirs")
        .example(r#"["../library"]"#),
    Opt::new(EnvRequest::FORM, |config| variables(&config.env))
        .flag("env")
        .vars(vars::ENV)
        .key("env")
        .example(r#"{ EDITOR = "vi" }"#),
    Opt::new(NetworkMode::FORM, |config| one(&config.network)).flag("network").vars(vars::NETWORK).key("network"),
    Opt::new(HostRule::FORM, |config| many(&config.allow_hosts, text))
        .flag("allow-host")
        .key("allowHosts")
        .example(r#"["github.com", "*.crates.io:443"]"#),
    Opt::new("", |config| maybe(&config.proxy_command))
        .flag("proxy-command")
        .vars(vars::PROXY_COMMAND)
        .key("proxyCommand")
        .example(r#""my-proxy --port 8877""#),
    Opt::new(Port::FORM, |config| many(&config.ports, number))
        .flag("publish")
        .vars(vars::PORTS)
        .key("ports")
        .example(r#"[3000]"#),
    Opt::new(AgentMode::FORM, |config| one(&config.ssh_agent)).flag("ssh-agent").vars(vars::SSH_AGENT).key("sshAgent"),
    Opt::new(Cpus::FORM, |config| amount(config.cpus.as_ref()))
        .flag("cpus")
        .vars(vars::CPUS)
        .key("resources.cpus")
        .example(r#"2"#),
    Opt::new(Memory::FORM, |config| maybe(&config.memory))
        .flag("memory")
        .vars(vars::MEMORY)
        .key("resources.memory")
        .example(r#""4g""#),
    Opt::new(Pids::FORM, |config| amount(Some(&config.pids))).flag("pids").vars(vars::PIDS).key("resources.pids"),
    Opt::new(UserMode::FORM, |config| one(&config.user)).flag("user").vars(vars::USER).key("user"),
    Opt::new(TmpMode::FORM, |config| one(&config.tmp)).flag("tmp").key("tmp"),
    Opt::new(Guard::FORM, |config| one(&config.guard)).flag("guard").key("guard"),
    Opt::new(TRUTH, |config| truth(&config.allow_home)).flag("allow-home").key("allowHome"),
    Opt::new(TRUTH, |config| truth(&config.strict)).flag("strict").key("strict"),
    Opt::new("", |config| many(&config.engine_flags, text))
        .flag("engine-flag")
        .vars(vars::ENGINE_FLAGS)
        .key("engineFlags")
        .example(r#"["--shm-size=1g"]"#),
    Opt::new("", |config| maybe(&config.seatbelt_profile))
        .flag("seatbelt-profile")
        .vars(vars::SEATBELT_PROFILE)
        .key("seatbeltProfile")
        .example(r#""restrictive-closed""#),
    Opt::new(Name::FORM, |_| Present::One(None)).flag("name"),
    Opt::new("", |_| Present::One(None)).flag("keep"),
    Opt::new("", |_| Present::One(None)).vars(vars::BUILD),
];

const AGENT: &str = "`llxprt`, `gemini`, `claude`, `codex`, `aider`, the name of a preset of yours, or `none`";
const TRUTH: &str = "`true` or `false`";

impl Opt {
    const fn new(form: &'static str, read: fn(&Config) -> Present) -> Self {
        Opt { flag: None, variables: None, key: None, form, example: "", read }
    }

    const fn flag(self, name: &'static str) -> Self {
        Opt { flag: Some(name), ..self }
    }

    const fn vars(self, variables: Setting) -> Self {
        Opt { variables: Some(variables), ..self }
    }

    const fn key(self, key: &'static str) -> Self {
        Opt { key: Some(key), ..self }
    }

    const fn example(self, example: &'static str) -> Self {
        Opt { example, ..self }
    }

    /// Whether values accumulate over all layers.
    pub fn is_list(&self) -> bool {
        matches!((self.read)(&Config::default()), Present::Many(_))
    }

    /// The value that it has when nobody sets it.
    pub fn default(&self) -> Option<Toml> {
        (self.read)(&Config::default()).items().into_iter().find_map(|item| item.value)
    }
}

/// What is said of a key in [`file`].
pub fn about(key: &str) -> String {
    fn find<'a>(keys: &'a Map<String, Json>, key: &str) -> Option<&'a Json> {
        let keys = keys.get("properties")?;
        match key.split_once('.') {
            Some((table, key)) => find(keys.get(table)?.as_object()?, key),
            None => keys.get(key)?.get("description"),
        }
    }
    static SCHEMA: LazyLock<Schema> = LazyLock::new(file::schema);
    SCHEMA.as_object().and_then(|keys| find(keys, key)?.as_str()).unwrap_or_default().to_owned()
}

/// What a configuration says of an option.
#[derive(Debug, Clone, PartialEq)]
pub enum Present {
    /// An option with one value, if it has any.
    One(Option<Item>),
    /// An option that accumulates.
    Many(Vec<Item>),
}

impl Present {
    /// All values.
    pub fn items(self) -> Vec<Item> {
        match self {
            Present::One(item) => item.into_iter().collect(),
            Present::Many(items) => items,
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Of a variable: its name.
    pub name: Option<String>,
    /// The value as a file has it; `None` if it is not to be shown.
    pub value: Option<Toml>,
    /// What is not to be shown: only whether it is the same can be told.
    pub secret: Option<Secret>,
    /// Who set it.
    pub origin: Origin,
}

impl Item {
    fn of(value: Toml, origin: &Origin) -> Self {
        Item { name: None, value: Some(value), secret: None, origin: origin.clone() }
    }

    /// Whether both say the same, whoever says it.
    pub fn is_same(&self, other: &Item) -> bool {
        self.name == other.name && self.value == other.value && self.secret == other.secret
    }
}

fn one<T: Display>(value: &Sourced<T>) -> Present {
    Present::One(Some(Item::of(Toml::String(value.value.to_string()), &value.origin)))
}

fn maybe<T: Display>(value: &Option<Sourced<T>>) -> Present {
    value.as_ref().map_or(Present::One(None), one)
}

fn truth(value: &Sourced<bool>) -> Present {
    Present::One(Some(Item::of(Toml::Boolean(value.value), &value.origin)))
}

fn amount<T: Display>(value: Option<&Sourced<T>>) -> Present {
    Present::One(value.map(|value| {
        let text = value.value.to_string();
        let whole = text.parse().ok().map(Toml::Integer);
        let number = whole.or_else(|| text.parse().ok().map(Toml::Float));
        Item::of(number.unwrap_or(Toml::String(text)), &value.origin)
    }))
}

fn many<T>(values: &[Sourced<T>], show: fn(&T, &Origin) -> Item) -> Present {
    Present::Many(values.iter().map(|value| show(&value.value, &value.origin)).collect())
}

fn text(value: &impl Display, origin: &Origin) -> Item {
    Item::of(Toml::String(value.to_string()), origin)
}

fn number(port: &Port, origin: &Origin) -> Item {
    Item::of(Toml::Integer(port.0.into()), origin)
}

fn mount(mount: &MountRequest, origin: &Origin) -> Item {
    let mut table = Table::new();
    let mut add = |key: &str, value: String| table.insert(key.to_owned(), Toml::String(value));
    add("from", mount.from.display().to_string());
    mount.to.as_ref().map(|to| add("to", to.display().to_string()));
    add("mode", mount.mode.as_str().to_owned());
    Item::of(Toml::Table(table), origin)
}

/// Of a variable that two layers set, the higher one has come first, and counts.
fn variables(requests: &[Sourced<EnvRequest>]) -> Present {
    let is_first = |(at, request): &(usize, &Sourced<EnvRequest>)| {
        !requests.iter().take(*at).any(|above| above.value.name == request.value.name)
    };
    let counting = requests.iter().enumerate().filter(is_first);
    Present::Many(counting.map(|(_, request)| variable(&request.value, &request.origin)).collect())
}

/// The host's own value is a secret, and so is what is called one.
fn variable(request: &EnvRequest, origin: &Origin) -> Item {
    let text = request.value.clone().unwrap_or_default();
    let is_secret = request.value.is_none() || looks_secret(&request.name) || vars::carries_login(&text);
    let (value, secret) = if is_secret { (None, Some(Secret::new(text))) } else { (Some(Toml::String(text)), None) };
    Item { name: Some(request.name.clone()), value, secret, origin: origin.clone() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn unique<T: Ord + std::fmt::Debug>(values: impl Iterator<Item = T>) -> BTreeSet<T> {
        let mut seen = BTreeSet::new();
        values.for_each(|value| assert!(!seen.contains(&value) && seen.insert(value), "twice"));
        seen
    }

    #[test]
    fn every_flag_variable_and_key_is_an_options_and_one_options_only() {
        let mut command = Cli::command();
        command.build();
        let run = command.find_subcommand("run").expect("run");
        let others = ["quiet", "verbose", "help", "assume-host"];
        let flags = run.get_arguments().filter_map(clap::Arg::get_long).filter(|flag| !others.contains(flag));
        assert_eq!(unique(OPTIONS.iter().filter_map(|option| option.flag)), unique(flags));
        let variables = OPTIONS.iter().filter_map(|option| option.variables).map(|setting| setting.names);
        assert_eq!(unique(variables), unique(vars::SETTINGS.iter().map(|setting| setting.names)));
        let schema = file::schema();
        let tables =
            [("", schema.pointer("/properties")), ("resources.", schema.pointer("/properties/resources/properties"))];
        let keys = tables.iter().flat_map(|(table, keys)| {
            keys.and_then(Json::as_object).expect("keys").keys().map(move |key| format!("{table}{key}"))
        });
        let keys = unique(keys.filter(|key| key != "resources" && key != "$schema"));
        assert_eq!(unique(OPTIONS.iter().filter_map(|option| option.key).map(str::to_owned)), keys);
        for key in keys {
            assert!(about(&key).ends_with('.'), "{key}: nothing is said of it");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for text in ["GH_TOKEN=xyz", "A=http://me:xyz@proxy", "HOME"] {
            let request = EnvRequest::parse(text).expect("a variable");
            let item = variable(&request, &Origin::Default);
            assert!(item.value.is_none() && !format!("{item:?}").contains("xyz"), "{item:?}");
        }
    }
}
