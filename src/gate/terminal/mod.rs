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

mod answers;
mod caller;
#[cfg(target_os = "linux")]
mod guest;
mod output_monitor;
mod pty;
#[cfg(target_os = "linux")]
mod relay;
mod report_modes;

pub use answers::drop_answers;
pub use caller::CallerTerminal;
#[cfg(target_os = "linux")]
pub use guest::GuestTerminal;
pub use output_monitor::OutputMonitor;
pub use pty::Pty;
#[cfg(target_os = "linux")]
pub use relay::Relay;
