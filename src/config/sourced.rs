//! A value with its origin.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// The layer that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// sandpen's default.
    Default,
    /// A command-line flag, or an argument by the name it has in the help.
    Flag(&'static str),
    /// An environment variable.
    Env(&'static str),
    /// A profile, built in or the user's.
    Profile(String),
    /// A configuration file.
    Config(PathBuf),
    /// An agent's preset.
    Preset(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Flag(flag) if flag.starts_with('-') => write!(f, "flag {flag}"),
            Origin::Flag(argument) => write!(f, "argument {argument}"),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Profile(name) => write!(f, "profile {name}"),
            Origin::Config(path) => write!(f, "config {}", path.display()),
            Origin::Preset(name) => write!(f, "preset {name}"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The layer that set it.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// Makes a value with its origin.
    pub fn new(value: T, origin: Origin) -> Self {
        Sourced { value, origin }
    }

    /// Makes a value that no layer set.
    pub fn default(value: T) -> Self {
        Sourced { value, origin: Origin::Default }
    }

    /// Whether a layer set the value, so that it must be enforced rather than attempted.
    pub fn is_asked_for(&self) -> bool {
        self.origin != Origin::Default
    }
}
