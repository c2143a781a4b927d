//! Connects ports of the host to ports of a running sandbox. A process inside makes the connections,
//! so that each ends in the sandbox's own network, whatever the guest does; their bytes share one
//! channel with the host, over a socket or the streams of an engine's `exec`.
//!
//! ```text
//! 127.0.0.1:PORT ◄──► host ◄── one channel ──► inside ◄──► 127.0.0.1 or ::1 of the sandbox
//! ```

mod host;
mod inside;
mod listener;
#[cfg(test)]
mod ports_tests;

pub use host::{Forward, forward};
pub use inside::{list, serve};
#[cfg(target_os = "linux")]
pub use listener::of_processes;
pub use listener::{Listener, parse_list};
