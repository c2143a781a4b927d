//! Looks at what a container engine's overlays depend on: the kernel, and the file system of the
//! directory that is written.

use serde::Serialize;

use crate::path::HostPath;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverlayFacts {
    /// The kernel's release, such as `6.1.0-28-amd64`.
    pub release: String,
    /// The type of the file system, as statfs(2) returns it; `None` if it cannot be found out.
    pub file_system: Option<u64>,
}

impl OverlayFacts {
    /// Looks at the directory, or at the closest one above that exists.
    pub fn look(directory: &HostPath) -> Self {
        OverlayFacts {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: directory.as_path().ancestors().find_map(file_system),
        }
    }
}

#[cfg(target_os = "linux")]
fn file_system(path: &std::path::Path) -> Option<u64> {
    u64::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()
}

/// Only Linux has overlays.
#[cfg(not(target_os = "linux"))]
fn file_system(_: &std::path::Path) -> Option<u64> {
    None
}
