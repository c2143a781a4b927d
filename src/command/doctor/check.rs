//! The lines of `doctor`'s report, its verdict and its JSON.

use serde::Serialize;
use serde_json::json;

use crate::command::report::{Line, Report, Row, State};
use crate::error::{Error, Result};
use crate::ui;

/// The sections of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    Sandbox,
    Engines,
    Kernel,
    Ssh,
    Git,
    Files,
    Leftovers,
}

impl Group {
    fn title(self) -> &'static str {
        match self {
            Group::Sandbox => "Sandbox",
            Group::Engines => "Engines",
            Group::Kernel => "Kernel, for native",
            Group::Ssh => "SSH agent",
            Group::Git => "Git",
            Group::Files => "Configuration",
            Group::Leftovers => "Leftovers",
        }
    }
}

/// One line of the report. The fields are the keys of the JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub group: Group,
    pub name: String,
    pub state: State,
    pub text: String,
    pub fix: Option<String>,
}

impl Check {
    pub fn new(group: Group, state: State, name: impl Into<String>, text: impl Into<String>) -> Self {
        Check { group, name: name.into(), state, text: text.into(), fix: None }
    }

    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Check { fix: Some(fix.into()), ..self }
    }

    /// Makes a line of an error, with its first hint as the fix.
    pub fn from_error(group: Group, state: State, name: impl Into<String>, error: &Error) -> Self {
        Check { fix: error.hints().first().cloned(), ..Check::new(group, state, name, one_line(error)) }
    }
}

/// Joins an error's message and its causes.
pub fn one_line(error: &Error) -> String {
    let causes: Vec<&str> = error.causes().iter().map(|cause| cause.trim()).filter(|cause| !cause.is_empty()).collect();
    if causes.is_empty() { error.message().to_owned() } else { format!("{}: {}", error.message(), causes.join("; ")) }
}

impl Line for Check {
    fn state(&self) -> State {
        self.state
    }

    fn row(&self) -> Row<'_> {
        let label = match self.state {
            State::Ok => "ok",
            State::Note => "-",
            State::Warning => "warning",
            State::Problem => "problem",
        };
        let Check { group, name, text, fix, .. } = self;
        Row { section: group.title(), label, name, text: text.clone(), fix: fix.as_deref() }
    }
}

pub fn text(report: &Report<Check>) -> String {
    let warnings = match report.count(State::Warning) {
        0 => String::new(),
        count => format!(", {}", ui::counted(count, "warning")),
    };
    report.text(&match (report.count(State::Problem), report.engine) {
        (0, Some(engine)) => format!("Ready: `sandpen run` starts on {engine}{warnings}."),
        (count, _) => {
            format!("Not ready: `sandpen run` cannot start. {}{warnings}.", ui::counted(count, "problem"))
        }
    })
}

/// Writes the JSON, whose keys are stable and never absent.
pub fn json(report: &Report<Check>) -> Result<String> {
    ui::json(&json!({
        "schema": 1,
        "ready": report.passed(),
        "engine": report.engine,
        "checks": report.lines,
    }))
}
