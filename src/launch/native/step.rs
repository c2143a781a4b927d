//! What a sandbox is made of, as plain data: decides nothing and touches nothing.

use std::path::{Path, PathBuf};

/// One set-up operation. Steps are executed in order inside the new mount namespace; paths of the
/// guest are absolute, without `.` or `..`. A later step covers an earlier one on the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A directory, with its missing parents (0755).
    Dir {
        path: PathBuf,
        mode: u32,
    },
    Bind(Bind),
    /// A private, empty, writable file system.
    Tmpfs {
        path: PathBuf,
        mode: u32,
    },
    Symlink {
        path: PathBuf,
        to: PathBuf,
    },
    /// A generated file. It must not exist yet: nothing of the host is ever overwritten.
    File {
        path: PathBuf,
        content: Vec<u8>,
        mode: u32,
    },
    /// The pid namespace's own `/proc`, with what containers mask masked.
    Proc,
    /// A minimal `/dev`: six device nodes, `pts` of its own, `shm`, the usual links, and `console`
    /// if a standard stream is a terminal (so that `ttyname` finds it).
    Dev,
}

/// A recursive bind mount, `nosuid` and `nodev`. Read-only means the whole tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// A real path: a symbolic link met on the way fails the launch, because whoever can write
    /// there could redirect the mount between planning and launch.
    pub source: PathBuf,
    pub target: PathBuf,
    pub writable: bool,
}

impl Step {
    /// Where in the guest the step takes effect.
    pub fn target(&self) -> &Path {
        match self {
            Self::Dir { path, .. }
            | Self::Tmpfs { path, .. }
            | Self::Symlink { path, .. }
            | Self::File { path, .. } => path,
            Self::Bind(bind) => &bind.target,
            Self::Proc => Path::new("/proc"),
            Self::Dev => Path::new("/dev"),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    pub pids: Option<u64>,
    /// Bytes.
    pub memory: Option<u64>,
    pub cpus: Option<f64>,
}

/// How the guest stands to the terminal's process groups (see `terminal`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A process group of its own: `kill(0, …)` inside reaches nobody outside.
    Own,
    /// The caller's, for pipelines: a signal from the terminal reaches all of the job alike.
    /// Where Landlock cannot scope signals, `kill(0, …)` is refused instead.
    Shared,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    pub steps: Vec<Step>,
    pub hostname: String,
    /// The ids the guest sees; they stand for the caller's effective ids.
    pub uid: u32,
    pub gid: u32,
    pub cwd: PathBuf,
    pub share_network: bool,
    /// A port that is bound on the sandbox's own loopback, whose listener the launcher gets. Needs a network of its own.
    pub listen: Option<u16>,
    pub group: Group,
    pub limits: Limits,
}
