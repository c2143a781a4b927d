//! Passes things through the sandbox's wall: each gate understands what passes, and decides by the
//! plan.

pub mod attach;
pub mod push;
pub mod repository;
pub mod terminal;
