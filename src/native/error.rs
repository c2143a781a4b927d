//! The errors of setting up a sandbox: what the child process reports, and what the user reads.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::error::{Diagnostic, Kind};
use crate::facts::engines::native::NamespaceRestriction;

/// A part of the set-up, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    Namespaces,
    Cgroup,
    Identity,
    Hostname,
    Loopback,
    Source,
    Root,
    Step,
    Proc,
    Pivot,
    WorkingDirectory,
    Descriptors,
    Limits,
    Privileges,
    Landlock,
    Seccomp,
    Parent,
    Enter,
    Terminal,
}

impl Stage {
    const ALL: [Self; 19] = [
        Self::Namespaces,
        Self::Cgroup,
        Self::Identity,
        Self::Hostname,
        Self::Loopback,
        Self::Source,
        Self::Root,
        Self::Step,
        Self::Proc,
        Self::Pivot,
        Self::WorkingDirectory,
        Self::Descriptors,
        Self::Limits,
        Self::Privileges,
        Self::Landlock,
        Self::Seccomp,
        Self::Parent,
        Self::Enter,
        Self::Terminal,
    ];

    pub(crate) fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Namespaces => "create the namespaces",
            Self::Cgroup => "enter the control group",
            Self::Identity => "map the user into the sandbox",
            Self::Hostname => "set the host name",
            Self::Loopback => "bring up the loopback interface",
            Self::Source => "open the source of a mount",
            Self::Root => "create the new root",
            Self::Step => "execute a set-up step",
            Self::Proc => "mount `/proc`",
            Self::Pivot => "leave the host's file system",
            Self::WorkingDirectory => "enter the working directory",
            Self::Descriptors => "close inherited descriptors",
            Self::Limits => "set the limits",
            Self::Privileges => "drop the privileges",
            Self::Landlock => "apply the Landlock rules",
            Self::Seccomp => "install the system call filter",
            Self::Parent => "tie the sandbox to its launcher",
            Self::Enter => "enter the sandbox's namespaces",
            Self::Terminal => "give the sandbox a terminal",
        }
    }
}

/// A failed system call of the child, small enough for one message to the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub stage: Stage,
    /// The index of the step, for `Source` and `Step`.
    pub step: u32,
    pub errno: i32,
}

impl Fault {
    pub fn at(stage: Stage) -> impl Fn(Errno) -> Self {
        Self::at_step(stage, 0)
    }

    pub fn at_step(stage: Stage, step: usize) -> impl Fn(Errno) -> Self {
        move |errno| Self { stage, step: step as u32, errno: errno.raw_os_error() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Namespaces(NamespaceRestriction),
    #[error("the kernel is too old: it lacks `{missing}`")]
    KernelTooOld { missing: &'static str },
    #[error("cannot mount a private `/proc`: the existing one is partly covered")]
    NoProc,
    #[error("the source `{}` of step {index} contains a symbolic link", path.display())]
    LinkInSource { index: usize, path: PathBuf },
    #[error("the mount point `{}` of step {index} contains a symbolic link", path.display())]
    LinkInTarget { index: usize, path: PathBuf },
    #[error("cannot open `{}`, the source of step {index}", path.display())]
    Source { index: usize, path: PathBuf },
    #[error("cannot set up `{}` (step {index})", path.display())]
    Step { index: usize, path: PathBuf },
    #[error("step {index} is not valid: {reason}")]
    InvalidStep { index: usize, reason: String },
    #[error("standard stream {0} is a directory, through which the guest could leave the sandbox")]
    DirectoryAsStream(u8),
    #[error("cannot {}", .0.describe())]
    Stage(Stage),
    #[error("its first process ended unexpectedly")]
    Died,
}

/// The sandbox could not be set up, and nothing of the guest has run.
#[derive(Debug, thiserror::Error)]
#[error("the native sandbox cannot be set up: {cause}")]
pub struct SetupError {
    pub cause: Cause,
    #[source]
    pub source: Option<std::io::Error>,
}

impl SetupError {
    pub(crate) fn new(cause: Cause) -> Self {
        Self { cause, source: None }
    }

    pub(crate) fn with(cause: Cause, errno: i32) -> Self {
        Self { cause, source: Some(std::io::Error::from_raw_os_error(errno)) }
    }
}

impl Diagnostic for SetupError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        let hint = match &self.cause {
            Cause::Namespaces(restriction) => restriction.remedy(),
            Cause::KernelTooOld { .. } => "update to Linux 5.12 or later, or use a container engine".into(),
            Cause::NoProc => "start the container with `--security-opt systempaths=unconfined`".into(),
            Cause::LinkInSource { .. } | Cause::LinkInTarget { .. } => {
                "replace the link with its target, or mount the target instead".into()
            }
            Cause::DirectoryAsStream(_) => "redirect from a file or from /dev/null".into(),
            Cause::Source { .. } | Cause::Step { .. } | Cause::InvalidStep { .. } | Cause::Stage(_) | Cause::Died => {
                return Vec::new();
            }
        };
        vec![hint]
    }
}
