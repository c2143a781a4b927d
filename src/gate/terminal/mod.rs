//! Gives the guest a pseudo-terminal in place of the caller's terminal, and relays the bytes between
//! them.
//!
//! ```text
//! caller's terminal ◄──► relay (a thread of the launcher) ◄──► master ═ slave ◄──► guest
//!      raw mode                                                 size, settings, signals of keys
//! ```
//!
//! The guest never holds a descriptor of the caller's terminal, and is in another session, so it
//! neither reads what is typed into the host's shell nor changes the terminal's settings.

mod caller;
#[cfg(target_os = "linux")]
mod guest;
mod pty;
mod queries;
#[cfg(target_os = "linux")]
mod relay;

pub use caller::CallerTerminal;
#[cfg(target_os = "linux")]
pub use guest::GuestTerminal;
pub use pty::Pty;
pub use queries::{QueryDetector, drop_answers};
#[cfg(target_os = "linux")]
pub use relay::Relay;
