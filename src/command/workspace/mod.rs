//! `sandpen diff`, `apply`, `discard` and `undo`: what waits in copies of workspaces.

pub mod apply;
pub mod diff;
pub mod discard;
mod error;
mod find;
mod hunk_prompt;
mod json;
mod pager;
mod patch;
mod selection;
pub mod undo;
mod web;

pub use error::WorkspaceCommandError;
pub use find::waiting;
