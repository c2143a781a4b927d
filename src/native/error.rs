//! Why a sandbox could not be set up, as data: a cause, a message and a remedy.

use std::path::PathBuf;

use rustix::io::Errno;

/// The part of the set-up that failed. The order is the order of execution.
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
}

impl Stage {
    const ALL: [Self; 18] = [
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
        }
    }
}

/// What failed in the child, small enough to travel in one message.
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
    #[error("user namespaces are switched off (`{sysctl}` is `{value}`)")]
    UserNamespacesDisabled { sysctl: &'static str, value: String },
    #[error("AppArmor keeps unprivileged programs from using user namespaces")]
    AppArmorRestricted,
    #[error("this seems to be a container that forbids namespaces: {evidence}")]
    InsideContainer { evidence: String },
    #[error("the kernel is too old: it lacks `{missing}`")]
    KernelTooOld { missing: &'static str },
    #[error("cannot mount a `/proc` of its own: the one here is partly covered")]
    NoProc,
    #[error("the source `{}` of step {index} leads through a symbolic link", path.display())]
    LinkInSource { index: usize, path: PathBuf },
    #[error("the mount point `{}` of step {index} leads through a symbolic link", path.display())]
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
    #[error("the sandbox died during its set-up")]
    Died,
}

/// The guest has not run. The system's own error, if there is one, is the source.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
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

    /// What the user can do about it.
    pub fn remedy(&self) -> Option<String> {
        let text = match &self.cause {
            Cause::UserNamespacesDisabled { sysctl, .. } => {
                let name = sysctl.trim_start_matches("/proc/sys/").replace('/', ".");
                let value = if name.ends_with("clone") { 1 } else { 15000 };
                format!("sudo sysctl -w {name}={value}, or use a container engine")
            }
            Cause::AppArmorRestricted => "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give this \
                 program an AppArmor profile with `userns,`, or use a container engine"
                .into(),
            Cause::InsideContainer { .. } => {
                "start the container with `--security-opt seccomp=unconfined --security-opt \
                 systempaths=unconfined`, or run on the host"
                    .into()
            }
            Cause::KernelTooOld { .. } => "Linux 5.12 or later is needed; use a container engine".into(),
            Cause::NoProc => "start the container with `--security-opt systempaths=unconfined`".into(),
            Cause::LinkInSource { .. } | Cause::LinkInTarget { .. } => {
                "replace the link by what it points to, or mount that instead".into()
            }
            Cause::DirectoryAsStream(_) => "redirect from a file or from /dev/null".into(),
            _ => return None,
        };
        Some(text)
    }
}
