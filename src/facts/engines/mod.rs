//! Looks at the engines: whether each answers, and which features it has on this host. Starts no
//! container.

pub mod ask;
pub mod checkup;
pub mod connection;
pub mod docker;
pub mod machine;
pub mod native;
pub mod podman;
pub mod seatbelt;
