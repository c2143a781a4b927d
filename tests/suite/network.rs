//! The network policy on real engines: what `off` and `proxied` let through, and what becomes of a proxy.

mod command;
mod corporate;
mod filter;
mod server;
mod sidecar;
mod ssh;

pub use server::{ASK, Server, outer_address};
