//! Runs the attacks of docs/attacks.md, each on every engine where it applies.

mod guest;
mod network;
mod repository;
pub mod ssh_agent;
mod terminal;
mod walls;
