//! The error that ends a command: what happened, why, and what to do next. It decides the exit code
//! and prints nothing.
//!
//! Each module has one error enum that implements [`Diagnostic`]; `?` turns it into [`Error`].

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Selects the exit code that an error ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The command line, a variable or a configuration file is wrong.
    Usage,
    /// The sandbox could not be started.
    Launch,
    /// A command other than `run` did not find what it needs, or a check did not hold.
    Failed,
}

impl Kind {
    /// Returns the process exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Usage => 2,
            Kind::Launch => 44,
            Kind::Failed => 1,
        }
    }
}

/// The error enum of one module: its message and source, and what a user needs beyond them.
pub trait Diagnostic: std::error::Error + Send + Sync + 'static {
    /// Selects the exit code.
    fn kind(&self) -> Kind;

    /// Lists what the user can do about it, one line each, with the command to run.
    fn hints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Lists the causes, outermost first. The default follows `source()`; an error with several
    /// causes side by side overrides it.
    fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let mut source = self.source();
        while let Some(error) = source {
            causes.push(error.to_string());
            source = error.source();
        }
        causes
    }
}

/// The error that a command of sandpen ends with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Error {
    kind: Kind,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
    /// The module's own error. It does not travel from the launcher's process to the embedding one.
    #[serde(skip)]
    diagnostic: Option<Arc<dyn Diagnostic>>,
}

/// The result type of everything that can stop sandpen.
pub type Result<T> = std::result::Result<T, Error>;

impl<D: Diagnostic> From<D> for Error {
    fn from(diagnostic: D) -> Self {
        Error {
            kind: diagnostic.kind(),
            message: diagnostic.to_string(),
            causes: diagnostic.causes(),
            hints: diagnostic.hints(),
            diagnostic: Some(Arc::new(diagnostic)),
        }
    }
}

/// Two errors are equal if a user cannot tell them apart.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        let shown = |error: &Self| (error.kind, error.message.clone(), error.causes.clone(), error.hints.clone());
        shown(self) == shown(other)
    }
}

impl Eq for Error {}

impl Error {
    /// Puts the flag, variable or file that led here in front of the message.
    #[must_use]
    pub(crate) fn with_origin(mut self, origin: &impl fmt::Display) -> Self {
        self.message = format!("{origin}: {}", self.message);
        self
    }

    /// Returns what kind of failure this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns what happened, without causes and hints.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the causes, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// Returns what the user can do next.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.diagnostic.as_deref().and_then(|diagnostic| diagnostic.source())
    }
}
