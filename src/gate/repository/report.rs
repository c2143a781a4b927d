//! Says what came out of a sandbox's repositories and what did not.

use std::ffi::OsString;

use crate::ui::Ui;
use crate::ui::shell::shell_words;

/// At most this many lines of a kind are printed.
const MAX_PRINTED: usize = 20;

/// The result of an exchange with the host's repositories.
#[derive(Debug, Default)]
pub struct Report {
    /// Things that stayed inside or are kept elsewhere, each with the command that accepts or shows
    /// it.
    pub kept: Vec<Kept>,
    /// Problems for which something could not come out at all.
    pub problems: Vec<String>,
    /// Changed files that tools on the host run or read without asking.
    pub changed: Vec<std::path::PathBuf>,
    /// Refs that were brought out, for the report of a sandbox whose launcher was killed.
    pub brought: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    pub what: String,
    /// The commands that accept or show it.
    pub commands: Vec<Vec<OsString>>,
}

impl Report {
    pub fn keep(&mut self, what: impl Into<String>) {
        self.kept.push(Kept { what: what.into(), commands: Vec::new() });
    }

    pub fn keep_with(&mut self, what: impl Into<String>, command: &[&str]) {
        let command = command.iter().map(OsString::from).collect();
        self.kept.push(Kept { what: what.into(), commands: vec![command] });
    }

    /// Prints what the user has to know. `-q` does not hide it.
    pub fn print(&self, ui: Ui) {
        for kept in self.kept.iter().take(MAX_PRINTED) {
            ui.alert(&kept.what);
            for command in &kept.commands {
                ui.hint(&shell_words(command));
            }
        }
        if self.kept.len() > MAX_PRINTED {
            ui.alert(&format!("{} more changes in the Git directory stay inside", self.kept.len() - MAX_PRINTED));
        }
        for problem in self.problems.iter().take(MAX_PRINTED) {
            ui.alert(&format!("warning: {problem}"));
        }
        if self.problems.len() > MAX_PRINTED {
            ui.alert(&format!("warning: {} more problems", self.problems.len() - MAX_PRINTED));
        }
        super::watched::print(&self.changed, ui);
    }

    /// Prints the report about a sandbox whose launcher was killed.
    pub fn print_recovered(&self, id: &str, ui: Ui) {
        if !self.brought.is_empty() {
            ui.notice(&format!(
                "brought out of the sandbox `{id}`, whose launcher was killed: {}",
                self.brought.join(", ")
            ));
        }
        self.print(ui);
    }
}
