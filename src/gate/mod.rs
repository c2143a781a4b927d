//! Passes things through the sandbox's wall: each gate understands what passes, and decides by the
//! plan.

pub mod agent;
pub mod attach;
pub mod repository;
pub mod terminal;
