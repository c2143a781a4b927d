//! Names the files that are copied into a sandbox on another machine, where nothing can be mounted.

use crate::path::{GuestPath, HostPath};

/// A file or directory of the host, and its path inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCopy {
    pub source: HostPath,
    pub target: GuestPath,
    pub is_directory: bool,
    /// Whether it is a directory of the workspace, of which ignored files are left out.
    pub is_workspace: bool,
}
