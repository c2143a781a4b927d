//! Runs the attacks of docs/attacks.md, each on every engine where it applies.

mod guest;
mod host_programs;
mod leftovers;
mod mounts;
mod nested;
mod network;
mod repository;
mod terminal;
mod walls;
