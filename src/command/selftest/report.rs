//! What the self-test found: as text for people, as JSON for programs.

use std::fmt::Write;

use serde::Serialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::ui::escape::{escape, escape_json};

/// What became of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It holds.
    Held,
    /// It does not, or could not be tried.
    Failed,
    /// It was not made, with these options or on this engine.
    NotPromised,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Held => "ok",
            State::Failed => "FAILED",
            State::NotPromised => "-",
        }
    }
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Its name.
    pub name: &'static str,
    /// What was promised; or why nothing was.
    pub promised: String,
    /// What was seen.
    pub seen: String,
    /// What became of it.
    pub state: State,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The engine they ran on.
    pub engine: &'static str,
    /// The probes.
    pub probes: Vec<Probe>,
}

impl Report {
    /// Whether every promise held.
    pub fn holds(&self) -> bool {
        self.count(State::Failed) == 0
    }

    fn count(&self, state: State) -> usize {
        self.probes.iter().filter(|probe| probe.state == state).count()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("A sandbox on {}, probed from inside\n", self.engine);
        let width = self.probes.iter().map(|probe| probe.name.len()).max().unwrap_or(0);
        for probe in &self.probes {
            let (state, name) = (probe.state.word(), probe.name);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {state:6}  {name:width$}  {}; {}", escape(&probe.promised), escape(&probe.seen));
        }
        let [held, failed, other] = [State::Held, State::Failed, State::NotPromised].map(|state| self.count(state));
        let other = if other == 0 { String::new() } else { format!(", {other} not promised with these options") };
        let _ = match failed {
            0 => writeln!(text, "\nEvery promise holds: {held} probes{other}."),
            _ => writeln!(text, "\nNOT SAFE: {failed} of {} probes failed{other}.", held + failed),
        };
        text
    }

    /// For programs. Keys are stable and never absent.
    pub fn json(&self) -> Result<String> {
        let report = json!({"schema": 1, "held": self.holds(), "engine": self.engine, "probes": self.probes});
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Error::failed("the report cannot be written as JSON").cause(error))?;
        Ok(format!("{}\n", escape_json(&text)))
    }
}
