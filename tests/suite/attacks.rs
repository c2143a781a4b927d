//! Runs the attacks of docs/attacks.md, each on every engine where it applies.

mod guest;
mod nested;
mod network;
mod repository;
mod terminal;
mod walls;
