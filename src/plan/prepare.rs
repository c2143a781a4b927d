//! The files and directories that the session makes on the host before the launch.

use crate::path::HostPath;

/// Something to make on the host before the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepare {
    /// A directory of the session's own.
    Directory {
        /// Where.
        path: HostPath,
        /// Its permissions.
        mode: u32,
    },
    /// A file of the session's own.
    File {
        /// Where.
        path: HostPath,
        /// What it holds.
        content: String,
    },
    /// An empty file that the guest may write, whoever it is.
    Shared {
        /// Where.
        path: HostPath,
    },
    /// A mount point in a directory of the user's, below `root`; made only where no link leads out of it.
    Point {
        /// Where.
        path: HostPath,
        /// The directory that must not be left.
        root: HostPath,
        /// Whether it is a directory or a file.
        is_directory: bool,
    },
    /// A directory of the user's that stays: an agent's settings, a Python environment.
    Keep {
        /// Where.
        path: HostPath,
    },
}
