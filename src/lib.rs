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

mod app;
mod build;
mod cgroup_events;
mod cli;
mod completions;
mod config;
mod deferred;
mod doctor;
mod engine;
mod error;
mod escape;
mod explain;
mod facts;
mod guard;
mod guest;
mod help;
mod host;
mod manage;
mod manual;
mod memory;
mod path;
mod plan;
mod prepared;
mod probe;
mod profiles;
pub mod proxy;
mod sandbox;
mod secret;
mod selftest;
mod session;
mod ssh;
mod suggest;
mod trust;
mod ui;
mod untrusted;
mod usage;
mod vars;
mod waiting;

pub use app::main;
pub use cli::Options;
pub use config::{Config, Origin, Sourced, value};
pub use engine::{Downgrade, Launch};
pub use error::{Error, Kind, Result};
pub use explain::{Explanation, View, json as explain_json, text as explain_text};
pub use facts::{
    AgentFacts, DesktopFacts, DockerFacts, Facts, FileFact, FileKind, ImageFacts, PodmanFacts, Reach, SystemEntry,
    SystemFacts,
};
pub use host::{Environment, Host, Platform, ProcessStamp, Terminal};
pub use path::{GuestPath, HostPath};
pub use plan::{
    Detail, EngineKind, EnginePlan, ImagePlan, Limits, Mount, NetworkPlan, Plan, Secret, SessionId, Source, SshPlan,
    SshState, Topic, Treatment, UserHow, UserPlan, Variable, VariableValue, Why,
};
pub use sandbox::Sandbox;
pub use session::Outcome;
