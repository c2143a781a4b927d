//! Decides whether the preset of a command applies. Reads no preset; `resolve::preset` does.

use crate::config::preset::Preset;

/// The preset that applies, or the reason for which the one of the command's name does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PresetChoice {
    /// `None` when no preset applies.
    pub preset: Option<Preset>,
    /// Shown as a warning.
    pub refused: Option<String>,
    /// Whether the host has the command, outside of mounted directories. Its user then means that
    /// program, and not the image that the preset names.
    pub is_installed: bool,
}

impl PresetChoice {
    /// Applies a preset that the configuration names.
    pub fn named(preset: Option<Preset>) -> Self {
        PresetChoice { preset, ..PresetChoice::default() }
    }

    /// Applies the preset of the command's name, unless a mounted directory could provide that
    /// command (attack 08).
    pub fn of_command(command: &str, preset: Preset, is_planted: bool) -> Self {
        let name = &preset.name;
        let refused = if command.contains('/') {
            format!("`{command}` is a path: the preset `{name}` applies to the bare name only")
        } else if is_planted {
            format!(
                "a mounted directory on PATH contains another `{command}`: the preset `{name}` does not apply, and its keys are not passed"
            )
        } else {
            return PresetChoice { preset: Some(preset), ..PresetChoice::default() };
        };
        PresetChoice { refused: Some(refused), ..PresetChoice::default() }
    }
}
