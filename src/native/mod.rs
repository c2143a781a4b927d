//! The native engine: creates a sandbox with the kernel alone, without a container engine.
//!
//! ```text
//! NativeSetup (steps) ──► Blueprint ──► fork ──► root ──► walls ──► Init (pid 1) ──► guest
//!   launch/native         checked,        │      mounts   capabilities,              │
//!                         C strings       │               Landlock, seccomp          │
//!                                         └── link: faults and events ◄──────────────┘
//! ```
//!
//! `launch/native` compiles a plan into the steps; the modules here execute them. Needs Linux 5.12
//! (`mount_setattr`).

mod arguments;
mod blueprint;
mod cgroup;
mod container;
mod device;
mod diagnose;
mod enter;
mod error;
mod guest;
mod identity;
mod image_root;
mod init;
mod landlock;
mod link;
mod mountpoint;
mod namespaces;
mod privileges;
mod procfs;
mod root;
mod seccomp;
mod session;
mod skeleton;
mod spawn;
mod sys;
mod walls;

pub use cgroup::{remove_stale, stale};
pub use container::{install_container_filter, install_offline_filter};
pub use enter::{CommandLifetime, enter};
pub use guest::Command;
pub use init::Init;
pub use namespaces::Namespaces;
pub use privileges::drop_bounding_set;
pub use session::SessionStreams;
pub use skeleton::remove_unused as remove_unused_roots;
pub use spawn::{Child, Event, spawn};
