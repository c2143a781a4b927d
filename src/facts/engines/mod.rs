//! Looks at the engines: whether each answers, and what it can do here.

pub mod ask;
pub mod checkup;
pub mod connection;
pub mod docker;
pub mod machine;
pub mod native;
pub mod podman;
pub mod seatbelt;
