//! Images for the native engine: brings them in, checks them by their digests and unpacks their
//! layers. Runs nothing of them.

pub mod archive;
mod config;
mod content;
mod error;
mod manifest;
pub mod pull;
mod reference;
mod store;
mod tar_stream;
mod unpack;

pub use error::ImageError;
pub use store::{Store, StoredImage, hold_layer};
