//! Logs every decision of the proxy: to the session's log, to the sandbox's record, to stderr with
//! `-v`, and as counts for the summary at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::refusal::Refusal;
use super::relay::Traffic;
use crate::config::value::{HostName, HostRule};
use crate::event_log::{EventLog, Gate, Verdict, timestamp};
use crate::ui::Ui;

/// Stands in the log for the target of a connection that named none.
const NO_TARGET: &str = "?";
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
    refused: BTreeMap<RefusedTarget, u64>,
}

impl JournalState {
    /// Counts for the summary. A connection that named no target is only in the log: the user could not
    /// allow it.
    fn count(&mut self, target: RefusedTarget) {
        if target.name == NO_TARGET {
            return;
        }
        if self.refused.len() < MAX_TARGETS || self.refused.contains_key(&target) {
            *self.refused.entry(target).or_default() += 1;
        }
    }
}

/// A refused target as the log names it: `HOST:PORT`, or `HOST:PORT at ADDRESS` for an allowed host
/// whose address is not public.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RefusedTarget {
    name: String,
    address: Option<IpAddr>,
}

impl RefusedTarget {
    fn of(refusal: &Refusal) -> Self {
        let name = if refusal.target.is_empty() { NO_TARGET } else { &refusal.target };
        RefusedTarget { name: name.to_owned(), address: refusal.address }
    }

    fn parse(text: &str) -> Self {
        let divided = text.rsplit_once(" at ").and_then(|(name, address)| Some((name, address.parse().ok()?)));
        match divided {
            Some((name, address)) => RefusedTarget { name: name.to_owned(), address: Some(address) },
            None => RefusedTarget { name: text.to_owned(), address: None },
        }
    }

    /// Returns the rule that allows the address of an allowed host.
    fn address_rule(&self) -> Option<String> {
        let port = self.name.rsplit_once(':')?.1.parse().ok()?;
        Some(HostRule::wanted(&HostName::Address(self.address?), port).to_string())
    }
}

impl fmt::Display for RefusedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} at {address}", self.name),
            None => f.write_str(&self.name),
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
        let target = RefusedTarget::of(refusal);
        self.line(&format!("{} {target}: {}", verdict.name(), refusal.reason));
        self.record.record(Gate::Network, verdict, &target.name, &refusal.reason.to_string());
        if let (true, Ok(mut state)) = (refusal.is_by_policy(), self.state.lock()) {
            state.count(target);
        }
    }

    /// Copies a line of another journal, that of a proxy in a separate container.
    pub fn repeat(&self, line: &str) {
        let Some((_, text)) = line.split_once(' ') else { return };
        self.line(text);
        let Some((verdict, target, reason)) = parse(text) else { return };
        let target = RefusedTarget::parse(target);
        self.record.record(Gate::Network, verdict, &target.name, reason);
        if let (Verdict::Refused, Ok(mut state)) = (verdict, self.state.lock()) {
            state.count(target);
        }
    }

    /// Returns the line that is shown when the sandbox has ended; `None` if nothing was refused.
    pub fn summary(&self) -> Option<String> {
        let state = self.state.lock().ok()?;
        let mut refused: Vec<(&RefusedTarget, &u64)> = state.refused.iter().collect();
        refused.sort_by(|a, b| b.1.cmp(a.1));
        let named = refused.get(..SUMMARY_TARGETS).unwrap_or(&refused);
        let names: Vec<String> = named.iter().map(|(target, count)| format!("{target} ({count})")).collect();
        let more = match refused.len().saturating_sub(SUMMARY_TARGETS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let unlisted = refused.iter().any(|(target, _)| target.address.is_none());
        let mut remedies: Vec<String> =
            unlisted.then(|| "allow a host with `--allow-host HOST[:PORT]`".to_owned()).into_iter().collect();
        let mut rules: Vec<String> = named.iter().filter_map(|(target, _)| target.address_rule()).collect();
        rules.dedup();
        remedies.extend(
            rules
                .iter()
                .map(|rule| format!("an address that is not public must be allowed, too: `--allow-host {rule}`")),
        );
        (!names.is_empty())
            .then(|| format!("the proxy refused connections to {}{more}; {}", names.join(", "), remedies.join("; ")))
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
    fn the_remedy_for_an_address_that_is_not_public_is_the_address() {
        let host = HostName::Name("mirror.example".into());
        let refusal = Refusal::local_address(&host, 8443, IpAddr::from([10, 0, 0, 1]));
        let expected = "the proxy refused connections to mirror.example:8443 at 10.0.0.1 (1); an address that is \
                        not public must be allowed, too: `--allow-host 10.0.0.1:8443`";
        let journal = Journal::new(None, Arc::new(EventLog::disabled()), Ui::default());
        journal.refused(&refusal);
        assert_eq!(journal.summary().as_deref(), Some(expected));
        let repeated = Journal::new(None, Arc::new(EventLog::disabled()), Ui::default());
        repeated.repeat(&format!("T refused mirror.example:8443 at 10.0.0.1: {}", refusal.reason));
        assert_eq!(repeated.summary().as_deref(), Some(expected));
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
