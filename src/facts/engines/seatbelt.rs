//! What macOS Seatbelt needs to know of the host: real paths, because the kernel compares those, and the user's own profile.

use std::fs;

use serde::Serialize;

use crate::config::Sourced;
use crate::config::value::BuiltIn;
use crate::error::{Error, Result};
use crate::host::{Host, resolved};
use crate::path::HostPath;

/// Only the system's: whatever else is called so, on PATH, is not the wall.
const PROGRAM: &str = "/usr/bin/sandbox-exec";
/// A profile larger than this is no profile.
const LARGEST: u64 = 1 << 20;

/// The host's side of a Seatbelt sandbox. All paths are real ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeatbeltFacts {
    /// The program, if it is there.
    pub program: Option<HostPath>,
    /// The home.
    pub home: HostPath,
    /// The host's temp directory.
    pub temp: HostPath,
    /// Where the system keeps this user's caches.
    pub cache: HostPath,
    /// sandpen's configuration.
    pub config: HostPath,
    /// sandpen's state.
    pub state: HostPath,
    /// The directory of all sessions.
    pub sessions: HostPath,
    /// This very program, the first one inside.
    pub helper: Option<HostPath>,
    /// The user's own profile, if one is named.
    pub own: Option<OwnProfile>,
}

/// A profile that the user wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnProfile {
    /// Where it is.
    pub path: HostPath,
    /// What it says.
    pub text: String,
}

impl SeatbeltFacts {
    /// Looks. `mounted` are the directories that the guest can write to.
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

    /// Looks for the helper again, after the program was found elsewhere.
    pub fn find_helper(&mut self, host: &Host) {
        self.helper = host.executable.as_ref().map(resolved);
    }
}

/// The program, if it is there.
#[cfg(target_os = "macos")]
pub fn program(_: &Host) -> Option<HostPath> {
    HostPath::new(PROGRAM).ok().filter(|program| program.as_path().is_file())
}

/// No other system has one. Where macOS is only assumed, a stand-in may be named; a Mac's own sandpen does not know the variable.
#[cfg(not(target_os = "macos"))]
pub fn program(host: &Host) -> Option<HostPath> {
    let named = host.env.path(crate::vars::SANDBOX_EXEC).unwrap_or(std::path::Path::new(PROGRAM));
    HostPath::new(named).ok().filter(|program| program.as_path().is_file())
}

/// The directory that `getconf DARWIN_USER_CACHE_DIR` prints.
#[cfg(target_os = "macos")]
fn cache_dir(host: &Host) -> HostPath {
    use std::os::unix::ffi::OsStrExt;
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: confstr writes at most the given number of bytes into the buffer, which outlives the call.
    let length = unsafe { libc::confstr(libc::_CS_DARWIN_USER_CACHE_DIR, buffer.as_mut_ptr().cast(), buffer.len()) };
    let text = buffer.get(..length.saturating_sub(1)).unwrap_or_default();
    HostPath::new(std::ffi::OsStr::from_bytes(text)).unwrap_or_else(|_| host.home.join("Library/Caches"))
}

#[cfg(not(target_os = "macos"))]
fn cache_dir(host: &Host) -> HostPath {
    host.home.join("Library/Caches")
}

/// The file that a name stands for. Never one that the guest could have written: it would choose its own walls (`attacks.md` 09).
fn own_profile(host: &Host, named: &Sourced<String>, mounted: &[HostPath]) -> Result<OwnProfile> {
    let Sourced { value: name, origin } = named;
    let directory = host.config_dir().join("seatbelt");
    let path = match name.contains('/') {
        true => HostPath::new(host.expand(std::path::Path::new(name)))
            .map_err(|error| Error::usage(format!("{origin}: `{name}` is not a path")).cause(error))?,
        false => directory.join(format!("{name}.sb")),
    };
    let known = format!("expected {}, or a file of your own: a path, or a name in `{directory}`", BuiltIn::list());
    let found = resolved(&path);
    if mounted.iter().any(|root| found.is_within(root) || path.is_within(root)) {
        return Err(Error::usage(format!(
            "{origin}: `{path}` lies in a directory of the sandbox, which must not choose its own walls"
        ))
        .hint(format!("read it; if you trust it, copy it: `cp {name} {directory}/`, and name the copy")));
    }
    let text = fs::metadata(found.as_path())
        .and_then(|meta| match meta.is_file() && meta.len() <= LARGEST {
            true => fs::read_to_string(found.as_path()),
            false => Err(std::io::ErrorKind::InvalidData.into()),
        })
        .map_err(|error| {
            let unknown =
                Error::usage(format!("{origin}: `{name}` is no Seatbelt profile, and `{path}` cannot be read"));
            let project = host.cwd.join(".llxprt").join(format!("sandbox-macos-{name}.sb"));
            match project.as_path().is_file() {
                true => unknown.cause(error).hint(format!(
                    "`{project}` is the project's and has no effect: read it; if you trust it, copy it to `{path}`"
                )),
                false => unknown.cause(error).hint(&known),
            }
        })?;
    Ok(OwnProfile { path: found, text })
}
