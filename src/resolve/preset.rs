//! Reads the preset of a command from its file. `plan::preset` decides whether it applies.

use std::ffi::{OsStr, OsString};

use crate::config::Config;
use crate::config::preset::Preset;
use crate::error::Result;
use crate::facts::SearchPath;
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::questions::writable;
use crate::plan::{PresetChoice, Workspace};
use crate::vars;

pub fn choose(host: &Host, config: &Config, workspace: &Workspace, command: &[OsString]) -> Result<PresetChoice> {
    if let Some(agent) = &config.agent {
        return Ok(PresetChoice::named(Preset::named(host, agent)?));
    }
    let Some(command) = command.first().and_then(|word| OsStr::to_str(word)) else {
        return Ok(PresetChoice::default());
    };
    let name = command.rsplit('/').next().unwrap_or(command);
    let Some(preset) = Preset::for_command(host, name)? else { return Ok(PresetChoice::default()) };
    let writable: Vec<HostPath> = writable(host, config, workspace).collect();
    let is_planted = SearchPath::divide(host.env.raw(vars::PATH), &writable).is_planted(command);
    Ok(PresetChoice::of_command(command, preset, is_planted))
}
