//! What `doctor` found, as data, as text for people and as JSON for programs. Judges nothing.

use std::fmt::Write;

use serde::Serialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::ui::escape::{escape, escape_json};

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Good to know; nothing is wrong.
    Note,
    /// Something will not work inside, or not as asked for.
    Warning,
    /// `sandpen run` will not start.
    Problem,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Note => "-",
            State::Warning => "warning",
            State::Problem => "problem",
        }
    }
}

/// What checks are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// What `run` would do.
    Sandbox,
    /// All engines.
    Engines,
    /// What `native` needs of the kernel.
    Kernel,
    /// The SSH agent.
    Ssh,
    /// Git's settings.
    Git,
    /// Configuration files.
    Files,
    /// What killed sandboxes left.
    Leftovers,
}

impl Group {
    const ALL: [(Group, &'static str); 7] = [
        (Group::Sandbox, "Sandbox"),
        (Group::Engines, "Engines"),
        (Group::Kernel, "Kernel, for native"),
        (Group::Ssh, "SSH agent"),
        (Group::Git, "Git"),
        (Group::Files, "Configuration"),
        (Group::Leftovers, "Leftovers"),
    ];
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about.
    pub group: Group,
    /// What was looked at.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub text: String,
    /// What to do about it: one command, where there is one.
    pub fix: Option<String>,
}

impl Check {
    /// A line without a fix.
    pub fn new(group: Group, state: State, name: impl Into<String>, text: impl Into<String>) -> Self {
        Check { group, name: name.into(), state, text: text.into(), fix: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Check { fix: Some(fix.into()), ..self }
    }

    /// An error as a line: its causes beside it, its first hint as the fix.
    pub fn of(group: Group, state: State, name: impl Into<String>, error: &Error) -> Self {
        let check = Check::new(group, state, name, in_a_line(error));
        Check { fix: error.hints().first().cloned(), ..check }
    }
}

/// An error's message, and its causes side by side.
pub fn in_a_line(error: &Error) -> String {
    let causes: Vec<&str> = error.causes().iter().map(|cause| cause.trim()).filter(|cause| !cause.is_empty()).collect();
    if causes.is_empty() { error.message().to_owned() } else { format!("{}: {}", error.message(), causes.join("; ")) }
}

/// Everything that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The engine that `run` would choose; `None` when it would not come so far.
    pub engine: Option<&'static str>,
    /// The lines.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether `run` would start.
    pub fn is_ready(&self) -> bool {
        self.count(State::Problem) == 0
    }

    fn count(&self, state: State) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }

    /// For people: groups of aligned lines, and the verdict last.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let width = self.checks.iter().map(|check| escape(&check.name).chars().count()).max().unwrap_or(0);
        for (group, title) in Group::ALL {
            let checks: Vec<&Check> = self.checks.iter().filter(|check| check.group == group).collect();
            if checks.is_empty() {
                continue;
            }
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{title}");
            for check in checks {
                let _ = writeln!(
                    text,
                    "  {:7}  {:width$}  {}",
                    check.state.word(),
                    escape(&check.name),
                    escape(&check.text)
                );
                if let Some(fix) = &check.fix {
                    let _ = writeln!(text, "  {:7}  {:width$}  fix: {}", "", "", escape(fix));
                }
            }
            text.push('\n');
        }
        let number = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let (problems, warnings) = (self.count(State::Problem), self.count(State::Warning));
        let warnings = if warnings == 0 { String::new() } else { format!(", {}", number(warnings, "warning")) };
        let _ = match (problems, self.engine) {
            (0, Some(engine)) => writeln!(text, "Ready: `sandpen run` starts on {engine}{warnings}."),
            (count, _) => {
                writeln!(text, "Not ready: `sandpen run` cannot start. {}{warnings}.", number(count, "problem"))
            }
        };
        text
    }

    /// For programs. Keys are stable and never absent.
    pub fn json(&self) -> Result<String> {
        let report = json!({"schema": 1, "ready": self.is_ready(), "engine": self.engine, "checks": self.checks});
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Error::failed("the report cannot be written as JSON").cause(error))?;
        Ok(format!("{}\n", escape_json(&text)))
    }
}
