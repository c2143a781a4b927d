//! Defines the files and directories that the session creates on the host before the launch.
//! Creates none itself.

use crate::path::HostPath;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepare {
    /// A directory in the session's directory.
    Directory { path: HostPath, mode: u32 },
    /// A directory outside of the session's directory that only this user may enter, and that must
    /// not exist yet. It names the session, with which it is removed.
    Private { path: HostPath, session: HostPath },
    /// A directory for Git's objects in the session's directory, which is used again by later
    /// sessions if it stays empty.
    Objects { path: HostPath },
    /// A file in the session's directory.
    File { path: HostPath, content: String },
    /// A copy of a directory of hooks in the session's directory, which the guest may change.
    Copy { path: HostPath, from: HostPath },
    /// An empty file that the guest may write whatever its uid is.
    Shared { path: HostPath },
    /// A mount point in a directory of the user, created only if no link on the way leads out of
    /// `root`.
    Point { path: HostPath, root: HostPath, is_directory: bool },
    /// A directory that stays after the run: an agent's settings, a Python environment.
    Keep { path: HostPath },
    /// A file that stays after the run, created with this content unless it exists.
    KeepFile { path: HostPath, content: String },
    /// A directory of sandpen's own that guests write and that stays after the run. The names in it
    /// are made directories, whatever an earlier guest has left there.
    Own { path: HostPath, directories: Vec<String> },
}
