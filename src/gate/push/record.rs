//! Records what the push gate decided. Every decision passes through [`Recorder::record`].

use std::sync::Arc;

use crate::event_log::{EventLog, Gate, Verdict};
use crate::ui::Ui;

/// One decision of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRecord {
    pub verdict: Verdict,
    /// The service or the ref, and the remote.
    pub what: String,
    pub reason: String,
}

/// Receives the decisions of all connections.
#[derive(Debug, Clone)]
pub struct Recorder {
    log: Arc<EventLog>,
    ui: Ui,
}

impl Recorder {
    pub fn new(log: Arc<EventLog>, ui: Ui) -> Self {
        Recorder { log, ui }
    }

    pub fn record(&self, record: &PushRecord) {
        let PushRecord { verdict, what, reason } = record;
        self.ui.verbose(&format!("push gate: {} {what}: {reason}", verdict.name()));
        self.log.record(Gate::Push, *verdict, what, reason);
    }
}
