//! The only reader of the process's surroundings: environment, user, directory, terminal, platform. Decides nothing.

#![allow(clippy::disallowed_methods, reason = "the only reader of the process's surroundings")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::path::HostPath;

/// The host's operating system, as far as planning tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Linux, where containers share the host's kernel.
    Linux,
    /// macOS, where containers live in a virtual machine.
    Macos,
}

/// Which of the standard streams are terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terminal {
    /// stdin is a terminal.
    pub stdin: bool,
    /// stdout is a terminal.
    pub stdout: bool,
    /// How many columns stdout has, when it is one and tells.
    pub width: Option<u16>,
}

impl Terminal {
    fn read() -> Self {
        let stdout = std::io::stdout();
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        Terminal {
            stdin: std::io::stdin().is_terminal(),
            stdout: stdout.is_terminal(),
            width: size.map(|size| size.ws_col).filter(|width| *width > 0),
        }
    }
}

/// Everything planning may know about where sandpen runs. Built by hand in tests.
#[derive(Debug, Clone)]
pub struct Host {
    /// Operating system, or what `--assume-host` says.
    pub platform: Platform,
    /// CPU architecture in the engines' spelling (`amd64`, `arm64`).
    pub arch: &'static str,
    /// The environment variables.
    pub env: Environment,
    /// The user's id.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The user's name.
    pub user: String,
    /// The user's home directory, its real path.
    pub home: HostPath,
    /// The real path of the current directory.
    pub cwd: HostPath,
    /// Where sandpen's own files really are, whatever links lead there.
    pub own_places: Vec<HostPath>,
    /// Which streams are terminals.
    pub terminal: Terminal,
    /// This program's own file, for the guest helper.
    pub executable: Option<HostPath>,
    /// This process and the kernel's start time of it, so that a reused pid is told apart.
    pub process: ProcessStamp,
}

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessStamp {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot; 0 where the system does not tell.
    pub start: u64,
}

impl Host {
    /// Reads the real surroundings.
    pub fn read() -> Result<Self> {
        let env = Environment(std::env::vars_os().collect());
        let uid = rustix::process::getuid().as_raw();
        let cwd = std::env::current_dir().map_err(|error| {
            Error::usage("the current directory cannot be determined")
                .cause(error)
                .hint("it may have been deleted: change to an existing directory")
        })?;
        // Read only where the environment does not say.
        let account = std::cell::LazyCell::new(|| Account::of(uid));
        let home = env
            .path("HOME")
            .filter(|home| home.is_absolute())
            .map(Path::to_owned)
            .or_else(|| account.as_ref().map(|account| account.home.clone()))
            .unwrap_or_else(|| PathBuf::from("/nonexistent"));
        let home = home.canonicalize().unwrap_or(home);
        let user = ["USER", "LOGNAME"]
            .iter()
            .find_map(|name| env.text(name))
            .filter(|name| is_account_name(name))
            .map(str::to_owned)
            .or_else(|| account.as_ref().map(|account| account.name.clone()))
            .unwrap_or_else(|| "user".to_owned());
        let mut host = Host {
            platform: if cfg!(target_os = "macos") { Platform::Macos } else { Platform::Linux },
            arch: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            },
            uid,
            gid: rustix::process::getgid().as_raw(),
            user,
            home: absolute(home)?,
            cwd: absolute(cwd)?,
            own_places: Vec::new(),
            terminal: Terminal::read(),
            executable: std::env::current_exe().ok().and_then(|path| HostPath::new(path).ok()),
            process: ProcessStamp::current(),
            env,
        };
        host.own_places = [host.config_dir(), host.state_dir()].iter().map(resolved).collect();
        Ok(host)
    }

    /// sandpen's directory for the user's configuration.
    pub fn config_dir(&self) -> HostPath {
        self.base_dir("XDG_CONFIG_HOME", ".config")
    }

    /// sandpen's directory for what it keeps: sessions and trust decisions.
    pub fn state_dir(&self) -> HostPath {
        self.base_dir("XDG_STATE_HOME", ".local/state")
    }

    /// Whether a path holds sandpen's own configuration or state, or is part of it.
    pub fn keeps_files_in(&self, path: &HostPath) -> bool {
        let own = [self.config_dir(), self.state_dir()];
        own.iter().chain(&self.own_places).any(|own| own.is_within(path) || path.is_within(own))
    }

    /// The directory programs on the host use for temporary files.
    pub fn temp_dir(&self) -> HostPath {
        self.env
            .path("TMPDIR")
            .and_then(|path| HostPath::new(path).ok())
            .unwrap_or_else(|| HostPath::new("/tmp").unwrap_or_else(|_| self.home.clone()))
    }

    /// `~` and `~/x` become paths below HOME, relative paths are taken from the current directory, and `..` leaves a name as
    /// in a shell.
    pub fn expand(&self, path: &Path) -> PathBuf {
        let joined = match path.strip_prefix("~") {
            Ok(below) => self.home.as_path().join(below),
            Err(_) => self.cwd.as_path().join(path),
        };
        let mut clean = PathBuf::new();
        for part in joined.components() {
            match part {
                Component::ParentDir => {
                    clean.pop();
                }
                part => clean.push(part),
            }
        }
        clean
    }

    fn base_dir(&self, variable: &str, fallback: &str) -> HostPath {
        // XDG: relative values are invalid and ignored.
        self.env
            .path(variable)
            .and_then(|path| HostPath::new(path).ok())
            .unwrap_or_else(|| self.home.join(fallback))
            .join("sandpen")
    }
}

/// The path with all links resolved, as far as it exists.
pub fn resolved(path: &HostPath) -> HostPath {
    for above in path.as_path().ancestors() {
        let (Ok(known), Ok(below)) = (above.canonicalize(), path.as_path().strip_prefix(above)) else { continue };
        if let Ok(known) = HostPath::new(known) {
            return known.join(below);
        }
    }
    path.clone()
}

fn absolute(path: PathBuf) -> Result<HostPath> {
    HostPath::new(path).map_err(|error| Error::usage("a directory of this process cannot be used").cause(error))
}

/// Names that can stand in a passwd entry.
fn is_account_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// A line of the host's passwd file. Read as a file: a static binary has no dependable name service.
struct Account {
    name: String,
    home: PathBuf,
}

impl Account {
    fn of(uid: u32) -> Option<Self> {
        let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            match fields.as_slice() {
                [name, _, id, _, _, home, ..] if id.parse() == Ok(uid) && is_account_name(name) => {
                    Some(Account { name: (*name).to_owned(), home: PathBuf::from(home) })
                }
                _ => None,
            }
        })
    }
}

impl ProcessStamp {
    fn current() -> Self {
        ProcessStamp { pid: std::process::id(), start: start_time("self").unwrap_or(0) }
    }
}

/// Field 22 of `/proc/PID/stat`. The command name (field 2) may hold anything, so fields count from its last `)`.
fn start_time(process: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Environment variables as plain data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The raw value, which may be empty.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value as a path; an empty value means "not set".
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.raw(name).filter(|value| !value.is_empty()).map(Path::new)
    }

    /// The value as text; an empty or non-UTF-8 value means "not set".
    pub fn text(&self, name: &str) -> Option<&str> {
        self.raw(name).and_then(OsStr::to_str).filter(|value| !value.is_empty())
    }

    /// All variables.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Environment(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
