//! Gives a sandbox a private Git directory, made from the host's, and brings commits, refs and the
//! index out of it.
//!
//! Everything in the private directory is untrusted. It is read here, by code that follows no links
//! and has limits; the host's Git never opens it.

pub mod operation;
pub mod settings;
