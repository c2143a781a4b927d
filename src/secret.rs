//! Wraps values that must not be printed. Decides nothing about which values those are; `vars`
//! does.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// A value that must not be printed: it has no `Display`, its `Debug` is redacted, and it is never
/// an argument of an engine's client, where other users could read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(OsString);

impl Secret {
    /// Marks a value as secret.
    pub fn new(value: impl Into<OsString>) -> Self {
        Secret(value.into())
    }

    /// Returns the value, for the environment of a child process or a private file.
    pub fn reveal(&self) -> &OsStr {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
