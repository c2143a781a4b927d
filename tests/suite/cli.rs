//! Every message a user can meet, from outside: the built program in a world of the test's own, with an engine that only records.

mod bytes;
mod commands;
mod contract;
mod directories;
mod engines;
mod explain;
mod files;
mod flags;
mod fuzz;
mod network;
mod precedence;
mod presets;
mod profiles;
mod streams;
mod suggestions;
mod trust;
mod unbuilt;
mod variables;
pub mod world;
