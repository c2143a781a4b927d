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
    let command = command.first().and_then(|word| OsStr::to_str(word));
    let path = std::cell::LazyCell::new(|| {
        let writable: Vec<HostPath> = writable(host, config, workspace).collect();
        SearchPath::divide(host.env.raw(vars::PATH), &writable)
    });
    let choice = match (&config.agent, command) {
        (Some(agent), _) => PresetChoice::named(Preset::named(host, agent)?),
        (None, None) => return Ok(PresetChoice::default()),
        (None, Some(command)) => {
            let name = command.rsplit('/').next().unwrap_or(command);
            let Some(preset) = Preset::for_command(host, name)? else { return Ok(PresetChoice::default()) };
            PresetChoice::of_command(command, preset, path.is_planted(command))
        }
    };
    // Without a command a shell is started, which every host has.
    let is_installed = choice.preset.as_ref().is_some_and(|preset| preset.image.is_some())
        && command.is_none_or(|command| path.examine(host, command).is_some());
    Ok(PresetChoice { is_installed, ..choice })
}
