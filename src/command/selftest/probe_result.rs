//! The lines of the self-test's report, its verdict and its JSON.

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::command::report::{Line, Report, Row, State};
use crate::error::Result;
use crate::ui;

/// The result of one probe. The fields are the keys of the JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeResult {
    pub name: &'static str,
    /// Names the promise, or the reason why there is none.
    pub promised: String,
    pub seen: String,
    #[serde(serialize_with = "state_name")]
    pub state: State,
}

impl ProbeResult {
    /// Compares an observation with a promise. Without an observation the probe failed.
    pub fn check<T>(
        name: &'static str,
        promised: &str,
        observed: Option<T>,
        evaluate: impl FnOnce(T) -> (bool, String),
    ) -> Self {
        let (held, seen) = observed.map_or((false, "the probe did not report a result".to_owned()), evaluate);
        let state = if held { State::Ok } else { State::Problem };
        ProbeResult { name, promised: promised.to_owned(), seen, state }
    }

    /// Reports an observation about which the sandbox promises nothing, for the reason `why`.
    pub fn not_promised(name: &'static str, why: impl Into<String>, seen: impl Into<String>) -> Self {
        ProbeResult { name, promised: why.into(), seen: seen.into(), state: State::Note }
    }
}

fn state_name<S: Serializer>(state: &State, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(match state {
        State::Ok => "held",
        State::Note => "not-promised",
        State::Warning | State::Problem => "failed",
    })
}

impl Line for ProbeResult {
    fn state(&self) -> State {
        self.state
    }

    fn row(&self) -> Row<'_> {
        let label = match self.state {
            State::Ok => "ok",
            State::Note => "-",
            State::Warning | State::Problem => "FAILED",
        };
        let text = format!("{}: {}", self.promised, self.seen);
        Row { section: "Tested from inside the sandbox", label, name: self.name, text, fix: None }
    }
}

pub fn text(report: &Report<ProbeResult>) -> String {
    let [held, failed, other] = [State::Ok, State::Problem, State::Note].map(|state| report.count(state));
    let other = if other == 0 { String::new() } else { format!(", {other} not promised with these options") };
    let engine = report.engine.unwrap_or_default();
    report.text(&match failed {
        0 => format!("All {} passed on {engine}{other}.", ui::counted(held, "probe")),
        _ => format!("NOT SAFE: {failed} of {} failed on {engine}{other}.", ui::counted(held + failed, "probe")),
    })
}

/// Writes the JSON, whose keys are stable and never absent.
pub fn json(report: &Report<ProbeResult>) -> Result<String> {
    ui::json(&json!({
        "schema": 1,
        "held": report.passed(),
        "engine": report.engine,
        "probes": report.lines,
    }))
}
