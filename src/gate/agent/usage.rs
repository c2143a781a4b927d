//! Records every use of the agent, and sums it up at the end.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event_log::{EventLog, Gate, Verdict};
use crate::ui::Ui;
use crate::ui::counted;

/// How many different things are counted: the guest chooses their names.
const MAX_COUNTED: usize = 100;
/// How many of them the summary names.
const MAX_NAMED: usize = 5;
/// How many reasons of refusals the summary names.
const MAX_REASONS: usize = 5;

#[derive(Debug)]
pub struct Usage {
    log: Arc<EventLog>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    has_listed: bool,
    has_failed: bool,
    signed: BTreeMap<String, u64>,
    /// By reason, of which there is a limited number.
    refused: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Usage {
    pub fn new(log: Arc<EventLog>) -> Self {
        Usage { log, counts: Mutex::default() }
    }

    fn count(&self, update: impl FnOnce(&mut Counts) -> bool) -> bool {
        update(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Every use of ssh lists the keys first, so only the first time is recorded.
    pub fn listed(&self) {
        if self.count(|counts| !std::mem::replace(&mut counts.has_listed, true)) {
            self.log.record(Gate::Ssh, Verdict::Allowed, "list of keys", "");
        }
    }

    /// Records a request to sign that the agent has answered.
    pub fn signed(&self, what: &str, is_signed: bool) {
        if !is_signed {
            self.log.record(Gate::Ssh, Verdict::Failed, what, "the agent did not sign");
            return;
        }
        self.log.record(Gate::Ssh, Verdict::Allowed, what, "signed");
        self.count(|counts| add(&mut counts.signed, what));
    }

    pub fn refused(&self, what: &str, reason: &str) {
        self.log.record(Gate::Ssh, Verdict::Refused, what, reason);
        self.count(|counts| add(counts.refused.entry(reason.to_owned()).or_default(), what));
    }

    /// Records that the agent cannot be reached, once.
    pub fn failed(&self, error: &io::Error) {
        if self.count(|counts| !std::mem::replace(&mut counts.has_failed, true)) {
            self.log.record(Gate::Ssh, Verdict::Failed, "the host's SSH agent", &error.to_string());
        }
    }

    /// Prints what was refused, once for each reason; with `-v` also what was signed.
    pub fn print(&self, ui: Ui) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (reason, refused) in counts.refused.iter().take(MAX_REASONS) {
            ui.notice(&format!("the SSH agent's gate refused {}: {reason}", named(refused)));
        }
        if counts.refused.len() > MAX_REASONS {
            ui.notice("the SSH agent's gate refused more for other reasons: `sandpen log` lists them");
        }
        if ui.is_verbose() && !counts.signed.is_empty() {
            let signed: u64 = counts.signed.values().sum();
            ui.verbose(&format!(
                "the SSH agent signed {}: {}",
                counted(usize::try_from(signed).unwrap_or(usize::MAX), "time"),
                named(&counts.signed)
            ));
        }
    }
}

fn add(counts: &mut BTreeMap<String, u64>, what: &str) -> bool {
    let is_counted = counts.len() < MAX_COUNTED || counts.contains_key(what);
    if is_counted {
        *counts.entry(what.to_owned()).or_default() += 1;
    }
    is_counted
}

/// Lists names and numbers, the most frequent first.
fn named(counts: &BTreeMap<String, u64>) -> String {
    let mut sorted: Vec<(&String, &u64)> = counts.iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(a.1));
    let more = sorted.len().saturating_sub(MAX_NAMED);
    let named: Vec<String> = sorted.iter().take(MAX_NAMED).map(|(what, count)| format!("{what} ({count})")).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}
