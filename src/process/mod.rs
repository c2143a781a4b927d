//! Processes, signals, terminals and exit codes: what the engines share. Decides nothing about
//! sandboxes.

pub mod bounded_work;
pub mod cgroup_events;
mod client;
mod client_ready;
#[cfg(target_os = "linux")]
pub mod controlling_terminal;
mod copy_bytes;
#[cfg(target_os = "linux")]
pub mod descendants;
pub mod descriptors;
mod exit;
pub mod inherit;
pub mod lease;
pub mod lock;
pub mod mount_identity;
mod read_output;
pub mod ready;
pub mod release_pages;
pub mod remove_tree;
mod repeated_work;
pub mod restart;
pub mod signals;
pub mod socket_path;
pub mod status_file;
pub mod terminal;
pub mod terminal_at_panic;
pub mod untrusted;
pub mod untrusted_dir;

pub use client::{CallResult, Client, Pin, output_within};
pub use copy_bytes::copy_bytes;
pub use exit::{KILLED, Outcome};
pub use read_output::read_output;
pub use repeated_work::RepeatedWork;
