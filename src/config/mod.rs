//! Configuration: flags, environment, profile, project file, user file and defaults, layered into one [`Config`].
//!
//! Reads configuration files and nothing else of the host; what the values lead to is decided in `plan`.

pub mod check;
mod environment;
mod file;
mod flags;
pub mod options;
pub mod preset;
pub mod profile;
pub mod project;
mod read;
mod settings;
mod sourced;
pub mod value;

use std::path::PathBuf;

pub use environment::parse_value;
#[cfg(test)]
pub use file::parse as read_file;
pub use file::schema as file_schema;
pub use project::ProjectFile;
#[cfg(test)]
pub use read::Language;
pub use settings::Settings;
pub use sourced::{Origin, Sourced};

use crate::cli::Options;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::warning::{Warning, WarningTopic};
use value::{
    AgentMode, Cpus, EngineSetting, EnvRequest, Guard, HostRule, ImageRef, Memory, MountRequest, Name, NetworkMode,
    Pids, Port, TmpMode, UserMode,
};

/// Processes a sandbox may have when nobody says otherwise: enough for a parallel build, an end for a fork bomb.
const DEFAULT_PIDS: Pids = Pids(2048);

/// Every option with its final value and its origin. Lists are ordered from the highest layer to the lowest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the options of `interface.md`, one by one.
pub struct Config {
    pub engine: Sourced<EngineSetting>,
    pub image: Option<Sourced<ImageRef>>,
    pub cpus: Option<Sourced<Cpus>>,
    pub memory: Option<Sourced<Memory>>,
    pub pids: Sourced<Pids>,
    pub network: Sourced<NetworkMode>,
    pub proxy_command: Option<Sourced<String>>,
    pub ssh_agent: Sourced<AgentMode>,
    pub user: Sourced<UserMode>,
    pub tmp: Sourced<TmpMode>,
    pub seatbelt_profile: Option<Sourced<String>>,
    pub agent: Option<Sourced<String>>,
    pub guard: Sourced<Guard>,
    pub allow_home: Sourced<bool>,
    pub strict: Sourced<bool>,
    pub build: Option<Sourced<bool>>,
    pub name: Option<Sourced<Name>>,
    pub keep: Option<Sourced<bool>>,
    pub mounts: Vec<Sourced<MountRequest>>,
    pub env: Vec<Sourced<EnvRequest>>,
    pub ports: Vec<Sourced<Port>>,
    pub allow_hosts: Vec<Sourced<HostRule>>,
    pub engine_flags: Vec<Sourced<String>>,
    pub include_dirs: Vec<Sourced<PathBuf>>,
    /// What the user should hear about the configuration itself.
    pub warnings: Vec<Warning>,
}

impl Config {
    /// Reads and combines all layers.
    pub fn load(host: &Host, options: &Options) -> Result<Self> {
        let (project, warning) = match ProjectFile::find(host)? {
            None => (Settings::default(), None),
            Some(file) if file.is_trusted(host) => (file.settings()?, None),
            Some(file) => {
                let warning = format!(
                    "the project file `{}` is not trusted and has no effect: read it, then run `sandpen trust`",
                    file.path().display()
                );
                (Settings::default(), Some(Warning::new(WarningTopic::ConfigFile, warning)))
            }
        };
        let config = Self::load_with(host, options, project)?;
        Ok(Config { warnings: warning.into_iter().collect(), ..config })
    }

    /// The same, with these words for a project file.
    pub fn load_with(host: &Host, options: &Options, project: Settings) -> Result<Self> {
        let flags = flags::settings(options)?;
        let environment = environment::settings(&host.env)?;
        let named = match options.profile.clone().filter(|name| !name.is_empty()) {
            Some(name) => Some(Sourced::new(name, Origin::Flag("--profile"))),
            None => environment::profile(&host.env)?,
        };
        let profile = match named {
            Some(named) => profile::Profile::find(host, &named.value, &named.origin)?.settings()?,
            None => Settings::default(),
        };
        let user = user_file(host)?;
        Self::of(flags.over(environment).over(profile).over(project).over(user))
    }

    /// Fills in the defaults and refuses combinations that contradict each other.
    pub fn of(settings: Settings) -> Result<Self> {
        let network = network(&settings)?;
        if let (NetworkMode::Off | NetworkMode::Proxied, Some(port)) = (network.value, settings.ports.first()) {
            // A filtered guest has no network to publish a port of.
            let state = if network.value == NetworkMode::Off { "off" } else { "filtered" };
            return Err(Error::usage(format!(
                "{}: port {} cannot be published with the network {state}",
                port.origin, port.value
            ))
            .hint(format!("the network is {state} because of: {}", network.origin)));
        }
        Ok(Self::over_defaults(settings, network))
    }

    fn over_defaults(settings: Settings, network: Sourced<NetworkMode>) -> Self {
        fn or<T>(value: Option<Sourced<T>>, default: T) -> Sourced<T> {
            value.unwrap_or_else(|| Sourced::default(default))
        }
        Config {
            engine: or(settings.engine, EngineSetting::Auto),
            image: settings.image,
            cpus: settings.cpus,
            memory: settings.memory,
            pids: or(settings.pids, DEFAULT_PIDS),
            network,
            proxy_command: settings.proxy_command,
            ssh_agent: or(settings.ssh_agent, AgentMode::Auto),
            user: or(settings.user, UserMode::Auto),
            tmp: or(settings.tmp, TmpMode::Private),
            seatbelt_profile: settings.seatbelt_profile,
            agent: settings.agent,
            guard: or(settings.guard, Guard::Review),
            allow_home: or(settings.allow_home, false),
            strict: or(settings.strict, false),
            build: settings.build.filter(|build| build.value),
            name: settings.name,
            keep: settings.keep.filter(|keep| keep.value),
            mounts: settings.mounts,
            env: settings.env,
            ports: settings.ports,
            allow_hosts: settings.allow_hosts,
            engine_flags: settings.engine_flags,
            include_dirs: settings.include_dirs,
            warnings: Vec::new(),
        }
    }
}

impl Default for Config {
    /// What holds where nobody says anything.
    fn default() -> Self {
        Self::over_defaults(Settings::default(), Sourced::default(NetworkMode::On))
    }
}

/// An allow-list or a proxy command implies `proxied`, and contradicts an explicit `on` or `off`.
/// A list from a file gives way to a policy that a flag or a variable sets over it.
fn network(settings: &Settings) -> Result<Sourced<NetworkMode>> {
    let hosts = settings.allow_hosts.iter().map(|host| &host.origin);
    let implied: Vec<&Origin> = hosts.chain(settings.proxy_command.as_ref().map(|command| &command.origin)).collect();
    let Some(mode) = &settings.network else {
        return Ok(match implied.first() {
            Some(origin) => Sourced::new(NetworkMode::Proxied, (*origin).clone()),
            None => Sourced::default(NetworkMode::On),
        });
    };
    let clash = |origin: &&&Origin| matches!(origin, Origin::Flag(_) | Origin::Env(_)) || **origin == &mode.origin;
    match implied.iter().find(clash) {
        Some(origin) if mode.value != NetworkMode::Proxied => Err(Error::usage(format!(
            "{origin} asks for a filtered network, but {} says `{}`",
            mode.origin, mode.value
        ))
        .hint("use `--network proxied`, or drop one of the two")),
        _ => Ok(mode.clone()),
    }
}

fn user_file(host: &Host) -> Result<Settings> {
    let path = host.config_dir().join("config.toml");
    match std::fs::read_to_string(path.as_path()) {
        Ok(text) => {
            let origin = Origin::Config(path.as_path().to_owned());
            file::parse(&text, read::Language::Toml, &path.to_string(), None, &origin)
        }
        // A home that cannot be entered holds no configuration for this user.
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(Settings::default())
        }
        Err(error) => Err(Error::usage(format!("the configuration file `{path}` cannot be read")).cause(error)),
    }
}
