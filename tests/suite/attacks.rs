//! The rows of the attack list that containers are concerned with, each on every engine where it applies.

mod guest;
mod network;
mod repository;
mod walls;
