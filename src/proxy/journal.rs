//! Logs every decision of the proxy: to the session's log, to the sandbox's record, to stderr with
//! `-v`, and as counts for the summary at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::refusal::Refusal;
use super::relay::Traffic;
use crate::event_log::{EventLog, Gate, Verdict, timestamp};
use crate::ui::Ui;

/// The size limit of the log, in bytes: the guest must not fill the disk.
const MAX_LOG: u64 = 8 * 1024 * 1024;
/// How many different refused targets are counted.
const MAX_TARGETS: usize = 1000;
/// How many of them the summary names.
const SUMMARY_TARGETS: usize = 5;

#[derive(Debug)]
pub struct Journal {
    ui: Ui,
    record: Arc<EventLog>,
    state: Mutex<JournalState>,
}

#[derive(Debug)]
struct JournalState {
    file: Option<File>,
    written: u64,
    /// How often each target was refused.
    refused: BTreeMap<String, u64>,
}

impl JournalState {
    fn count(&mut self, target: &str) {
        if self.refused.len() < MAX_TARGETS || self.refused.contains_key(target) {
            *self.refused.entry(target.to_owned()).or_default() += 1;
        }
    }
}

impl Journal {
    /// Without a file, decisions are counted and shown only.
    pub fn new(file: Option<File>, record: Arc<EventLog>, ui: Ui) -> Self {
        Journal { ui, record, state: Mutex::new(JournalState { file, written: 0, refused: BTreeMap::new() }) }
    }

    pub fn allowed(&self, target: &str) {
        self.line(&format!("allowed {target}"));
        self.record.record(Gate::Network, Verdict::Allowed, target, "");
    }

    /// Logs the end of an allowed connection.
    pub fn ended(&self, target: &str, traffic: Traffic) {
        let bytes = format!("{} bytes sent, {} received", traffic.sent, traffic.received);
        self.line(&format!("ended {target}, {bytes}"));
        self.record.record(Gate::Network, Verdict::Done, target, &bytes);
    }

    /// Logs a connection that was refused or has failed.
    pub fn refused(&self, refusal: &Refusal) {
        let verdict = if refusal.is_by_policy() { Verdict::Refused } else { Verdict::Failed };
        let target = if refusal.target.is_empty() { "?" } else { &refusal.target };
        self.line(&format!("{} {target}: {}", verdict.name(), refusal.reason));
        self.record.record(Gate::Network, verdict, target, &refusal.reason.to_string());
        if let (true, Ok(mut state)) = (refusal.is_by_policy(), self.state.lock()) {
            state.count(target);
        }
    }

    /// Copies a line of another journal, that of a proxy in a separate container.
    pub fn repeat(&self, line: &str) {
        let Some((_, text)) = line.split_once(' ') else { return };
        self.line(text);
        let Some((verdict, target, reason)) = parse(text) else { return };
        self.record.record(Gate::Network, verdict, target, reason);
        if let (Verdict::Refused, Ok(mut state)) = (verdict, self.state.lock()) {
            state.count(target);
        }
    }

    /// Returns the line that is shown when the sandbox has ended; `None` if nothing was refused.
    pub fn summary(&self) -> Option<String> {
        let state = self.state.lock().ok()?;
        let mut refused: Vec<(&String, &u64)> = state.refused.iter().collect();
        refused.sort_by(|a, b| b.1.cmp(a.1));
        let named: Vec<String> =
            refused.iter().take(SUMMARY_TARGETS).map(|(target, count)| format!("{target} ({count})")).collect();
        let more = match refused.len().saturating_sub(SUMMARY_TARGETS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| {
            format!(
                "the proxy refused connections to {}{more}; allow a host with `--allow-host HOST[:PORT]`",
                named.join(", ")
            )
        })
    }

    fn line(&self, text: &str) {
        self.ui.verbose(&format!("proxy: {text}"));
        let Ok(mut state) = self.state.lock() else { return };
        let line = format!("{} {text}\n", timestamp(SystemTime::now()));
        state.written += line.len() as u64;
        if state.written > MAX_LOG {
            state.file = None;
        }
        if let Some(file) = &mut state.file {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// Parses a line of a journal, without its time.
fn parse(text: &str) -> Option<(Verdict, &str, &str)> {
    let (verdict, rest) = text.split_once(' ')?;
    Some(match verdict {
        "allowed" => (Verdict::Allowed, rest, ""),
        "ended" => rest.split_once(", ").map(|(target, bytes)| (Verdict::Done, target, bytes))?,
        "refused" => rest.split_once(": ").map(|(target, reason)| (Verdict::Refused, target, reason))?,
        "failed" => rest.split_once(": ").map(|(target, reason)| (Verdict::Failed, target, reason))?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::HostName;

    #[test]
    fn the_summary_names_what_was_refused_most() {
        let journal = Journal::new(None, Arc::new(EventLog::disabled()), Ui::default());
        assert_eq!(journal.summary(), None);
        let refuse = |name: &str| journal.refused(&Refusal::not_listed(&HostName::Name(name.into()), 443));
        refuse("b.example");
        refuse("a.example");
        refuse("b.example");
        assert_eq!(
            journal.summary().as_deref(),
            Some(
                "the proxy refused connections to b.example:443 (2), a.example:443 (1); allow a host with `--allow-host HOST[:PORT]`"
            )
        );
        ["c", "d", "e", "f"].iter().for_each(|name| refuse(name));
        assert!(journal.summary().is_some_and(|line| line.contains(" and 1 more;")));
    }

    #[test]
    fn a_talkative_guest_does_not_fill_the_disk() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let journal = Journal::new(Some(file.reopen()?), Arc::new(EventLog::disabled()), Ui::default());
        for _ in 0..=MAX_LOG / 200 {
            journal.allowed(&"x".repeat(200));
        }
        assert!(file.as_file().metadata()?.len() <= MAX_LOG);
        Ok(())
    }
}
