//! Passes things through the sandbox's wall: each gate understands what passes, and decides by the
//! plan.

pub mod agent;
pub mod agent_state;
pub mod attach;
mod login;
pub mod ports;
pub mod push;
pub mod repository;
pub mod secrets;
#[cfg(target_os = "linux")]
pub mod streams;
pub mod terminal;
pub mod workspace;
