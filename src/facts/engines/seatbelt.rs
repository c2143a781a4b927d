//! Looks up the paths that a Seatbelt profile names, with links resolved because the kernel
//! compares real paths, and reads the user's profile.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::config::value::BuiltIn;
use crate::config::{Origin, Sourced};
use crate::error::{Diagnostic, Kind, Result};
use crate::host::{Host, resolved};
use crate::path::{HostPath, PathError};

/// Only the system's program enforces the sandbox; one of this name on PATH might not.
const PROGRAM: &str = "/usr/bin/sandbox-exec";
const MAX_PROFILE: u64 = 1 << 20;

/// All paths have their links resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeatbeltFacts {
    /// `sandbox-exec`.
    pub program: Option<HostPath>,
    pub home: HostPath,
    /// The host's directory for temporary files.
    pub temp: HostPath,
    /// The directory in which macOS keeps this user's caches.
    pub cache: HostPath,
    /// sandpen's configuration directory.
    pub config: HostPath,
    /// sandpen's state directory.
    pub state: HostPath,
    /// The parent of all session directories.
    pub sessions: HostPath,
    /// This program, which runs inside as the first process.
    pub helper: Option<HostPath>,
    /// The profile that the user wrote; `None` for a built-in one.
    pub own: Option<OwnProfile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnProfile {
    pub path: HostPath,
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("{origin}: `{name}` is not a path")]
    NotAPath { origin: Origin, name: String, source: PathError },
    #[error("{origin}: `{path}` is in a directory that the guest can write to, so it cannot be used as a profile")]
    Writable { origin: Origin, name: String, path: HostPath, directory: HostPath },
    #[error("{origin}: `{name}` is not a built-in Seatbelt profile, and `{path}` cannot be read")]
    Unreadable {
        origin: Origin,
        name: String,
        path: HostPath,
        directory: HostPath,
        /// A profile of this name in the project, which has no effect.
        project: Option<HostPath>,
        source: std::io::Error,
    },
}

impl Diagnostic for ProfileError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NotAPath { .. } => Vec::new(),
            Self::Writable { name, directory, .. } => {
                vec![format!("read it; if you trust it, copy it: `cp {name} {directory}/`, and name the copy")]
            }
            Self::Unreadable { project: Some(project), path, .. } => vec![format!(
                "`{project}` belongs to the project and has no effect: read it; if you trust it, copy it to `{path}`"
            )],
            Self::Unreadable { directory, .. } => {
                vec![format!("expected {}, a path, or the name of a file in `{directory}`", BuiltIn::list())]
            }
        }
    }
}

impl SeatbeltFacts {
    /// `mounted` are the directories that the guest can write to.
    pub fn look(
        host: &Host,
        profile: Option<&Sourced<String>>,
        sessions: &HostPath,
        mounted: &[HostPath],
    ) -> Result<Self> {
        let own = profile.map(|named| own_profile(host, named, mounted)).transpose()?;
        Ok(SeatbeltFacts {
            program: program(host),
            home: resolved(&host.home),
            temp: resolved(&host.temp_dir()),
            cache: resolved(&cache_dir(host)),
            config: resolved(&host.config_dir()),
            state: resolved(&host.state_dir()),
            sessions: resolved(sessions),
            helper: host.executable.as_ref().map(resolved),
            own,
        })
    }

    /// Updates the helper after `Host::executable` has changed.
    pub fn find_helper(&mut self, host: &Host) {
        self.helper = host.executable.as_ref().map(resolved);
    }
}

#[cfg(target_os = "macos")]
pub fn program(_: &Host) -> Option<HostPath> {
    HostPath::new(PROGRAM).ok().filter(|program| program.as_path().is_file())
}

/// Tests that assume macOS name a replacement by a variable, which builds for macOS do not read.
#[cfg(not(target_os = "macos"))]
pub fn program(host: &Host) -> Option<HostPath> {
    let named = host.env.path(crate::vars::SANDBOX_EXEC).unwrap_or(Path::new(PROGRAM));
    HostPath::new(named).ok().filter(|program| program.as_path().is_file())
}

/// Returns the directory that `getconf DARWIN_USER_CACHE_DIR` prints.
#[cfg(target_os = "macos")]
fn cache_dir(host: &Host) -> HostPath {
    use std::os::unix::ffi::OsStrExt;
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: confstr writes at most the given number of bytes into the buffer, which outlives the
    // call.
    let length = unsafe { libc::confstr(libc::_CS_DARWIN_USER_CACHE_DIR, buffer.as_mut_ptr().cast(), buffer.len()) };
    let text = buffer.get(..length.saturating_sub(1)).unwrap_or_default();
    HostPath::new(std::ffi::OsStr::from_bytes(text)).unwrap_or_else(|_| host.home.join("Library/Caches"))
}

#[cfg(not(target_os = "macos"))]
fn cache_dir(host: &Host) -> HostPath {
    host.home.join("Library/Caches")
}

/// Reads the user's profile. A file that the guest can write is refused: it would choose its own
/// rules (attack 09).
fn own_profile(host: &Host, named: &Sourced<String>, mounted: &[HostPath]) -> Result<OwnProfile> {
    let Sourced { value: name, origin } = named;
    let (name, origin) = (name.clone(), origin.clone());
    let directory = host.config_dir().join("seatbelt");
    let path = if name.contains('/') {
        match HostPath::new(host.expand(Path::new(&name))) {
            Ok(path) => path,
            Err(source) => return Err(ProfileError::NotAPath { origin, name, source }.into()),
        }
    } else {
        directory.join(format!("{name}.sb"))
    };
    let found = resolved(&path);
    if mounted.iter().any(|root| found.is_within(root) || path.is_within(root)) {
        return Err(ProfileError::Writable { origin, name, path, directory }.into());
    }
    match read_profile(found.as_path()) {
        Ok(text) => Ok(OwnProfile { path: found, text }),
        Err(source) => {
            let project = host.cwd.join(".llxprt").join(format!("sandbox-macos-{name}.sb"));
            let project = Some(project).filter(|project| project.as_path().is_file());
            Err(ProfileError::Unreadable { origin, name, path, directory, project, source }.into())
        }
    }
}

fn read_profile(path: &Path) -> std::io::Result<String> {
    let meta = fs::metadata(path)?;
    if meta.is_file() && meta.len() <= MAX_PROFILE {
        fs::read_to_string(path)
    } else {
        Err(std::io::ErrorKind::InvalidData.into())
    }
}
