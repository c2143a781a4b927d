//! sandpen runs any command in a sandbox over the current directory: Docker, Podman, macOS Seatbelt or native Linux.
//!
//! [`Sandbox`] is the way in: it plans, explains and runs.
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
//! Behind it there is one direction of flow:
//!
//! ```text
//! argv, env, files ──► Config ──┐
//!                               ├─► Plan ──► Launch ──► session ──► Outcome
//! host, git, ssh, engine ► Facts┘   pure      pure      effects
//! ```
//!
//! - [`Host`] is the only reader of environment, user, directory and terminal.
//! - [`Config`] layers flags, environment, profile, project file, user file and defaults; every value knows its origin.
//! - [`Facts`] is one sweep of effects before planning: plain data.
//! - [`Plan`] is engine-neutral and pure: every entry carries its reason and origin.
//! - [`Launch`] is what one engine makes of the plan: what `explain` shows is what `run` runs.
//! - The session is the one place that starts, waits and cleans up. It belongs to the `sandpen` program.

mod cli;
mod command;
mod config;
mod error;
mod facts;
mod guard;
mod helper;
mod host;
mod launch;
#[cfg(target_os = "linux")]
mod native;
mod path;
mod plan;
mod process;
pub mod proxy;
mod resolve;
mod sandbox;
mod secret;
mod session;
mod session_id;
mod ui;
mod vars;

pub use command::explain::{Explanation, json as explain_json, text as explain_text};
pub use command::main;
pub use config::{Config, Options, Origin, Sourced, value};
pub use error::{Error, Kind, Result};
pub use facts::{
    AgentFacts, DesktopFacts, DockerFacts, Facts, FileFact, FileKind, ImageFacts, PodmanFacts, Reach, SystemEntry,
    SystemFacts,
};
pub use host::{Environment, Host, Platform, ProcessStamp, Terminal};
pub use launch::{Downgrade, Launch};
pub use path::{GuestPath, HostPath};
pub use plan::{
    Detail, EngineKind, EnginePlan, GitSettingChange, ImagePlan, Limits, Mount, NetworkPlan, Plan, Secret, Source,
    SshPlan, SshState, Topic, UserHow, UserPlan, Variable, VariableValue, Why,
};
pub use process::Outcome;
pub use sandbox::Sandbox;
pub use session_id::SessionId;
pub use ui::View;
