//! Runs the host's Git: without the caller's environment, hooks, fsmonitor or maintenance, and with
//! limits of time and memory, because the objects that it reads come from a guest.

#![allow(clippy::disallowed_methods, reason = "runs the host's Git on what comes out of a sandbox")]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::plan::RepositoryGate;
use crate::process::read_output;

/// A large fetch inside takes minutes to verify; a Git that hangs must end some day.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Enough for the largest deltas that Git itself makes, and an end for a bomb.
#[cfg(target_os = "linux")]
const MAX_MEMORY: u64 = 8 << 30;
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
    "protocol.allow=never",
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
    command: Command,
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
    #[error("git {what}: {message}")]
    Failed { what: String, message: String },
}

impl GitError {
    /// Tells whether another attempt may succeed: Git did not run, or the disk was full.
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
            GitError::Start(_) | GitError::Timeout { .. } => true,
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

    /// Prepares a call for a Git directory.
    pub fn call(&self, git_dir: &Path, arguments: &[&str]) -> Call<'_> {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", &self.path).env("HOME", &self.home).env("LC_ALL", "C");
        command.env("GIT_DIR", git_dir).env("GIT_NO_LAZY_FETCH", "1").env("GIT_NO_REPLACE_OBJECTS", "1");
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("GIT_ADVICE", "0");
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.args(arguments);
        Call { git: self, command, input: None, output: None }
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
        self.command.env("GIT_WORK_TREE", directory).current_dir(directory);
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
        let what = self.command.get_args().nth(2 * SETTINGS.len()).unwrap_or_default().to_string_lossy().into_owned();
        let mut messages = self.git.temporary()?;
        self.command.stdin(self.input.take().map_or_else(Stdio::null, Stdio::from));
        self.command.stderr(messages.try_clone()?);
        self.command.stdout(self.output.take().map_or_else(Stdio::piped, Stdio::from));
        let deadline = Instant::now() + TIMEOUT;
        let mut child = self.command.spawn()?;
        limit_memory(&child);
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
                    _ => GitError::Start(error),
                });
            }
        };
        if child.wait()?.success() {
            return Ok(output);
        }
        let mut text = String::new();
        messages.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        messages.take(MAX_MESSAGE).read_to_end(&mut bytes)?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed without a message");
        Err(GitError::Failed {
            what,
            message: line.trim_start_matches("fatal: ").trim_start_matches("error: ").to_owned(),
        })
    }
}

fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<()> {
    let mut pause = Duration::from_micros(200);
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn limit_memory(child: &Child) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let limit = Rlimit { current: Some(MAX_MEMORY), maximum: Some(MAX_MEMORY) };
    // A process that has ended already cannot be limited.
    let _ = pid.map(|pid| prlimit(Some(pid), Resource::As, limit));
}

#[cfg(not(target_os = "linux"))]
fn limit_memory(_: &Child) {}
