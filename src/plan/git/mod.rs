//! Git inside as outside: the files its configuration consists of, the owners it trusts, the settings that only work on the host.

mod files;
mod host_only;
mod signing;

use serde::Serialize;

pub use files::git_files;
pub use host_only::programs;

use super::Draft;
use super::entry::{Topic, Why};
use crate::config::Origin;
use crate::config::value::EngineKind;
use crate::error::Result;
use crate::facts::git::Setting;
use crate::warning::{Warning, WarningTopic};

const COUNT: &str = "GIT_CONFIG_COUNT";

/// A setting of the host's that is not simply the same inside, and what was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GitSettingChange {
    /// Its name.
    pub key: String,
    /// Its value on the host.
    pub value: String,
    /// Where it stands.
    pub file: Option<String>,
    /// What it is inside.
    pub done: String,
    /// Whether it works inside: replaced by something that does, or left as it is.
    pub effect: SettingEffect,
}

/// What becomes of a setting that only works on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingEffect {
    /// Git inside uses a value that works there.
    Replaced,
    /// The value stays, and does not work unless the program it names is inside.
    Left,
}

/// What Git is told inside, beyond its files.
#[derive(Debug, Default)]
struct GitOverrides {
    overrides: Vec<(String, String, String)>,
    changes: Vec<GitSettingChange>,
}

impl GitOverrides {
    /// Git is told another value, whatever its files say.
    fn set(&mut self, key: &str, value: impl Into<String>, reason: &str) {
        self.overrides.push((key.to_owned(), value.into(), reason.to_owned()));
    }

    /// Records that a setting works differently inside.
    fn replaced(&mut self, setting: &Setting, done: impl Into<String>) {
        self.record(setting, SettingEffect::Replaced, done.into());
    }

    /// Records that a setting stays as it is and may not work inside.
    fn left(&mut self, setting: &Setting, why: &str) {
        self.record(setting, SettingEffect::Left, format!("left: {why}"));
    }

    fn record(&mut self, setting: &Setting, effect: SettingEffect, done: String) {
        self.changes.push(GitSettingChange {
            key: setting.key.clone(),
            value: setting.value.clone(),
            file: setting.file.as_ref().map(|file| file.display().to_string()),
            done,
            effect,
        });
    }
}

impl Draft<'_> {
    /// Everything about Git's settings. After the mounts it depends on: what is visible inside.
    pub fn git_settings(&mut self, agent_is_there: bool) -> Result<Vec<GitSettingChange>> {
        let mut told = GitOverrides::default();
        if self.facts.git.is_silent {
            self.warnings.push(Warning::new(WarningTopic::Git,
                "Git did not read its configuration for this directory in time, so your settings may differ inside: try `git config --list` here"));
        }
        for root in self.workspace.repositories().map(|repository| &repository.root) {
            // Not a word about other directories: whoever owns those is still asked about.
            told.set("safe.directory", root.to_string(), "Git works in it, whoever owns it");
        }
        for setting in self.facts.git.settings.iter().filter(|setting| setting.is_from_environment("user.")) {
            told.set(&setting.key, &setting.value, "set by the host's environment");
        }
        // Under Seatbelt the host's own programs, keys' agents and files are there.
        if self.engine != EngineKind::SandboxExec {
            self.signing(agent_is_there, &mut told)?;
            self.host_only(&mut told);
        }
        self.tell_git(&told);
        Ok(told.changes)
    }

    /// Settings travel as variables: these win over every file, need none of their own, and are no shell words.
    fn tell_git(&mut self, told: &GitOverrides) {
        // The user may have asked for settings of this kind; theirs come first, and ours are added.
        let asked = self.env.text(COUNT).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        for (index, (key, value, reason)) in told.overrides.iter().enumerate() {
            let (number, why) = (asked + index, Why::default(reason).about(Topic::Git));
            self.env.plain(&format!("GIT_CONFIG_KEY_{number}"), key, why.clone());
            self.env.plain(&format!("GIT_CONFIG_VALUE_{number}"), value, why);
        }
        let count = asked + told.overrides.len();
        if count > asked {
            let why = Why::new("how many settings Git is told this way", Origin::Default).about(Topic::Git);
            self.env.force(COUNT, &count.to_string(), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_the_setting_and_its_file() {
        let mut told = GitOverrides::default();
        let setting = Setting {
            scope: crate::facts::git::Scope::Global,
            file: Some("/h/.gitconfig".into()),
            key: "core.pager".into(),
            value: "delta".into(),
        };
        told.replaced(&setting, "less");
        assert_eq!(told.changes[0].file.as_deref(), Some("/h/.gitconfig"));
    }
}
