//! Reads environment, user, current directory, terminal and platform of this process. Decides
//! nothing; no other module reads them.

#![allow(clippy::disallowed_methods, reason = "reads the environment for all other modules")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Diagnostic, Kind, Result};
use crate::path::{HostPath, PathError, constant, resolve_dots};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Containers share the host's kernel.
    Linux,
    /// Containers run in a virtual machine.
    Macos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terminal {
    pub stdin: bool,
    pub stdout: bool,
    /// Counts the columns of stdout; `None` if it is no terminal or reports no size.
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

/// The process that sandpen was started as, and its user. Tests build it by hand.
#[derive(Debug, Clone)]
pub struct Host {
    /// `--assume-host` overrides it.
    pub platform: Platform,
    /// Spelled as the engines do: `amd64`, `arm64`.
    pub arch: &'static str,
    pub env: Environment,
    pub uid: u32,
    pub gid: u32,
    pub user: String,
    /// The home directory with all links resolved.
    pub home: HostPath,
    /// The current directory with all links resolved.
    pub cwd: HostPath,
    /// sandpen's configuration and state directories with all links resolved.
    pub own_places: Vec<HostPath>,
    pub terminal: Terminal,
    /// The name of this machine, as it can be given to a sandbox.
    pub name: String,
    /// The name of the sandbox that this process runs in.
    pub sandbox: Option<String>,
    /// The file of this program, which is mounted as the guest helper.
    pub executable: Option<HostPath>,
    pub process: ProcessStamp,
}

/// Identifies a process even after its pid is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessStamp {
    pub pid: u32,
    /// Counts clock ticks from boot to the start of the process; 0 where the system does not report
    /// it.
    pub start: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("the current directory cannot be determined")]
    NoCurrentDirectory { source: std::io::Error },
    #[error("the home or the current directory cannot be used")]
    UnusableDirectory { source: PathError },
}

impl Diagnostic for HostError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NoCurrentDirectory { .. } => vec!["it may have been deleted: change to an existing directory".into()],
            Self::UnusableDirectory { .. } => Vec::new(),
        }
    }
}

impl Host {
    pub fn read() -> Result<Self> {
        let env = Environment(std::env::vars_os().collect());
        let uid = rustix::process::getuid().as_raw();
        let cwd = std::env::current_dir().map_err(|source| HostError::NoCurrentDirectory { source })?;
        // The file is read only if HOME or USER is not set.
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
            name: machine_name(rustix::system::uname().nodename().to_bytes()),
            sandbox: sandbox_around(&env),
            executable: std::env::current_exe().ok().and_then(|path| HostPath::new(path).ok()),
            process: ProcessStamp::current(),
            env,
        };
        host.own_places = [host.config_dir(), host.state_dir()].iter().map(resolved).collect();
        Ok(host)
    }

    pub fn config_dir(&self) -> HostPath {
        self.base_dir("XDG_CONFIG_HOME", ".config")
    }

    /// Returns the directory for sessions, trust decisions and quarantined files.
    pub fn state_dir(&self) -> HostPath {
        self.base_dir("XDG_STATE_HOME", ".local/state")
    }

    /// Tells whether a path contains sandpen's configuration or state, or lies within them.
    pub fn keeps_files_in(&self, path: &HostPath) -> bool {
        let own = [self.config_dir(), self.state_dir()];
        own.iter().chain(&self.own_places).any(|own| own.is_within(path) || path.is_within(own))
    }

    /// Returns `TMPDIR` if it is an absolute path, otherwise `/tmp`.
    pub fn temp_dir(&self) -> HostPath {
        self.env.path("TMPDIR").and_then(|path| HostPath::new(path).ok()).unwrap_or_else(|| constant!(HostPath, "/tmp"))
    }

    /// Makes a path absolute: `~` is the home directory, and other relative paths start at the
    /// current one.
    pub fn expand(&self, path: &Path) -> PathBuf {
        let joined = match path.strip_prefix("~") {
            Ok(below) => self.home.as_path().join(below),
            Err(_) => self.cwd.as_path().join(path),
        };
        resolve_dots(&joined)
    }

    fn base_dir(&self, variable: &str, fallback: &str) -> HostPath {
        // The XDG specification says that relative values are invalid and must be ignored.
        self.env
            .path(variable)
            .and_then(|path| HostPath::new(path).ok())
            .unwrap_or_else(|| self.home.join(fallback))
            .join("sandpen")
    }
}

/// Resolves the links in the part of a path that exists.
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
    HostPath::new(path).map_err(|source| HostError::UnusableDirectory { source }.into())
}

/// Returns the name if every engine accepts it as a host name.
fn machine_name(name: &[u8]) -> String {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let starts_well = name.first().is_some_and(u8::is_ascii_alphanumeric);
    if starts_well && name.len() <= 63 && name.iter().all(is_allowed) {
        String::from_utf8_lossy(name).into_owned()
    } else {
        "sandbox".to_owned()
    }
}

/// Returns the name of sandpen's sandbox around this process. The variable alone proves nothing, so
/// the process must also be unable to gain privileges, as everything inside is.
fn sandbox_around(env: &Environment) -> Option<String> {
    let name = env.text("SANDBOX").filter(|name| name.starts_with("sandpen-"))?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().any(|line| line == "NoNewPrivs:\t1").then(|| name.to_owned())
}

/// Tells whether a name can be written into a passwd file.
fn is_account_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// An entry of `/etc/passwd`. The file is read directly: a static binary has no reliable name
/// service.
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
    pub fn current() -> Self {
        ProcessStamp { pid: std::process::id(), start: start_time("self").unwrap_or(0) }
    }
}

/// Reads field 22 of `/proc/PID/stat`. The command name (field 2) may contain anything, so fields
/// are counted from its last `)`.
fn start_time(process: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// Returns the value even if it is empty or not UTF-8.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Returns the value as a path; an empty one counts as not set.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.raw(name).filter(|value| !value.is_empty()).map(Path::new)
    }

    /// Returns the value as text; an empty or non-UTF-8 one counts as not set.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.raw(name).and_then(OsStr::to_str).filter(|value| !value.is_empty())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Environment(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
