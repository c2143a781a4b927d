//! Runs the attacks of docs/attacks.md, each on every engine where it applies.

mod guest;
mod leftovers;
mod mounts;
mod network;
mod repository;
mod terminal;
mod walls;
