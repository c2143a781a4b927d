//! Prints diagnostics to stderr and data to stdout, always escaped. No other module prints.

#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod escape;
mod format;
mod page;
pub mod progress;
pub mod shell;
pub mod suggest;
mod view;

pub use format::{counted, json, size};
pub use page::Page;
pub use view::View;

use std::io::{self, IsTerminal, Write};

use crate::error::{Diagnostic, Error, Kind, Result};
use escape::{escape, shorten};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    Quiet,
    #[default]
    Normal,
    Verbose,
}

#[derive(Debug, thiserror::Error)]
pub enum UiError {
    #[error("cannot write to stdout")]
    Stdout { source: io::Error },
    #[error("cannot read from stdin")]
    Stdin { source: io::Error },
    #[error("cannot write the report as JSON")]
    Json { source: serde_json::Error },
}

impl Diagnostic for UiError {
    fn kind(&self) -> Kind {
        Kind::Failed
    }
}

/// Prints as much as the verbosity permits. A copy is as good as the original.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ui {
    verbosity: Verbosity,
}

impl Ui {
    pub fn new(verbosity: Verbosity) -> Self {
        Ui { verbosity }
    }

    pub fn is_verbose(self) -> bool {
        self.verbosity >= Verbosity::Verbose
    }

    pub fn is_quiet(self) -> bool {
        self.verbosity == Verbosity::Quiet
    }

    /// Tells whether [`Ui::status`] can overwrite its line.
    pub fn has_status_line(self) -> bool {
        io::stderr().is_terminal()
    }

    /// Overwrites the current line of the terminal; an empty text clears it.
    pub fn status(self, text: &str) {
        let prefix = if text.is_empty() { "" } else { "sandpen: " };
        let mut out = io::stderr().lock();
        let _ = write!(out, "\r\x1b[K{prefix}{}", escape(text)).and_then(|()| out.flush());
    }

    /// Prints what will not work inside, or not as requested.
    pub fn warn(self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            Self::line("sandpen: warning: ", text);
        }
    }

    /// Prints information that `-q` hides.
    pub fn notice(self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            Self::line("sandpen: ", text);
        }
    }

    /// Prints information that only `-v` shows.
    pub fn verbose(self, text: &str) {
        if self.is_verbose() {
            // A command line can be copied only as a whole.
            let _ = writeln!(io::stderr().lock(), "sandpen: {}", escape(text));
        }
    }

    /// Prints a message that `-q` does not hide.
    pub fn alert(self, text: &str) {
        Self::line("sandpen: ", text);
    }

    /// Prints what the user can do about an alert.
    pub fn hint(self, text: &str) {
        Self::line("hint: ", text);
    }

    /// Prints an error with its causes and hints, even with `-q`.
    pub fn error(self, error: &Error) {
        Self::line("sandpen: error: ", error.message());
        for cause in error.causes() {
            for line in cause.lines().filter(|line| !line.trim().is_empty()) {
                Self::line("sandpen:   ", line);
            }
        }
        for hint in error.hints() {
            Self::line("hint: ", hint);
        }
    }

    /// Asks for confirmation; any answer but `y` or `yes` means no.
    pub fn ask(self, question: &str) -> bool {
        let mut out = io::stderr().lock();
        let asked = write!(out, "{} [y/N] ", escape(question)).and_then(|()| out.flush());
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        asked.is_ok() && read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
    }

    /// Asks a question; `None` at the end of the input.
    pub fn prompt(self, question: &str) -> Result<Option<String>> {
        self.bytes(question.as_bytes())?;
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer).map_err(|source| UiError::Stdin { source })?;
        Ok((read > 0).then_some(answer))
    }

    /// Writes to stdout. A reader that closed the pipe is not an error.
    pub fn data(self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes to stdout that need not be text.
    pub fn bytes(self, text: &[u8]) -> Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(text).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(UiError::Stdout { source: error }.into()),
            _ => Ok(()),
        }
    }

    fn line(prefix: &str, text: &str) {
        // A closed stderr must not stop a sandbox.
        let _ = writeln!(io::stderr().lock(), "{prefix}{}", escape(&shorten(text)));
    }
}
