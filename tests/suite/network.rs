//! Tests the network modes `off` and `proxied`, and proxies, on real engines.

mod command;
mod corporate;
pub mod filter;
pub mod server;
mod sidecar;
mod ssh;

pub use server::{ASK, Server, outer_address};
