//! What Git's configuration comes to for the working directory: every setting with its scope and its file. Read here where it is
//! plain, and in one call of Git otherwise.

#![allow(clippy::disallowed_methods, reason = "a fact that only Git knows")]

pub mod directory;
mod plain;
pub mod repository;
mod syntax;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::facts::program::SearchPath;
use repository::Repository;

use crate::host::Host;
use crate::path::HostPath;

/// More than any configuration takes; a repository's own may be larger by malice.
const LARGEST: usize = 4 << 20;
/// The longest line of a public key.
const LONGEST_KEY: usize = 16 << 10;
/// Reading a few files takes milliseconds.
const GIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Variables that would make Git look at another repository than the one around the directory.
const STEERING: &[&str] = &[
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

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The machine's file.
    System,
    /// The user's files.
    Global,
    /// The repository's own, which is untrusted.
    Repository,
    /// The environment.
    Command,
}

impl Scope {
    /// Whether the user, and not the repository, decides what stands there.
    pub fn is_users(self) -> bool {
        self != Scope::Repository
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its scope.
    pub scope: Scope,
    /// The file it stands in.
    pub file: Option<PathBuf>,
    /// Its name: section and variable in lower case, the part between as written.
    pub key: String,
    /// Its value; empty for one without.
    pub value: String,
}

impl Setting {
    /// Whether the environment sets it, and its name begins like this.
    pub fn is_from_environment(&self, prefix: &str) -> bool {
        self.scope == Scope::Command && self.key.starts_with(prefix)
    }
}

/// What Git says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GitFacts {
    /// The host's Git, outside of everything that is mounted.
    pub program: Option<HostPath>,
    /// All settings, the decisive one of a name last.
    pub settings: Vec<Setting>,
    /// Whether Git was asked and gave no answer in time.
    pub is_silent: bool,
    /// The public key in the file that the user's `user.signingkey` names.
    pub signing_key: Option<String>,
}

impl GitFacts {
    /// The value in effect.
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().rev().find(|setting| setting.key == key)
    }

    /// Whether a boolean setting is on.
    pub fn is_on(&self, key: &str) -> bool {
        let value = self.get(key).map(|setting| setting.value.to_ascii_lowercase());
        value.is_some_and(|value| !matches!(value.as_str(), "false" | "no" | "off" | "0"))
    }
}

/// The repositories whose configuration and directories are looked at.
pub struct GitQuestion {
    pub directory: HostPath,
    /// The repository around that directory.
    pub repository: Option<Repository>,
    /// Whether there is a repository around the directory that must not be used.
    pub is_refused: bool,
    /// All repositories of the workspace.
    pub repositories: Vec<Repository>,
    /// The directories that are shown inside.
    pub shown: Vec<HostPath>,
}

/// A running `git config`, which answers while other facts are looked up.
pub struct PendingGitConfig {
    program: Option<HostPath>,
    source: Source,
}

enum Source {
    Nowhere,
    Files(Vec<Setting>),
    Git(Child),
}

impl PendingGitConfig {
    pub fn start(host: &Host, path: &SearchPath, question: &GitQuestion) -> Self {
        let program = path.find("git");
        let source = program.as_ref().map(|program| match plain::read(host, program, question) {
            Some(settings) => Source::Files(settings),
            None => start(host, path, program, &question.directory).map_or(Source::Nowhere, Source::Git),
        });
        PendingGitConfig { program, source: source.unwrap_or(Source::Nowhere) }
    }

    /// The answer. A Git that fails, or hangs on a file, leaves nothing to go by.
    pub fn finish(self, host: &Host) -> GitFacts {
        let mut facts = GitFacts { program: self.program, ..GitFacts::default() };
        match self.source {
            Source::Nowhere => return facts,
            Source::Files(settings) => facts.settings = settings,
            Source::Git(mut child) => {
                let output = child.stdout.take().and_then(|stdout| read_all(stdout, GIT_TIMEOUT));
                let _ = child.kill();
                let _ = child.wait();
                facts.is_silent = output.is_none();
                facts.settings = output.map(|output| parse(&output)).unwrap_or_default();
            }
        }
        facts.signing_key = signing_key(host, &facts);
        facts
    }
}

fn start(host: &Host, path: &SearchPath, program: &HostPath, directory: &HostPath) -> Option<Child> {
    let mut command = Command::new(program.as_path());
    command.arg("-C").arg(directory.as_path());
    command.args(["config", "--list", "--includes", "--show-scope", "--show-origin", "-z"]);
    command.env_clear().envs(host.env.iter().filter(|(name, _)| !STEERING.iter().any(|steer| name == steer)));
    command.env("PATH", path.for_host()).env("HOME", host.home.as_path()).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()
}

/// Only the user's own setting is followed to a file: the repository's could name any (`attacks.md` 01).
fn signing_key(host: &Host, facts: &GitFacts) -> Option<String> {
    let setting = facts.get("user.signingkey").filter(|setting| setting.scope.is_users())?;
    if facts.get("gpg.format")?.value != "ssh" || is_public_key(&setting.value) {
        return None;
    }
    let file = host.expand(Path::new(&setting.value));
    let beside = file.with_file_name(format!("{}.pub", file.file_name()?.to_str()?));
    [beside, file].iter().find_map(|file| {
        let text = std::fs::read_to_string(file).ok().filter(|text| text.len() < LONGEST_KEY)?;
        let line = text.lines().next()?.trim();
        is_public_key(line).then(|| line.to_owned())
    })
}

/// How OpenSSH writes one.
pub fn is_public_key(text: &str) -> bool {
    let text = text.strip_prefix("key::").unwrap_or(text);
    let kind = text.split(' ').next().unwrap_or_default();
    text.contains(' ') && (kind.starts_with("ssh-") || kind.starts_with("ecdsa-") || kind.starts_with("sk-"))
}

/// Everything up to the end of the stream, if that comes in time. Without a thread: the native engine forks later.
fn read_all(mut stream: impl Read + std::os::fd::AsFd, timeout: Duration) -> Option<Vec<u8>> {
    let deadline = Instant::now() + timeout;
    let mut output = Vec::new();
    let mut part = [0; 4 << 10];
    loop {
        let left = Timespec::try_from(deadline.checked_duration_since(Instant::now())?).ok()?;
        match poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&left)) {
            Ok(0) => return None,
            Err(Errno::INTR) => continue,
            Err(_) => return None,
            Ok(_) => {}
        }
        match stream.read(&mut part) {
            Ok(0) => return Some(output),
            Ok(read) if output.len() + read <= LARGEST => output.extend_from_slice(&part[..read]),
            Ok(_) => return None,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// `scope NUL origin NUL key LF value NUL`, repeated. What is not text cannot be acted on, and is left out.
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
