//! Tests sandboxes of Docker and Podman on another machine: daemons with their own network, mounts and
//! processes, behind a real sshd. No path of the tests exists there.

mod docker;
mod lost;
mod machine;
mod network;
mod podman;
mod refused;
