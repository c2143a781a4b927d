//! `sandpen profile`: shows the configuration with its origins, and creates files to configure it.

mod show;
mod template;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cli::{Format, ProfileAction};
use crate::config::preset::Preset;
use crate::config::profile::{self, Profile};
use crate::config::{Config, Options, Origin, Settings, file_schema};
use crate::error::{Diagnostic, Kind, Result};
use crate::host::Host;
use crate::ui::Ui;
use crate::ui::escape::escape;

/// The schema for editors, beside the user's configuration file.
const SCHEMA: &str = "schema.json";

/// An error of `sandpen profile`.
#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("`{}` already exists", path.display())]
    Exists { path: PathBuf, is_profile: bool },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

impl Diagnostic for ProfileError {
    fn kind(&self) -> Kind {
        match self {
            ProfileError::Exists { .. } => Kind::Usage,
            ProfileError::Write { .. } | ProfileError::Json(_) => Kind::Failed,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ProfileError::Exists { is_profile: true, .. } => {
                vec!["edit it, or choose another name; nothing was changed".to_owned()]
            }
            ProfileError::Exists { .. } => vec!["edit it; nothing was changed".to_owned()],
            ProfileError::Write { .. } | ProfileError::Json(_) => Vec::new(),
        }
    }
}

/// Runs the command. Returns what it prints.
pub fn run(host: &Host, action: ProfileAction, ui: Ui) -> Result<String> {
    match action {
        ProfileAction::List => {
            Ok(profile::names(host).iter().map(|name| format!("{}\n", escape(name))).collect::<String>())
        }
        ProfileAction::Path => Ok(format!("{}\n", escape(&profile::directory(host).display().to_string()))),
        ProfileAction::Show { name, format } => show(host, name, format, ui),
        ProfileAction::Init { name, from } => {
            let path = init(host, name.as_deref(), from.as_deref())?;
            ui.notice(&match &name {
                Some(name) => format!("created {}: edit it, then `sandpen run --profile {name}`", path.display()),
                None => format!("created {}: it applies to all your sandboxes", path.display()),
            });
            Ok(String::new())
        }
        ProfileAction::Schema { preset } => Ok(schema_text(preset)?),
        ProfileAction::Reference => Ok(crate::cli::reference::markdown()),
    }
}

fn show(host: &Host, name: Option<String>, format: Format, ui: Ui) -> Result<String> {
    if let Some(name) = &name {
        // The error must name the argument, not the flag of `run`.
        Profile::find(host, name, &Origin::Flag("NAME"))?;
    }
    let title = match &name {
        Some(name) => format!("sandpen run --profile {name}"),
        None => "sandpen run".to_owned(),
    };
    let config = Config::load(host, &Options { profile: name, ..Options::default() })?;
    config.warnings.iter().for_each(|warning| ui.warn(&warning.text));
    Ok(match format {
        Format::Text => show::toml(&config, &title),
        Format::Json => show::json(&config).map_err(ProfileError::Json)?,
    })
}

fn init(host: &Host, name: Option<&str>, from: Option<&str>) -> Result<PathBuf> {
    let settings = match from {
        Some(from) => Profile::find(host, from, &Origin::Flag("--from"))?.settings()?,
        None => Settings::default(),
    };
    let (path, schema, title) = match name {
        Some(name) => (profile::new_file(host, name)?, format!("../{SCHEMA}"), template::profile_title(name)),
        None => {
            let path = host.config_dir().join("config.toml").as_path().to_owned();
            (path, SCHEMA.to_owned(), template::CONFIG_TITLE.to_owned())
        }
    };
    let text = template::text(&Config::new(settings)?, &schema, &title);
    write(&path, true, &text).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => ProfileError::Exists { path: path.clone(), is_profile: name.is_some() },
        _ => ProfileError::Write { path: path.clone(), source },
    })?;
    let schema = host.config_dir().join(SCHEMA).as_path().to_owned();
    let text = schema_text(false)?;
    write(&schema, false, &text).map_err(|source| ProfileError::Write { path: schema, source })?;
    Ok(path)
}

/// Writes a file and creates its directory; `is_new` refuses to overwrite.
fn write(path: &Path, is_new: bool, text: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).create_new(is_new).open(path)?.write_all(text.as_bytes())
}

fn schema_text(is_preset: bool) -> std::result::Result<String, ProfileError> {
    let schema = if is_preset { Preset::file_schema() } else { file_schema() };
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}
