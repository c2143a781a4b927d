//! Reads the Git settings in effect in the working directory, each with its scope and its file:
//! from the files if they are plain, otherwise by one call of `git config`.

#![allow(clippy::disallowed_methods, reason = "asks Git")]

pub mod directory;
pub mod index;
pub mod object_id;
mod plain;
pub mod repository;
pub mod submodules;
pub mod syntax;
#[cfg(test)]
pub mod test_repository;
pub mod tracked;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::facts::files::examine;
use crate::facts::program::SearchPath;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::{read_output, untrusted};
use repository::Repository;

/// Limits the output of `git config`; a repository's configuration may be huge on purpose.
const MAX_OUTPUT: usize = 4 << 20;
const MAX_KEY_FILE: u64 = 16 << 10;
/// Git needs milliseconds to read a few files; one that hangs must not stop the launch.
const GIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Variables that would make Git use another repository, or print more than its answer.
const UNSET_FOR_GIT: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_CEILING_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE_SETUP",
];

/// The configuration that a setting is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    System,
    Global,
    /// The repository's configuration, which is untrusted.
    Repository,
    /// The environment.
    Command,
}

impl Scope {
    /// Tells whether the user or the administrator controls the setting, and not the repository.
    pub fn is_users(self) -> bool {
        self != Scope::Repository
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub scope: Scope,
    /// `None` for a setting from the environment.
    pub file: Option<PathBuf>,
    /// Section and variable are in lower case; the subsection is as written.
    pub key: String,
    /// Empty for a setting without a value.
    pub value: String,
}

impl Setting {
    /// Tells whether the environment sets it and its key has this prefix.
    pub fn is_from_environment(&self, prefix: &str) -> bool {
        self.scope == Scope::Command && self.key.starts_with(prefix)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GitFacts {
    /// The host's Git, outside of mounted directories.
    pub program: Option<HostPath>,
    /// All settings. Of several with the same key, the last is in effect.
    pub settings: Vec<Setting>,
    /// Whether Git was asked and did not answer in time.
    pub is_silent: bool,
    /// The directory to which the paths of files in settings are relative.
    pub root: Option<HostPath>,
    /// Whether Git refused to read its configuration.
    pub is_refused: bool,
    /// The public key from the file that the user's `user.signingkey` names.
    pub signing_key: Option<String>,
}

impl GitFacts {
    /// Returns the setting in effect.
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().rev().find(|setting| setting.key == key)
    }

    /// Tells whether a boolean setting is on.
    pub fn is_on(&self, key: &str) -> bool {
        let value = self.get(key).map(|setting| setting.value.to_ascii_lowercase());
        value.is_some_and(|value| !matches!(value.as_str(), "false" | "no" | "off" | "0"))
    }
}

/// Selects the repositories to look at.
pub struct GitQuestion {
    pub directory: HostPath,
    /// The repository around `directory`.
    pub repository: Option<Repository>,
    /// Whether the repository around `directory` must not be used.
    pub is_refused: bool,
    /// All repositories of the workspace, `repository` included.
    pub repositories: Vec<Repository>,
    /// Directories that are mounted.
    pub shown: Vec<HostPath>,
}

/// A `git config` that runs while other facts are looked up, unless the files were plain.
pub struct PendingGitConfig {
    program: Option<HostPath>,
    root: Option<HostPath>,
    source: Source,
}

enum Source {
    None,
    Files(Vec<Setting>),
    Git(Child),
}

impl PendingGitConfig {
    pub fn start(host: &Host, path: &SearchPath, question: &GitQuestion) -> Self {
        let program = path.find("git");
        let source = program.as_ref().map(|program| match plain::read(host, program, question) {
            Some(settings) => Source::Files(settings),
            None => start(host, path, program, &question.directory).map_or(Source::None, Source::Git),
        });
        let root = question.repository.as_ref().map(|repository| repository.root.clone());
        PendingGitConfig { program, root, source: source.unwrap_or(Source::None) }
    }

    /// Waits for the answer. If Git fails or does not answer in time, there are no settings.
    pub fn finish(self, host: &Host, shown: &[HostPath]) -> GitFacts {
        let mut facts = GitFacts { program: self.program, root: self.root, ..GitFacts::default() };
        match self.source {
            Source::None => return facts,
            Source::Files(settings) => facts.settings = settings,
            Source::Git(mut child) => {
                let deadline = Instant::now() + GIT_TIMEOUT;
                let stdout = child.stdout.take();
                let output = stdout.and_then(|stdout| read_output(stdout, deadline, MAX_OUTPUT).ok());
                if output.is_none() {
                    let _ = child.kill();
                }
                let has_failed = child.wait().is_ok_and(|status| !status.success());
                facts.is_silent = output.is_none();
                facts.is_refused = has_failed && !facts.is_silent;
                facts.settings = output.map(|output| parse(&output)).unwrap_or_default();
            }
        }
        distrust_shown(&mut facts.settings, shown);
        facts.signing_key = signing_key(host, &facts);
        facts
    }
}

/// Treats the user's settings as the repository's if their file is in a mounted directory, or if a
/// link there chose it: the guest can write them, and must not choose what is mounted (attack 01).
fn distrust_shown(settings: &mut [Setting], shown: &[HostPath]) {
    let is_shown = |file: &Path| {
        let fact = HostPath::new(file).ok().and_then(|file| examine(&file));
        fact.is_some_and(|fact| {
            fact.is_chosen_in(shown.iter()) || shown.iter().any(|directory| fact.real.is_within(directory))
        })
    };
    let mut known: Vec<(PathBuf, bool)> = Vec::new();
    for setting in settings.iter_mut().filter(|setting| matches!(setting.scope, Scope::System | Scope::Global)) {
        let Some(file) = &setting.file else { continue };
        let index = known.iter().position(|(other, _)| other == file).unwrap_or_else(|| {
            known.push((file.clone(), is_shown(file)));
            known.len() - 1
        });
        if known[index].1 {
            setting.scope = Scope::Repository;
        }
    }
}

/// Asks Git whether it uses a repository of another user.
fn accepts(host: &Host, root: &HostPath) -> bool {
    let path = SearchPath::divide(host.env.raw(crate::vars::PATH), &[host.cwd.clone(), root.clone()]);
    let Some(program) = path.find("git") else { return false };
    let mut command = Command::new(program.as_path());
    command.arg("-C").arg(root.as_path()).args(["rev-parse", "--git-dir"]);
    command.env_clear().envs(host.env.iter().filter(|(name, _)| !UNSET_FOR_GIT.iter().any(|unset| name == unset)));
    command.env("PATH", path.for_host()).env("HOME", host.home.as_path()).env("LC_ALL", "C");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn start(host: &Host, path: &SearchPath, program: &HostPath, directory: &HostPath) -> Option<Child> {
    let mut command = Command::new(program.as_path());
    command.arg("-C").arg(directory.as_path());
    command.args(["config", "--list", "--includes", "--show-scope", "--show-origin", "-z"]);
    command.env_clear().envs(host.env.iter().filter(|(name, _)| !UNSET_FOR_GIT.iter().any(|unset| name == unset)));
    command.env("PATH", path.for_host()).env("HOME", host.home.as_path()).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()
}

/// Reads the public key that belongs to `user.signingkey`. A setting of the repository is not
/// followed, because it could name any file (attack 01).
fn signing_key(host: &Host, facts: &GitFacts) -> Option<String> {
    let setting = facts.get("user.signingkey").filter(|setting| setting.scope.is_users())?;
    if facts.get("gpg.format")?.value != "ssh" || is_public_key(&setting.value) {
        return None;
    }
    let file = host.expand(Path::new(&setting.value));
    let beside = file.with_file_name(format!("{}.pub", file.file_name()?.to_str()?));
    [beside, file].iter().find_map(|file| {
        let text = untrusted::read_linked(file, MAX_KEY_FILE).ok()?;
        let line = text.lines().next()?.trim();
        is_public_key(line).then(|| line.to_owned())
    })
}

/// Tells whether a text has the form `TYPE BASE64` in which OpenSSH writes public keys.
pub fn is_public_key(text: &str) -> bool {
    let text = text.strip_prefix("key::").unwrap_or(text);
    let kind = text.split(' ').next().unwrap_or_default();
    text.contains(' ') && (kind.starts_with("ssh-") || kind.starts_with("ecdsa-") || kind.starts_with("sk-"))
}

/// Parses `scope NUL origin NUL key LF value NUL`, repeated. Settings that are not UTF-8 are
/// skipped.
fn parse(output: &[u8]) -> Vec<Setting> {
    let mut fields = output.split(|byte| *byte == 0);
    let mut settings = Vec::new();
    while let (Some(scope), Some(origin), Some(entry)) = (fields.next(), fields.next(), fields.next()) {
        let scope = match scope {
            b"system" => Scope::System,
            b"global" => Scope::Global,
            b"command" => Scope::Command,
            _ => Scope::Repository,
        };
        let file = origin.strip_prefix(b"file:").and_then(|file| std::str::from_utf8(file).ok()).map(PathBuf::from);
        let Ok(entry) = std::str::from_utf8(entry) else { continue };
        let (key, value) = entry.split_once('\n').unwrap_or((entry, ""));
        settings.push(Setting { scope, file, key: key.to_owned(), value: value.to_owned() });
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_with_scope_file_and_odd_values() {
        let output = b"global\0file:/h/.gitconfig\0user.name\nA\nB\0worktree\0file:/r/c\0core.x\0command\0command line:\0a.b\nc\0";
        let settings = parse(output);
        let at = |index: usize| (settings[index].scope, settings[index].key.as_str(), settings[index].value.as_str());
        assert_eq!(at(0), (Scope::Global, "user.name", "A\nB"));
        assert_eq!(at(1), (Scope::Repository, "core.x", ""));
        assert_eq!(at(2), (Scope::Command, "a.b", "c"));
        assert_eq!(settings.len(), 3);
        assert_eq!(settings[0].file.as_deref(), Some(std::path::Path::new("/h/.gitconfig")));
    }

    #[test]
    fn a_setting_without_a_value_is_on() {
        let facts = GitFacts { settings: parse(b"global\0file:/x\0commit.gpgsign\0"), ..GitFacts::default() };
        assert!(facts.is_on("commit.gpgsign") && !facts.is_on("tag.gpgsign"));
    }
}
