//! Tests the SSH agent on every platform and engine (R4–R7), with real agents, keys, sshd and
//! Podman.

mod agent;
mod cleanup;
mod config;
mod desktop;
mod faults;
mod git;
mod host_keys;
mod hosts;
mod order;
mod podman_machine;
mod relay;
pub mod sshd;
mod strategies;
mod tunnel;
mod tunnel_process;
