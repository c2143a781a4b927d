//! The native engine: a sandbox out of nothing but the kernel.
//!
//! ```text
//! Sandbox (steps as data) ──► Blueprint ──► fork ──► root ──► walls ──► Init (pid 1) ──► guest
//!   step.rs                   checked, C      │        mounts   caps, Landlock, seccomp     │
//!                             strings         └── link.rs: why not, or what happens ◄───────┘
//! ```
//!
//! `compile.rs` makes the steps of a plan; everything else executes them. Needs Linux 5.12 (`mount_setattr`).

mod ability;
mod blueprint;
mod cgroup;
mod confine;
mod container;
mod device;
mod diagnose;
mod enter;
mod error;
mod guest;
mod identity;
mod init;
mod link;
mod mountpoint;
mod namespaces;
mod privileges;
mod procfs;
mod root;
mod seccomp;
mod spawn;
mod sys;
mod walls;

pub use ability::{
    cannot_limit, landlock_version, launch_error, limits_processes_by_default, problem, scopes_abstract_sockets,
};
pub use cgroup::{remove_stale, stale};
pub use container::confine_container;
pub use enter::enter;
pub use guest::Command;
pub use init::Init;
pub use spawn::{Child, Event, spawn};
