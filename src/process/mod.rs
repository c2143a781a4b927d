//! Processes, signals, terminals and exit codes: the parts that every engine shares.

pub mod cgroup_events;
mod client;
pub mod descriptors;
mod exit;
pub mod foreground;
pub mod lock;
pub mod release_pages;
pub mod signals;
pub mod status_file;
pub mod terminal;
pub mod untrusted;

pub use client::{Client, Pin};
pub use exit::Outcome;
