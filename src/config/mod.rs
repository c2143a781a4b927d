//! Configuration: layers flags, environment, profile, project file, user file and defaults into one
//! [`Config`].
//!
//! `options` has the table of all options. This module reads configuration files, and records which
//! project files are trusted; the effect of a value is decided in `plan`.

pub mod check;
mod env_file;
mod environment;
mod error;
mod file;
mod flag;
mod layer;
pub mod login;
mod node;
mod options;
pub mod preset;
pub mod profile;
pub mod project;
mod sourced;
mod syntax;
mod table;
pub mod value;

use error::ConfigError;
#[cfg(test)]
pub use file::parse as parse_file;
pub use file::schema as file_schema;
pub use layer::parse_value;
#[cfg(test)]
pub use login::parse_login;
pub use options::{Config, OPTIONS, Options, Settings};
use project::MAX_FILE_SIZE;
pub use project::ProjectFile;
pub use sourced::{Origin, Sourced};
#[cfg(test)]
pub use syntax::Language;
pub use table::{Change, Item, KeySpec, OptionSpec, Present};

use crate::host::Host;
use crate::process::untrusted;
use crate::warning::{Warning, WarningTopic};
use value::NetworkMode;

impl Config {
    /// Reads and combines all layers.
    pub fn load(host: &Host, options: &Options) -> crate::error::Result<Self> {
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

    /// Combines all layers, with these settings as the project file's.
    pub(crate) fn load_with(host: &Host, options: &Options, project: Settings) -> Result<Self, ConfigError> {
        let mut flags = Settings::from_flags(options)?;
        for file in &flags.env_files {
            flags.env.extend(env_file::read(host, file)?);
        }
        let given = flags.over(Settings::from_environment(&host.env)?);
        let profile = match &given.profile {
            Some(named) => profile::Profile::find(host, &named.value, &named.origin)?.settings()?,
            None => Settings::default(),
        };
        Self::new(given.over(profile).over(project).over(user_file(host)?))
    }

    /// Fills in the defaults, and refuses settings that contradict each other.
    pub(crate) fn new(settings: Settings) -> Result<Self, ConfigError> {
        let network = network(&settings)?;
        let config = Self::from_settings(Settings { network, ..settings });
        match (config.network.value, config.ports.first()) {
            // A filtered guest has no network interface to publish a port of.
            (NetworkMode::Off | NetworkMode::Proxied, Some(port)) => {
                Err(ConfigError::PortWithoutNetwork { port: port.clone(), network: config.network })
            }
            _ => Ok(config),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::from_settings(Settings::default())
    }
}

/// Returns the network policy that a layer sets or implies.
///
/// An allow-list or a proxy command implies `proxied`, and contradicts an explicit `on` or `off`. A
/// list from a file has no effect if a flag or a variable sets a policy over it.
fn network(settings: &Settings) -> Result<Option<Sourced<NetworkMode>>, ConfigError> {
    let hosts = settings.allow_hosts.iter().map(|host| &host.origin);
    let implied: Vec<&Origin> = hosts.chain(settings.proxy_command.as_ref().map(|command| &command.origin)).collect();
    let Some(mode) = &settings.network else {
        return Ok(implied.first().map(|origin| Sourced::new(NetworkMode::Proxied, (*origin).clone())));
    };
    let clash = |origin: &&&Origin| matches!(origin, Origin::Flag(_) | Origin::Env(_)) || **origin == &mode.origin;
    match implied.iter().find(clash) {
        Some(origin) if mode.value != NetworkMode::Proxied => {
            Err(ConfigError::NetworkConflict { filter: (*origin).clone(), network: mode.clone() })
        }
        _ => Ok(Some(mode.clone())),
    }
}

fn user_file(host: &Host) -> Result<Settings, ConfigError> {
    let path = host.config_dir().join("config.toml");
    match untrusted::read_linked(path.as_path(), MAX_FILE_SIZE) {
        Ok(text) => {
            let origin = Origin::Config(path.as_path().to_owned());
            file::parse(&text, syntax::Language::Toml, &path.to_string(), None, &origin)
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(Settings::default())
        }
        Err(source) => Err(ConfigError::Read { what: "configuration file", path: path.as_path().to_owned(), source }),
    }
}
