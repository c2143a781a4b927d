//! What forwarding the SSH agent into a virtual machine takes: Podman's connections, and the reverse tunnel over one of them.
//!
//! On one machine nothing of this is needed: the agent's socket is mounted (R5). How it is decided is in `plan::ssh`.

pub mod connection;
pub mod tunnel;

pub use connection::Connection;
pub use tunnel::{Opened, Tunnel, TunnelPlan};
