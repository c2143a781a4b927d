//! The one error a user meets: what happened, why, and what to do next. Decides the exit code; prints nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which of the documented exit codes an error ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The command line, a variable or a configuration file is wrong.
    Usage,
    /// The sandbox could not be started (the seeds' `FatalSandboxError`).
    Launch,
    /// A command other than `run` did not find what it needs, or a check did not hold.
    Failed,
}

impl Kind {
    /// The process exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Usage => 2,
            Kind::Launch => 44,
            Kind::Failed => 1,
        }
    }
}

/// An error as data: a message, the chain of causes, and hints with the command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    kind: Kind,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
}

/// The result type of everything that can stop sandpen.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The command line, a variable or a file is wrong: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The sandbox cannot be started: exit code 44.
    pub fn launch(message: impl Into<String>) -> Self {
        Self::new(Kind::Launch, message)
    }

    /// Another command failed: exit code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), causes: Vec::new(), hints: Vec::new() }
    }

    /// Adds a cause, outermost first.
    #[must_use]
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// Adds a line that tells the user what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Names the flag, variable or file that led here.
    #[must_use]
    pub fn from(mut self, origin: &impl fmt::Display) -> Self {
        self.message = format!("{origin}: {}", self.message);
        self
    }

    /// Which kind of failure this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What happened, without causes and hints.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Why, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// What to do next.
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

impl std::error::Error for Error {}
