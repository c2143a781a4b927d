//! Runs the attacks of docs/attacks.md, each on every engine where it applies.

mod guest;
mod host_programs;
mod leftovers;
mod mounts;
mod nested;
mod network;
mod repository;
pub mod ssh_agent;
mod terminal;
mod walls;
