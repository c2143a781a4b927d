//! Decides how Git is configured inside: which of its files are mounted, which directories it
//! trusts, and which settings are replaced because they only work on the host.

mod files;
mod host_only;
mod signing;

use serde::Serialize;

pub use files::git_files;
pub use host_only::programs;

use super::entry::{Topic, Why};
use super::push::LFS_ARGUMENT;
use super::{Draft, PushPlan};
use crate::config::Origin;
use crate::config::value::EngineKind;
use crate::error::Result;
use crate::facts::git::Setting;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

const COUNT: &str = "GIT_CONFIG_COUNT";

/// A setting that differs inside, or that may not work there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GitSettingChange {
    /// The name, for example `core.pager`.
    pub key: String,
    /// The value on the host.
    pub value: String,
    /// The file that sets it; `None` for the environment.
    pub file: Option<String>,
    /// Describes the change for people.
    pub done: String,
    /// Tells whether the setting works inside.
    pub effect: SettingEffect,
}

/// The treatment of a setting that only works on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingEffect {
    /// Git inside uses a value that works there.
    Replaced,
    /// The value is kept. It works only if the program that it names exists inside.
    Left,
}

/// Settings that replace those of Git's files, and the changes to report.
#[derive(Debug, Default)]
struct GitOverrides {
    settings: Vec<(String, String, &'static str)>,
    changes: Vec<GitSettingChange>,
}

impl GitOverrides {
    /// Sets a value that takes precedence over Git's files.
    fn set(&mut self, key: &str, value: impl Into<String>, reason: &'static str) {
        self.settings.push((key.to_owned(), value.into(), reason));
    }

    /// Records that a setting has another value inside.
    fn replaced(&mut self, setting: &Setting, done: impl Into<String>) {
        self.record(setting, SettingEffect::Replaced, done.into());
    }

    /// Records that a setting is kept and may not work inside.
    fn left(&mut self, setting: &Setting, why: &str) {
        self.record(setting, SettingEffect::Left, format!("kept: {why}"));
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
    /// Sets variables that configure Git. Called after all mounts are known, because they decide
    /// which programs exist inside.
    pub fn git_settings(&mut self, agent_is_forwarded: bool, push: &PushPlan) -> Result<Vec<GitSettingChange>> {
        let mut overrides = GitOverrides::default();
        if self.facts.git.is_silent {
            self.warnings.push(Warning::new(WarningTopic::Git,
                "Git did not read its configuration for this directory in time, so your settings may not apply inside: try `git config --list` here"));
        }
        if self.facts.git.is_refused && self.facts.git_dirs.iter().all(|dirs| dirs.problem.is_none()) {
            let root = self.workspace.root();
            self.warnings.push(Warning::new(WarningTopic::Git, format!(
                "Git cannot read its configuration for `{root}`, so it may not work inside: try `git config --list` there"
            )));
        }
        for root in self.workspace.repositories().map(|repository| &repository.root) {
            // Git still refuses repositories of other users elsewhere.
            overrides.set(
                "safe.directory",
                root.to_string(),
                "Git accepts the repository even if another user owns it",
            );
        }
        for setting in self.facts.git.settings.iter().filter(|setting| setting.is_from_environment("user.")) {
            overrides.set(&setting.key, &setting.value, "set by the host's environment");
        }
        // Under Seatbelt the host's programs, key agents and files exist inside.
        if self.engine != EngineKind::SandboxExec {
            self.signing(agent_is_forwarded, &mut overrides)?;
            self.host_only(&mut overrides);
        }
        for rewrite in &push.rewrites {
            let variable = if rewrite.is_push { "pushInsteadOf" } else { "insteadOf" };
            let key = format!("url.sandpen::{}.{variable}", rewrite.number);
            overrides.set(&key, &rewrite.spelling, "Git reaches the remote through sandpen");
        }
        if push.is_on() {
            overrides.set("protocol.sandpen.allow", "always", "Git may use sandpen's transport");
            self.lfs_of_remotes(push, &mut overrides);
        }
        self.set_git_variables(&overrides);
        Ok(overrides.changes)
    }

    /// Lets Git LFS say that sandpen does not carry it, and leave its files pointers.
    fn lfs_of_remotes(&mut self, push: &PushPlan, overrides: &mut GitOverrides) {
        const AGENT: &str = "sandpen";
        let reason = "Git LFS shows why it cannot transfer files";
        for number in 0..push.remotes.len() {
            overrides.set(&format!("lfs.sandpen::{number}.standaloneTransferAgent"), AGENT, reason);
            overrides.set(&format!("lfs.sandpen::{number}.locksVerify"), "false", reason);
        }
        overrides.set(&format!("lfs.customTransfer.{AGENT}.path"), self.push_helper(), reason);
        overrides.set(&format!("lfs.customTransfer.{AGENT}.args"), LFS_ARGUMENT, reason);
        let why = Why::default("files of Git LFS that are not here stay pointers").about(Topic::Git);
        self.env.plain("GIT_LFS_SKIP_SMUDGE", "1", why);
    }

    /// Passes settings as variables, which take precedence over every file and need no quoting.
    fn set_git_variables(&mut self, overrides: &GitOverrides) {
        // The user may have requested settings by the same variables; ours follow them.
        let asked = self.env.text(COUNT).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        for (index, (key, value, reason)) in overrides.settings.iter().enumerate() {
            let (number, why) = (asked + index, Why::default(*reason).about(Topic::Git));
            self.env.plain(&format!("GIT_CONFIG_KEY_{number}"), key, why.clone());
            let variable = format!("GIT_CONFIG_VALUE_{number}");
            if vars::has_user_information(value) {
                self.env.secret(&variable, value, why);
            } else {
                self.env.plain(&variable, value, why);
            }
        }
        let count = asked + overrides.settings.len();
        if count > asked {
            let why = Why::new("the number of settings in variables", Origin::Default).about(Topic::Git);
            self.env.force(COUNT, &count.to_string(), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_the_setting_and_its_file() {
        let mut overrides = GitOverrides::default();
        let setting = Setting {
            scope: crate::facts::git::Scope::Global,
            file: Some("/h/.gitconfig".into()),
            key: "core.pager".into(),
            value: "delta".into(),
        };
        overrides.replaced(&setting, "less");
        assert_eq!(overrides.changes[0].file.as_deref(), Some("/h/.gitconfig"));
    }
}
