//! The attacks of SECURITY.md that concern containers, each on every engine where it applies.

mod guest;
mod network;
mod repository;
mod walls;
