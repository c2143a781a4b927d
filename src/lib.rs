//! sandpen runs any command in a sandbox over the current directory: Docker, Podman, macOS Seatbelt or native Linux.
//!
//! [`Sandbox`] plans, explains and runs one.
//!
//! ```no_run
//! use sandpen::{Options, Sandbox};
//!
//! # fn main() -> sandpen::Result<()> {
//! let options = Options { image: Some("debian:12".into()), network: Some("off".into()), ..Options::default() };
//! let sandbox = Sandbox::new(options).directory("/home/me/project").command(["make", "test"]);
//! println!("{}", serde_json::json!(sandbox.plan()?.mounts));
//! let outcome = sandbox.run()?;
//! # Ok(())
//! # }
//! ```
//!
//! Data flows in one direction:
//!
//! ```text
//! argv, env, files ──► config ──┐
//!                               ├─► plan ──► launch ──► session ──► Outcome
//! host, git, ssh, engine ► facts┘   pure     pure       effects
//! ```
//!
//! | module | task |
//! |---|---|
//! | `host` | reads environment, user, directory and terminal; nothing else does |
//! | `cli` | parses the command line into types |
//! | `config` | layers flags, environment, profile, project file, user file and defaults; every value knows its origin |
//! | `facts` | looks at files, Git, the SSH agent and the engines, and decides nothing |
//! | `plan` | decides everything about a sandbox from `config` and `facts`; pure |
//! | `launch` | translates a plan for one engine; pure, so that `explain` shows what `run` runs |
//! | `resolve` | does what must be asked or made before a plan is final: builds, pulls, asks a virtual machine |
//! | `link` | frames between the launcher and a sandbox on another machine |
//! | `native` | executes the native engine's steps |
//! | `session` | starts a sandbox, waits for it and cleans up |
//! | `kept_copy` | records of copied workspaces |
//! | `event_log` | records what a sandbox asked of the outside |
//! | `process` | signals, terminals, exit codes, locks |
//! | `channel` | carries many streams between the launcher and a process inside over one pair of byte streams |
//! | `helper` | runs inside the sandbox as its first process |
//! | `gate` | passes commits, refs, the index and pushes between the sandbox and the host |
//! | `proxy` | filters the sandbox's network |
//! | `command` | one file or folder per subcommand, except `man` and `completions` |
//! | `ui` | prints; nothing else does |

#![deny(missing_docs)]

#[allow(missing_docs)]
mod channel;
#[allow(missing_docs)]
mod cli;
#[allow(missing_docs)]
mod command;
#[allow(missing_docs)]
mod config;
mod error;
#[allow(missing_docs)]
mod event_log;
#[allow(missing_docs)]
mod facts;
#[allow(missing_docs)]
mod gate;
#[allow(missing_docs)]
mod helper;
#[allow(missing_docs)]
mod host;
#[cfg(target_os = "linux")]
#[allow(missing_docs)]
mod http;
#[allow(missing_docs)]
#[cfg(target_os = "linux")]
mod image;
#[allow(missing_docs)]
mod kept_copy;
#[allow(missing_docs)]
mod launch;
#[allow(missing_docs)]
mod link;
#[allow(missing_docs)]
#[cfg(target_os = "linux")]
mod native;
mod path;
mod plan;
#[allow(missing_docs)]
mod process;
#[allow(missing_docs)]
mod proxy;
#[allow(missing_docs)]
mod resolve;
mod sandbox;
#[allow(missing_docs)]
mod saved_path;
mod secret;
#[allow(missing_docs)]
mod session;
mod session_id;
// Until image pulls use all of it.
#[allow(missing_docs, dead_code, unused_imports)]
mod tls;
#[allow(missing_docs)]
mod ui;
mod vars;
mod warning;

pub use command::explain::Explanation;
pub use command::main;
pub use config::Options;
pub use error::{Error, Kind, Result};
pub use process::Outcome;
pub use sandbox::Sandbox;
pub use ui::View;

// A plan and the types of its parts.
pub use config::{Origin, Sourced};
pub use path::{GuestPath, HostPath, MachinePath};
pub use plan::{
    Detail, EngineKind, EnginePlan, GitSettingChange, ImagePlan, Limits, Mount, NetworkPlan, Plan, Secret,
    SettingEffect, Source, SshPlan, SshState, Topic, UserHow, UserPlan, Variable, VariableValue, Why,
};
pub use session_id::SessionId;
pub use warning::{Warning, WarningTopic};

/// Re-exports for the tests and fuzz targets of sandpen itself. Not part of the library: it changes
/// without notice.
#[doc(hidden)]
pub mod internals {
    pub use crate::channel::{Channel, ChannelError, ChannelFrame, CloseReason, Endpoint, Side, StreamKind};
    pub use crate::command::explain::{json as explain_json, text as explain_text};
    pub use crate::config::{Config, value};
    pub use crate::facts::engines::Controller;
    pub use crate::facts::{
        AgentFacts, DesktopFacts, DockerFacts, Facts, FileFact, FileKind, ImageFacts, NativeFacts, PodmanFacts, Reach,
        RootImageFacts, RootImageUser, SystemEntry, SystemFacts,
    };
    pub use crate::gate::agent::{HostCertificate, Purpose as AgentPurpose, Request as AgentRequest};
    pub use crate::gate::push::{Advertisement, CommandList};
    pub use crate::host::{Environment, Host, Platform, ProcessStamp, Terminal};
    pub use crate::launch::{Downgrade, Launch};
    pub use crate::plan::questions::Purpose;
    pub use crate::plan::{PresetChoice, Request, Workspace};
    pub use crate::proxy::{Action, parse};
    pub use crate::resolve::Resolved;
    pub use crate::tls::{Authority, accept, server_config};
}
