//! Says what came out of a sandbox's repositories and what did not.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::event_log::{EventLog, Gate, Verdict};
use crate::ui::Ui;
use crate::ui::shell::shell_words;

/// At most this many lines of a kind are printed.
const MAX_PRINTED: usize = 20;
/// At most this many lines of a kind are recorded.
const MAX_RECORDED: usize = 500;

/// The result of an exchange with the host's repositories.
#[derive(Debug, Default)]
pub struct Report {
    /// Things that stayed inside or are kept elsewhere, each with the command that accepts or shows
    /// it.
    pub kept: Vec<Kept>,
    /// Problems for which something could not come out at all.
    pub problems: Vec<String>,
    /// Changed files that tools on the host run or read without asking.
    pub changed: Vec<PathBuf>,
    /// Refs that were brought out, for the report of a sandbox whose launcher was killed.
    pub brought: Vec<String>,
    /// Whether commits or other objects were refused, so that only the private directory has them.
    pub has_refused: bool,
    /// The file with all lines, if they are too many to be printed.
    pub list: Option<Box<Path>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Reports a problem by which objects stay inside.
    pub fn refuse(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
        self.has_refused = true;
    }

    /// Adds what was kept while the guest was running.
    pub fn add_kept_before(&mut self, before: &[Kept]) {
        let new = std::mem::take(&mut self.kept);
        for kept in before.iter().cloned().chain(new) {
            if !self.kept.contains(&kept) {
                self.kept.push(kept);
            }
        }
    }

    /// Writes all lines to a file in the directory, if they are too many to be printed.
    pub fn save_list(&mut self, directory: &Path) -> io::Result<()> {
        if self.kept.len() <= MAX_PRINTED && self.problems.len() <= MAX_PRINTED {
            return Ok(());
        }
        let of_kept = |kept: &Kept| {
            let commands: String =
                kept.commands.iter().map(|command| format!("\t{}\n", shell_words(command))).collect();
            format!("{}\n{commands}", kept.what)
        };
        let mut text: String = self.kept.iter().map(of_kept).collect();
        text.extend(self.problems.iter().map(|problem| format!("{problem}\n")));
        let file = directory.join("report.txt");
        fs::create_dir_all(directory)?;
        fs::write(&file, text)?;
        self.list = Some(file.into_boxed_path());
        Ok(())
    }

    /// Prints what the user has to know. `-q` does not hide it.
    pub fn print(&self, ui: Ui) {
        for kept in self.kept.iter().take(MAX_PRINTED) {
            ui.alert(&kept.what);
            for command in &kept.commands {
                ui.hint(&shell_words(command));
            }
        }
        for problem in self.problems.iter().take(MAX_PRINTED) {
            ui.alert(&format!("warning: {problem}"));
        }
        if self.problems.len() > MAX_PRINTED {
            ui.alert(&format!("warning: {} more problems", self.problems.len() - MAX_PRINTED));
        }
        let more = [self.kept.len(), self.problems.len()].map(|count| count.saturating_sub(MAX_PRINTED));
        let more: usize = more.iter().sum();
        if more > 0 {
            let list = self.list.as_ref().map_or_else(String::new, |file| format!(": see `{}`", file.display()));
            ui.alert(&format!("{more} more changes in the Git directory stay inside or are kept elsewhere{list}"));
        }
        super::watched::print(&self.changed, ui);
    }

    /// Records the refs that came out.
    pub fn record_brought(&self, log: &EventLog) {
        for name in self.brought.iter().take(MAX_RECORDED) {
            log.record(Gate::Repository, Verdict::Done, name, "brought out");
        }
    }

    /// Records everything that came out or stayed inside.
    pub fn record(&self, log: &EventLog) {
        self.record_brought(log);
        for kept in self.kept.iter().take(MAX_RECORDED) {
            log.record(Gate::Repository, Verdict::Refused, &kept.what, "stays inside or is kept elsewhere");
        }
        for problem in self.problems.iter().take(MAX_RECORDED) {
            log.record(Gate::Repository, Verdict::Failed, problem, "");
        }
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
