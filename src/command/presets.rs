//! `sandpen presets`: lists the presets of agents, with what each gives to a sandbox.

use serde_json::{Value as Json, json};

use crate::cli::Format;
use crate::config::preset::{Directory, Preset};
use crate::config::value::{HostRule, PartName, VariableName};
use crate::error::Result;
use crate::host::Host;
use crate::path::HostPath;
use crate::ui::escape::escape;

/// Returns what the command prints.
pub fn run(host: &Host, format: Format) -> Result<String> {
    let presets = Preset::all(host)?;
    Ok(match format {
        Format::Json => {
            let list: Vec<Json> = presets.iter().map(|(preset, file)| to_json(preset, file.as_ref())).collect();
            format!("{}\n", json!({ "schema": 1, "presets": list }))
        }
        Format::Text => {
            presets.iter().map(|(preset, file)| to_text(preset, file.as_ref())).collect::<Vec<_>>().join("\n")
        }
    })
}

fn names(variables: &[VariableName]) -> Vec<&str> {
    variables.iter().map(VariableName::as_str).collect()
}

fn to_text(preset: &Preset, file: Option<&HostPath>) -> String {
    let from = file.map_or(String::new(), |file| format!("  ({file})"));
    let mut text = format!("{}{from}\n", preset.name);
    for directory in &preset.directories {
        let access = match (directory.own, directory.mode.as_str()) {
            (true, _) => "own",
            (false, mode) => mode,
        };
        text += &format!("  {access:<4} ~/{}  {}\n", directory.path.below(), directory.reason);
    }
    if !preset.secrets.is_empty() {
        text += &format!("  keys {}\n", names(&preset.secrets).join(", "));
    }
    if let Some(image) = &preset.image {
        text += &format!("  image {image}\n");
    }
    text.lines().map(|line| escape(line) + "\n").collect()
}

fn to_json(preset: &Preset, file: Option<&HostPath>) -> Json {
    let directories: Vec<Json> = preset.directories.iter().map(directory_json).collect();
    json!({
        "name": preset.name,
        "file": file.map(ToString::to_string),
        "image": preset.image.as_ref().map(ToString::to_string),
        "directories": directories,
        "keys": names(&preset.secrets),
        "variables": names(&preset.variables),
        "hosts": preset.hosts.iter().map(HostRule::to_string).collect::<Vec<_>>(),
        "restart_on": preset.restart_on.map(|code| code.0),
    })
}

fn directory_json(directory: &Directory) -> Json {
    json!({
        "path": format!("~/{}", directory.path.below()),
        "mode": directory.mode.as_str(),
        "own": directory.own,
        "shared": directory.shared.iter().map(PartName::name).collect::<Vec<_>>(),
        "shared_keys": directory.shared_keys,
        "obeyed": directory.obeyed,
        "reason": directory.reason,
    })
}
