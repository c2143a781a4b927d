//! The errors of starting a sandbox and waiting for its end. The proxy, the tunnel, failed
//! containers and the search for a sandbox have their own.

use std::io;

use crate::error::{Diagnostic, Kind};
use crate::path::HostPath;
use crate::session_id::SessionId;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("cannot catch signals")]
    Signals(#[source] io::Error),
    #[error("`--detach` does not work with the engine sandbox-exec")]
    DetachSeatbelt,
    #[error("cannot start a launcher in the background")]
    Detach(#[source] io::Error),
    #[error("cannot open a terminal for the sandbox")]
    Terminal(#[source] io::Error),
    #[error("cannot use the layers of package caches")]
    Cache(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("a layer of the image was removed while the sandbox started")]
    ImageLayers(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("cannot relay the standard streams")]
    Streams(#[source] io::Error),
    #[error("cannot create `{path}` for the session")]
    Create {
        path: HostPath,
        #[source]
        source: io::Error,
    },
    #[error("cannot write `{path}` for the session")]
    Write {
        path: HostPath,
        #[source]
        source: io::Error,
    },
    #[cfg(target_os = "linux")]
    #[error("`{path}` was replaced while the sandbox started, and is not mounted")]
    MountSource {
        path: HostPath,
        #[source]
        source: io::Error,
    },
    #[error("a sandbox named `{0}` already exists")]
    NameTaken(SessionId),
    #[error("cannot make the copied workspace `{id}`")]
    Copy {
        id: String,
        #[source]
        source: io::Error,
    },
    #[error("a copied workspace `{0}` exists already, or another sandbox uses it")]
    CopyTaken(String),
    #[error("cannot make a private Git directory")]
    Repositories(#[source] io::Error),
    #[error("the launch was stopped by signal {0}")]
    Stopped(i32),
    #[error("cannot copy the agent's files")]
    AgentState(#[source] io::Error),
    #[error("cannot make the socket of the push gate")]
    Push(#[source] io::Error),
    #[error("cannot start {engine}'s client")]
    StartClient {
        engine: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot lock a byte of the launcher's file; a process in the sandbox may hold a lock on it")]
    LockClient(#[source] io::Error),
    #[error("the guest helper is not in the sandbox `{0}`, so its ports cannot be reached")]
    NoHelper(String),
    #[error("the ports of the sandbox cannot be listed; it may have just ended")]
    ListPorts,
    #[cfg(target_os = "linux")]
    #[error("cannot make a connection to the sandbox")]
    PortLink(#[source] io::Error),
    #[error("cannot start the engine's client")]
    RunClient(#[source] io::Error),
    #[error("cannot wait for the engine's client")]
    WaitForClient(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("cannot wait for the sandbox")]
    WaitForSandbox(#[source] rustix::io::Errno),
    #[cfg(target_os = "linux")]
    #[error("the sandbox `{id}` has just ended, or its environment cannot be read")]
    NoEnvironment {
        id: String,
        #[source]
        source: io::Error,
    },
    #[cfg(target_os = "linux")]
    #[error("cannot keep the environment of the sandbox for `sandpen exec`")]
    KeepEnvironment(#[source] io::Error),
    #[error("`/usr/bin/sandbox-exec` does not exist")]
    NoSandboxExec,
    #[error("cannot start `sandbox-exec`")]
    StartSandboxExec(#[source] io::Error),
    #[error("cannot wait for `sandbox-exec`")]
    WaitForSandboxExec(#[source] io::Error),
    #[error("sandbox-exec could not start the sandbox; see its output above")]
    SandboxExecFailed,
    #[error("the sandbox has just ended, or cannot be entered")]
    Enter(#[source] io::Error),
}

impl Diagnostic for SessionError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            SessionError::Create { .. } | SessionError::Repositories(_) | SessionError::AgentState(_) => {
                vec!["check free space and permissions, or set XDG_STATE_HOME to another directory of yours".into()]
            }
            #[cfg(target_os = "linux")]
            SessionError::MountSource { .. } => {
                vec!["another program or sandbox changes this path; try again when it has ended".into()]
            }
            SessionError::NameTaken(id) => vec![
                format!("choose another name, or stop it with `sandpen stop {id}`; `sandpen ps` lists all sandboxes"),
                "if it has ended and was kept, remove it with `sandpen prune`".into(),
            ],
            SessionError::Copy { .. } => {
                vec!["check free space and permissions, or set XDG_STATE_HOME to another directory of yours".into()]
            }
            SessionError::CopyTaken(id) => vec![format!(
                "continue with `--workspace {id}`, remove it with `sandpen discard {id}`, or choose another name"
            )],
            SessionError::SandboxExecFailed => {
                vec!["`sandpen explain` shows the exact command line and the profile".into()]
            }
            _ => Vec::new(),
        }
    }
}
