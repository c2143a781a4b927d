//! Holds the shared parts of the tests: the fixture, the engines, and the processes that tests
//! start.
//!
//! `for_every_engine!(name)` turns `fn name(fixture: &Fixture)` into one test per engine.
//! `SANDPEN_TEST_ENGINES` (set by `scripts/engines env`) lists the engines that work. Tests on
//! other engines are skipped; the test binary reports them when it exits (see `skips.rs`).

mod agent;
mod browser;
mod commands;
mod engine;
mod finished;
mod fixture;
mod git_backend;
mod image_store;
mod process;
mod program;
pub mod pty;
mod recording;
mod recording_agent;
mod seatbelt;
mod shim;
mod skips;
mod user;

pub use agent::{Agent, KEY_COMMENT, public_key};
pub use browser::Browser;
pub use engine::Engine;
pub use finished::{Finished, RunToEnd, split_progress};
pub use fixture::Fixture;
pub use git_backend::git_answer;
pub use process::{Running, TIMEOUT, command_lines, eventually, holds_within, is_running, signal};
pub use program::{binary, install_program, install_script, sandpen_without_home};
pub use recording_agent::RecordingAgent;
pub use shim::Shim;
pub use skips::{is_root as is_root_or_skip, skip};
pub use user::User;
pub use user::rig_variable;

/// The image contains git, ssh, bash and perl.
pub const IMAGE: &str = "localhost/sandpen-test:latest";

/// Most tests use the system's programs only, with this PATH.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
