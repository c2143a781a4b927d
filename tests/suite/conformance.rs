//! Tests on every real engine the behaviour that guests can rely on.

mod agent_state;
mod caches;
mod environment;
mod exit_codes;
mod files;
mod git;
mod hidden;
mod identity;
mod images;
mod lifecycle;
mod limits;
mod names;
mod network;
mod offline;
mod presets;
mod secrets;
mod ssh_agent;
mod startup;
mod streams;
mod terminal;
