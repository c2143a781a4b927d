//! The `profile` command: what is configured, by whom, and the files to configure it with.

mod show;
mod template;

use std::io::Write;
use std::path::Path;

use crate::cli::{Format, Options, ProfileAction};
use crate::config::preset::Preset;
use crate::config::profile::{self, Profile};
use crate::config::{Config, Origin, Settings, file_schema};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::ui::Ui;
use crate::ui::escape::escape;

/// Where editors find the schema, beside the user's own file.
const SCHEMA: &str = "schema.json";

/// What the command prints.
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
                Some(name) => format!("made {}: edit it, then `sandpen run --profile {name}`", path.display()),
                None => format!("made {}: what you write there holds for every sandbox of yours", path.display()),
            });
            Ok(String::new())
        }
        ProfileAction::Schema { preset } => schema_text(preset),
        ProfileAction::Reference => Ok(crate::cli::reference::markdown()),
    }
}

fn show(host: &Host, name: Option<String>, format: Format, ui: Ui) -> Result<String> {
    if let Some(name) = &name {
        // Named here, and not by a flag.
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
        Format::Json => show::json(&config)?,
    })
}

fn init(host: &Host, name: Option<&str>, from: Option<&str>) -> Result<std::path::PathBuf> {
    let origin = match from {
        Some(from) => Some(Profile::find(host, from, &Origin::Flag("--from"))?),
        None => None,
    };
    let settings = origin.as_ref().map_or_else(|| Ok(Settings::default()), Profile::settings)?;
    let (path, schema, about) = match name {
        Some(name) => (profile::new_file(host, name)?, format!("../{SCHEMA}"), template::profile_title(name)),
        None => {
            (host.config_dir().join("config.toml").as_path().to_owned(), SCHEMA.to_owned(), template::OWN.to_owned())
        }
    };
    let text = template::text(&Config::of(settings)?, &schema, &about);
    let write = |path: &Path, anew: bool, text: &str| -> std::io::Result<()> {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).create_new(anew).open(path)?.write_all(text.as_bytes())
    };
    write(&path, true, &text).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Error::usage(format!("`{}` is there already", path.display())).hint(if name.is_some() {
                "edit it, or choose another name; nothing was changed"
            } else {
                "edit it; nothing was changed"
            })
        }
        _ => Error::failed(format!("`{}` cannot be written", path.display())).cause(error),
    })?;
    let schema = host.config_dir().join(SCHEMA);
    write(schema.as_path(), false, &schema_text(false)?)
        .map_err(|error| Error::failed(format!("`{schema}` cannot be written")).cause(error))?;
    Ok(path)
}

fn schema_text(preset: bool) -> Result<String> {
    let schema = if preset { Preset::schema() } else { file_schema() };
    let text = serde_json::to_string_pretty(&schema);
    Ok(text.map_err(|error| Error::failed("the schema cannot be written").cause(error))? + "\n")
}
