//! Everything sandpen says: diagnostics to stderr, data to stdout, always escaped. The only place that prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod escape;
mod page;
pub mod progress;
pub mod shell;
pub mod suggest;
mod view;

pub use page::Page;
pub use view::View;

use std::io::{self, IsTerminal, Write};

use crate::error::{Error, Result};
use crate::ui::escape::escape;

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// Errors only.
    Quiet,
    /// Warnings and errors.
    #[default]
    Normal,
    /// What is done, too.
    Verbose,
}

/// The voice of sandpen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ui {
    verbosity: Verbosity,
}

impl Ui {
    /// A voice of the given loudness.
    pub fn new(verbosity: Verbosity) -> Self {
        Ui { verbosity }
    }

    /// Whether `-v` was given.
    pub fn is_verbose(self) -> bool {
        self.verbosity >= Verbosity::Verbose
    }

    /// Whether `-q` was given.
    pub fn is_quiet(self) -> bool {
        self.verbosity == Verbosity::Quiet
    }

    /// Whether a line can be written again and again.
    pub fn counts(self) -> bool {
        io::stderr().is_terminal()
    }

    /// Writes over the last line that was counted; nothing removes it.
    pub fn count(self, text: &str) {
        let prefix = if text.is_empty() { "" } else { "sandpen: " };
        let mut out = io::stderr().lock();
        let _ = write!(out, "\r\x1b[K{prefix}{}", escape(text)).and_then(|()| out.flush());
    }

    /// Something will not work inside, or not as asked for.
    pub fn warn(self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            Self::line("sandpen: warning: ", text);
        }
    }

    /// Something the user should see although nothing is wrong.
    pub fn notice(self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            Self::line("sandpen: ", text);
        }
    }

    /// What is being done, for `-v`.
    pub fn verbose(self, text: &str) {
        if self.is_verbose() {
            Self::line("sandpen: ", text);
        }
    }

    /// Something that must not be missed; never silenced.
    pub fn alert(self, text: &str) {
        Self::line("sandpen: ", text);
    }

    /// What the user can do about an alert.
    pub fn hint(self, text: &str) {
        Self::line("hint: ", text);
    }

    /// An error with its causes and hints; never silenced.
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

    /// Asks the person at the terminal; anything but a yes is a no.
    pub fn ask(self, question: &str) -> bool {
        let mut out = io::stderr().lock();
        let asked = write!(out, "{} [y/N] ", escape(question)).and_then(|()| out.flush());
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        asked.is_ok() && read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
    }

    /// Data for stdout. A reader that went away is not an error.
    pub fn data(self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::failed("stdout cannot be written").cause(error))
            }
            _ => Ok(()),
        }
    }

    fn line(prefix: &str, text: &str) {
        // A closed stderr must not stop a sandbox.
        let _ = writeln!(io::stderr().lock(), "{prefix}{}", escape(text));
    }
}
