//! Records what the push gate decided. Every decision passes through [`Recorder::record`].

use std::fmt;

use crate::ui::Ui;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    Allowed,
    Refused,
    Failed,
}

impl fmt::Display for PushOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushOutcome::Allowed => "allowed",
            PushOutcome::Refused => "refused",
            PushOutcome::Failed => "failed",
        })
    }
}

/// One decision of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRecord {
    pub verdict: PushOutcome,
    /// The service or the ref, and the remote.
    pub what: String,
    pub reason: String,
}

/// Receives the decisions of all connections.
#[derive(Debug, Clone, Copy)]
pub struct Recorder {
    ui: Ui,
}

impl Recorder {
    pub fn new(ui: Ui) -> Self {
        Recorder { ui }
    }

    pub fn record(self, record: &PushRecord) {
        let PushRecord { verdict, what, reason } = record;
        self.ui.verbose(&format!("push gate: {verdict} {what}: {reason}"));
    }
}
