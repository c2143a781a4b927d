//! The set-up of a native sandbox as plain data.

use std::path::{Path, PathBuf};

/// One set-up operation. Steps are executed in order inside the new mount namespace; paths of the
/// guest are absolute, without `.` or `..`. A later step covers an earlier one on the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Creates a directory and its missing parents (0755).
    Dir {
        path: PathBuf,
        mode: u32,
    },
    Bind(Bind),
    Cache(CacheStep),
    /// Mounts a private, empty, writable directory in memory.
    Tmpfs {
        path: PathBuf,
        mode: u32,
    },
    Symlink {
        path: PathBuf,
        to: PathBuf,
    },
    /// Writes a generated file. It must not exist yet: no file of the host is ever overwritten.
    File {
        path: PathBuf,
        content: Vec<u8>,
        mode: u32,
    },
    /// Mounts the pid namespace's `/proc` and masks what containers mask.
    Proc,
    /// Sets up a minimal `/dev`: six device nodes, a private `pts`, `shm`, the usual links, and
    /// `console` if a standard stream is a terminal (so that `ttyname` finds it).
    Dev,
}

/// A recursive bind mount, `nosuid` and `nodev`. Read-only means the whole tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// A symbolic link in this path fails the launch, because a process that can write there could
    /// redirect the mount between planning and launch.
    pub source: PathBuf,
    pub target: PathBuf,
    pub writable: bool,
    pub kind: BindKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindKind {
    Directory,
    /// A file, a socket or a device.
    File,
    /// A small, read-only file. A copy of it, made anew when it changes, may take the place of the
    /// mount.
    Copied,
}

/// An overlay: the guest sees a directory of the host, and its changes go to a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStep {
    /// Never written.
    pub host: PathBuf,
    /// Contains the directories `upper` and `work`. One sandbox at a time may use it.
    pub layer: PathBuf,
    pub target: PathBuf,
    /// Whether the launch fails if the file systems cannot be combined. Otherwise the guest sees the
    /// layer alone.
    pub is_needed: bool,
}

impl Step {
    /// Returns the path in the guest at which the step takes effect.
    pub fn target(&self) -> &Path {
        match self {
            Self::Dir { path, .. }
            | Self::Tmpfs { path, .. }
            | Self::Symlink { path, .. }
            | Self::File { path, .. } => path,
            Self::Bind(bind) => &bind.target,
            Self::Cache(cache) => &cache.target,
            Self::Proc => Path::new("/proc"),
            Self::Dev => Path::new("/dev"),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NativeLimits {
    pub pids: Option<u64>,
    /// In bytes.
    pub memory: Option<u64>,
    pub cpus: Option<f64>,
}

/// The files of an image as the root, under a layer for changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayRoot {
    /// Never written; lowest first.
    pub lowers: Vec<PathBuf>,
    /// Contains the directories `upper` and `work`; `None` if changes are kept in memory.
    pub layer: Option<PathBuf>,
    /// The session's directory, which other mounts cover in the sandbox's namespace once it is not needed
    /// any more.
    pub place: PathBuf,
}

/// A native sandbox to be created.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeSetup {
    /// `None` for an empty root, which becomes read-only after the last step.
    pub root: Option<OverlayRoot>,
    pub steps: Vec<Step>,
    pub hostname: String,
    /// The ids that the guest sees, mapped to the caller's effective ids.
    pub uid: u32,
    pub gid: u32,
    pub cwd: PathBuf,
    pub share_network: bool,
    /// A port to bind on the sandbox's loopback; the launcher receives the listening socket. Needs
    /// `share_network` to be false.
    pub listen: Option<u16>,
    pub limits: NativeLimits,
    /// The size of all directories in memory together, in bytes; `None` for half of the machine's
    /// memory, the kernel's default.
    pub memory_files: Option<u64>,
    /// Whether the guest may create user namespaces, and mounts in them.
    pub nested: bool,
}

/// A further command in a running native sandbox, whose mounts and namespaces exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeEntry {
    pub cwd: PathBuf,
    /// The process limit of the sandbox, set again where the kernel counts per user namespace.
    pub pids: Option<u64>,
    /// As in [`NativeSetup`].
    pub nested: bool,
}
