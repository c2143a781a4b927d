//! The terminal of a detached sandbox. The launcher keeps its screen ([`screen`]) and serves it
//! ([`server`]); `sandpen attach` shows it on the caller's terminal ([`client`]). They speak the
//! protocol of [`frame`].

#[cfg(test)]
mod attach_tests;
mod client;
mod connection;
mod detach_keys;
pub(in crate::gate) mod frame;
mod guest_terminal;
mod raw_terminal;
mod screen;
mod serve;
mod server;
#[cfg(test)]
mod terminals_for_tests;

pub use client::{AttachEnd, AttachError, AttachOptions, attach};
pub use detach_keys::DetachKeys;
pub use server::{AttachServer, is_attached};
