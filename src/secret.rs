//! A value that must not be shown.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// A value that must not be shown: it has no `Display`, its `Debug` is redacted, and engines never put it into argv.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(OsString);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<OsString>) -> Self {
        Secret(value.into())
    }

    /// The value, for a child's environment or a private file.
    pub fn reveal(&self) -> &OsStr {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
