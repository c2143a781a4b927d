//! Tests `--push`: Git inside reaches the remotes through sandpen, and pushes only what the rules
//! allow. Servers are real ones, over SSH and over HTTP.

mod client;
mod http;
mod http_server;
mod protocol;
mod refused;
mod remotes;
mod rules;
pub mod server;
mod works;
