//! The report that `doctor` and `selftest` print: lines with a state, as a table and as JSON. It
//! checks nothing itself.

use serde::Serialize;

use crate::ui::{Page, View};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// For information; nothing is wrong.
    Note,
    /// Something will not work inside, or not as requested.
    Warning,
    /// The command that prints the report fails.
    Problem,
}

/// The table row of a line.
pub struct Row<'a> {
    /// Lines with the same section follow each other.
    pub section: &'a str,
    pub label: &'static str,
    pub name: &'a str,
    pub text: String,
    /// The command that solves the problem.
    pub fix: Option<&'a str>,
}

pub trait Line {
    fn state(&self) -> State;
    fn row(&self) -> Row<'_>;
}

#[derive(Debug, Clone)]
pub struct Report<L> {
    /// `None` if no engine could be chosen.
    pub engine: Option<&'static str>,
    pub lines: Vec<L>,
}

impl<L: Line> Report<L> {
    pub fn passed(&self) -> bool {
        self.count(State::Problem) == 0
    }

    pub fn count(&self, state: State) -> usize {
        self.lines.iter().filter(|line| line.state() == state).count()
    }

    /// Writes the table and `verdict` below it.
    pub fn text(&self, verdict: &str) -> String {
        let mut page = Page::with_common_columns(View::default());
        let mut section = None;
        for Row { section: title, label, name, text, fix } in self.lines.iter().map(Line::row) {
            if section != Some(title) {
                page.section(title);
                section = Some(title);
            }
            page.entry(label, name, &text);
            if let Some(fix) = fix {
                page.entry("", "", &format!("fix: {fix}"));
            }
        }
        format!("{}\n{verdict}\n", page.finish())
    }
}
