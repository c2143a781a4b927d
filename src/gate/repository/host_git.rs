//! Runs the host's Git: without the caller's environment, filters, hooks, fsmonitor or maintenance,
//! and with limits of time and memory, because the objects that it reads come from a guest.

#![allow(clippy::disallowed_methods, reason = "runs the host's Git on what comes out of a sandbox")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Resource;

use crate::plan::RepositoryGate;
use crate::process::{bounded_work, read_output};

/// A large fetch inside takes minutes to verify; a Git that hangs must end some day.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Enough for the largest deltas that Git itself makes, and an end for a bomb.
const MAX_MEMORY: u64 = 8 << 30;
/// Signals that a process gets for an error of its own.
const CRASHES: &[i32] = &[libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGSYS];
/// Lists of refs and objects have at most this size.
const MAX_OUTPUT: usize = 256 << 20;
/// The part of Git's messages that is kept.
const MAX_MESSAGE: u64 = 64 << 10;

/// Settings by which Git would run other programs.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=keep",
    "gc.auto=0",
    "maintenance.auto=false",
    "core.alternateRefsCommand=",
    "submodule.recurse=false",
    "log.showSignature=false",
    "protocol.allow=never",
];

/// Variables by which Git starts no pager or editor, connects to no remote and writes no trace.
const VARIABLES: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_ADVICE", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", ":"),
    // Unlike `protocol.allow`, it overrides the user's `protocol.NAME.allow`.
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_TRACE2", "0"),
    ("GIT_TRACE2_EVENT", "0"),
    ("GIT_TRACE2_PERF", "0"),
];

/// Commands that run neither filters nor hooks. All others get settings that disable each of them.
const PASSIVE: &[&str] = &[
    "cat-file",
    "config",
    "for-each-ref",
    "index-pack",
    "init",
    "merge-base",
    "pack-objects",
    "rev-list",
    "rev-parse",
    "unpack-objects",
];

/// Sections, keys and values that disable a filter or a hook.
const DISABLED: &[(&str, &str, &str)] = &[
    ("filter.", ".clean", ""),
    ("filter.", ".smudge", ""),
    ("filter.", ".process", ""),
    ("filter.", ".required", "false"),
    ("hook.", ".enabled", "false"),
];

/// The host's Git and the directory for its input and messages.
#[derive(Debug, Clone)]
pub struct HostGit {
    program: PathBuf,
    path: PathBuf,
    home: PathBuf,
    /// A private directory of the session.
    scratch: PathBuf,
}

/// A call of Git.
pub struct Call<'a> {
    git: &'a HostGit,
    git_dir: PathBuf,
    work_tree: Option<PathBuf>,
    /// Variables for the author of an entry in a reflog.
    committer: Vec<(&'static str, String)>,
    arguments: Vec<String>,
    input: Option<File>,
    output: Option<File>,
}

/// Describes why Git failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git cannot be run: {0}")]
    Start(#[from] io::Error),
    #[error("git {what} did not end in time")]
    Timeout { what: String },
    #[error("git {what}: {source}")]
    Stopped { what: String, source: io::Error },
    #[error("git {what} was ended by signal {signal}")]
    Killed { what: String, signal: i32 },
    #[error("git {what}: {message}")]
    Failed { what: String, code: Option<i32>, message: String },
}

impl GitError {
    /// Tells whether another attempt may succeed: Git did not run to its end, or the disk was full.
    pub fn is_temporary(&self) -> bool {
        let known = [
            "No space left",
            "Disk quota",
            "Read-only file system",
            "Permission denied",
            "insufficient permission",
            "File exists",
        ];
        match self {
            GitError::Start(_) | GitError::Timeout { .. } | GitError::Stopped { .. } => true,
            // Objects that make Git crash do so each time.
            GitError::Killed { signal, .. } => !CRASHES.contains(signal),
            GitError::Failed { message, .. } => known.iter().any(|known| message.contains(known)),
        }
    }
}

pub type GitResult<T> = Result<T, GitError>;

impl HostGit {
    /// Returns `None` if the host has no Git.
    pub fn new(gate: &RepositoryGate, scratch: PathBuf) -> Option<Self> {
        Some(HostGit { program: gate.git.clone()?, path: gate.path.clone(), home: gate.home.clone(), scratch })
    }

    /// Takes a program that no guest can have written, its PATH and the user's home.
    pub fn of_user(program: PathBuf, path: PathBuf, home: PathBuf, scratch: PathBuf) -> Self {
        HostGit { program, path, home, scratch }
    }

    /// Prepares a call for a Git directory.
    pub fn call(&self, git_dir: &Path, arguments: &[&str]) -> Call<'_> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (work_tree, committer) = (None, Vec::new());
        Call { git: self, git_dir: git_dir.to_owned(), work_tree, committer, arguments, input: None, output: None }
    }

    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Creates a private file without a name.
    pub fn temporary(&self) -> io::Result<File> {
        let path = self.scratch.join(format!("git-{}", crate::session_id::random_name()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        Ok(file)
    }
}

impl Call<'_> {
    pub fn work_tree(mut self, directory: &Path) -> Self {
        self.work_tree = Some(directory.to_owned());
        self
    }

    /// Sets the author of an entry in a reflog, in the form `NAME <EMAIL> SECONDS ZONE`; ignores another
    /// form.
    pub fn committer(mut self, who: &str) -> Self {
        let parts = who.split_once(" <").and_then(|(name, rest)| Some((name, rest.split_once("> ")?)));
        if let Some((name, (email, date))) = parts {
            self.committer = vec![
                ("GIT_COMMITTER_NAME", name.to_owned()),
                ("GIT_COMMITTER_EMAIL", email.to_owned()),
                ("GIT_COMMITTER_DATE", format!("@{date}")),
            ];
        }
        self
    }

    pub fn input(mut self, text: &[u8]) -> GitResult<Self> {
        let mut file = self.git.temporary()?;
        file.write_all(text)?;
        file.seek(SeekFrom::Start(0))?;
        self.input = Some(file);
        Ok(self)
    }

    pub fn input_file(mut self, mut file: File) -> GitResult<Self> {
        file.seek(SeekFrom::Start(0))?;
        self.input = Some(file);
        Ok(self)
    }

    /// Lets Git write its output to a file, which is not limited.
    pub fn output_file(mut self, file: File) -> Self {
        self.output = Some(file);
        self
    }

    /// Runs Git and returns its output.
    pub fn run(mut self) -> GitResult<Vec<u8>> {
        // Options come before the command.
        let command = self.arguments.iter().find(|argument| !argument.starts_with('-'));
        let what = command.cloned().unwrap_or_default();
        let disabled = if PASSIVE.contains(&what.as_str()) { Vec::new() } else { self.disabled()? };
        let mut command = self.command(&disabled);
        let mut messages = self.git.temporary()?;
        command.stdin(self.input.take().map_or_else(Stdio::null, Stdio::from));
        command.stderr(messages.try_clone()?);
        command.stdout(self.output.take().map_or_else(Stdio::piped, Stdio::from));
        let deadline = Instant::now() + TIMEOUT;
        let mut child = command.spawn()?;
        limit(&child, &[(Resource::As, MAX_MEMORY)]);
        let output = match child.stdout.take() {
            Some(stdout) => read_output(stdout, deadline, MAX_OUTPUT),
            None => wait_until(&mut child, deadline).map(|()| Vec::new()),
        };
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match error.kind() {
                    ErrorKind::TimedOut => GitError::Timeout { what },
                    _ if bounded_work::stop(&error).is_some() => GitError::Stopped { what, source: error },
                    _ => GitError::Start(error),
                });
            }
        };
        let status = child.wait()?;
        if status.success() {
            return Ok(output);
        }
        if let Some(signal) = status.signal() {
            return Err(GitError::Killed { what, signal });
        }
        let mut text = String::new();
        messages.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        messages.take(MAX_MESSAGE).read_to_end(&mut bytes)?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed without a message");
        Err(GitError::Failed {
            what,
            code: status.code(),
            message: line.trim_start_matches("fatal: ").trim_start_matches("error: ").to_owned(),
        })
    }

    /// Starts a command that runs neither filters nor hooks, with pipes for its streams and limits of its
    /// own, in bytes and seconds.
    pub fn start(self, max_memory: u64, max_cpu: u64) -> GitResult<Child> {
        let mut command = self.command(&[]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        limit(&child, &[(Resource::As, max_memory), (Resource::Cpu, max_cpu)]);
        Ok(child)
    }

    fn command(&self, disabled: &[Setting]) -> Command {
        let mut command = Command::new(&self.git.program);
        command.env_clear().env("PATH", &self.git.path).env("HOME", &self.git.home).env("GIT_DIR", &self.git_dir);
        command.envs(VARIABLES.iter().copied()).envs(self.committer.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.work_tree {
            command.env("GIT_WORK_TREE", directory).current_dir(directory);
        }
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let mut count = 0;
        for (name, value) in disabled {
            // With `-c`, a name ends at the first equals sign. Git before 2.31 has only `-c`.
            if name.as_bytes().contains(&b'=') {
                command.env(format!("GIT_CONFIG_KEY_{count}"), name).env(format!("GIT_CONFIG_VALUE_{count}"), value);
                count += 1;
            } else {
                let mut setting = name.clone();
                setting.push("=");
                setting.push(value);
                command.arg("-c").arg(setting);
            }
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        // Ctrl-C and a terminal that closes end the processes of sandpen's group.
        command.args(&self.arguments).process_group(0);
        command
    }

    /// Lists the settings that disable the user's filters and hooks: the programs that they name may
    /// be files of the project, which the guest can write. They are read each time, because they may
    /// depend on the branch of HEAD.
    fn disabled(&self) -> GitResult<Vec<Setting>> {
        let mut list = self.git.call(&self.git_dir, &["config", "--list", "--name-only", "-z"]);
        list.work_tree.clone_from(&self.work_tree);
        Ok(disabling(&list.run()?))
    }
}

/// The name and the value of a setting.
type Setting = (OsString, &'static str);

/// Returns the settings that disable the filters and hooks among the names of settings.
fn disabling(names: &[u8]) -> Vec<Setting> {
    let mut disabled = Vec::new();
    for (section, key, value) in DISABLED {
        let of_section = names.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(section.as_bytes()));
        let drivers = of_section.filter_map(|rest| rest.get(..rest.iter().rposition(|byte| *byte == b'.')?));
        for driver in drivers.collect::<BTreeSet<_>>() {
            let name = [section.as_bytes(), driver, key.as_bytes()].concat();
            disabled.push((OsStr::from_bytes(&name).to_owned(), *value));
        }
    }
    disabled
}

fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<()> {
    let mut pause = Duration::from_micros(200);
    while child.try_wait()?.is_none() {
        bounded_work::check()?;
        if Instant::now() > deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn limit(child: &Child, limits: &[(Resource, u64)]) {
    use rustix::process::{Pid, Rlimit, prlimit};
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for (resource, limit) in limits {
        let limit = Rlimit { current: Some(*limit), maximum: Some(*limit) };
        // A process that has ended already cannot be limited.
        let _ = pid.map(|pid| prlimit(Some(pid), *resource, limit));
    }
}

#[cfg(not(target_os = "linux"))]
fn limit(_: &Child, _: &[(Resource, u64)]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_and_hook_is_disabled_once() {
        let names = b"core.bare\0filter.a=b.c.clean\0filter.a=b.c.smudge\0hook.x.command\0filter.odd\0";
        let expected = [
            ("filter.a=b.c.clean", ""),
            ("filter.a=b.c.smudge", ""),
            ("filter.a=b.c.process", ""),
            ("filter.a=b.c.required", "false"),
            ("hook.x.enabled", "false"),
        ];
        assert_eq!(disabling(names), expected.map(|(name, value)| (OsString::from(name), value)));
    }
}
