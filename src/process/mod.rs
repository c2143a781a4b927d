//! Processes, signals, terminals and exit codes: what the engines share. Decides nothing about
//! sandboxes.

pub mod cgroup_events;
mod client;
mod copy_bytes;
#[cfg(target_os = "linux")]
pub mod descendants;
pub mod descriptors;
mod exit;
pub mod inherit;
pub mod lock;
mod read_output;
pub mod ready;
pub mod release_pages;
pub mod signals;
pub mod status_file;
pub mod terminal;
pub mod untrusted;
pub mod untrusted_dir;

pub use client::{CallResult, Client, Pin, output_within};
pub use copy_bytes::copy_bytes;
pub use exit::{KILLED, Outcome};
pub use read_output::read_output;
