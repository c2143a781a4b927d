//! Engines: each makes a [`Launch`] of a plan. Pure: what `explain` shows is what `run` runs.

mod docker;
mod oci;
mod podman;
mod volume;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::host::{Host, ProcessStamp};
use crate::path::HostPath;
use crate::plan::{EngineKind, Plan, Secret};

/// Something that was asked for and cannot be enforced here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Downgrade {
    /// What was asked for.
    pub asked: String,
    /// What there is instead.
    pub got: String,
    /// Why.
    pub reason: String,
}

/// What one engine makes of a plan: the command line, its environment, the files it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The engine's program, outside of all mounted directories.
    pub program: Option<HostPath>,
    /// The command line; the first word is the engine's name.
    pub argv: Vec<OsString>,
    /// Variables whose values the engine's client inherits, because they must not be in argv.
    pub inherited: Vec<(String, Secret)>,
    /// PATH for the engine's client, without mounted directories: it looks up helpers of its own there.
    pub path: PathBuf,
    /// Private files the engine reads: path and content.
    pub files: Vec<(HostPath, Secret)>,
    /// The command that removes the container if the client could not.
    pub remove: Vec<OsString>,
    /// What cannot be enforced.
    pub downgrades: Vec<Downgrade>,
}

impl Launch {
    /// Just the engine's client, for commands that are not a sandbox.
    pub fn of_client(program: Option<HostPath>, path: PathBuf) -> Self {
        Launch {
            program,
            argv: Vec::new(),
            inherited: Vec::new(),
            path,
            files: Vec::new(),
            remove: Vec::new(),
            downgrades: Vec::new(),
        }
    }

    /// Translates a plan for its engine.
    pub fn compile(plan: &Plan, host: &Host, facts: &Facts) -> Result<Self> {
        let path = facts.path.for_host();
        let launch = match plan.engine.kind {
            EngineKind::Docker => docker::compile(plan, host.process, path)?,
            EngineKind::Podman => podman::compile(plan, host.process, path)?,
            EngineKind::SandboxExec | EngineKind::Native => {
                return Err(Error::launch(format!("the engine `{}` is not built yet", plan.engine.kind.name())));
            }
        };
        match launch.downgrades.first() {
            Some(downgrade) if plan.strict => {
                Err(Error::launch(format!("{} cannot be enforced here", downgrade.asked))
                    .cause(&downgrade.reason)
                    .hint(format!("without --strict it would run with: {}", downgrade.got)))
            }
            _ => Ok(launch),
        }
    }
}

/// Labels by which a container is found again, safe against reused process ids.
fn labels(plan: &Plan, owner: ProcessStamp) -> [(&'static str, String); 4] {
    [
        ("dev.sandpen.session", plan.id.to_string()),
        ("dev.sandpen.owner-pid", owner.pid.to_string()),
        ("dev.sandpen.owner-start", owner.start.to_string()),
        ("dev.sandpen.workdir", plan.workdir.to_string()),
    ]
}
