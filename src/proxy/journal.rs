//! Logs every decision of the proxy: to the session's log, to stderr with `-v`, and as counts for
//! the summary at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use super::refusal::Refusal;
use super::relay::Traffic;
use crate::config::value::{HostName, HostRule};
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
    fn count(&mut self, target: RefusedTarget) {
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
        let name = if refusal.target.is_empty() { "?" } else { &refusal.target };
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
    pub fn new(file: Option<File>, ui: Ui) -> Self {
        Journal { ui, state: Mutex::new(JournalState { file, written: 0, refused: BTreeMap::new() }) }
    }

    pub fn allowed(&self, target: &str) {
        self.line(&format!("allowed {target}"));
    }

    /// Logs the end of an allowed connection.
    pub fn ended(&self, target: &str, traffic: Traffic) {
        self.line(&format!("ended {target}, {} bytes sent, {} received", traffic.sent, traffic.received));
    }

    /// Logs a connection that was refused or has failed.
    pub fn refused(&self, refusal: &Refusal) {
        let verdict = if refusal.is_by_policy() { "refused" } else { "failed" };
        let target = RefusedTarget::of(refusal);
        self.line(&format!("{verdict} {target}: {}", refusal.reason));
        if let (true, Ok(mut state)) = (refusal.is_by_policy(), self.state.lock()) {
            state.count(target);
        }
    }

    /// Copies a line of another journal, that of a proxy in a separate container.
    pub fn repeat(&self, line: &str) {
        let Some((_, text)) = line.split_once(' ') else { return };
        self.line(text);
        let target = text.strip_prefix("refused ").and_then(|rest| rest.split_once(": ")).map(|(target, _)| target);
        if let (Some(target), Ok(mut state)) = (target, self.state.lock()) {
            state.count(RefusedTarget::parse(target));
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

/// Formats a time in UTC according to RFC 3339.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Converts days to a civil date, in eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_civil() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn the_summary_names_what_was_refused_most() {
        let journal = Journal::new(None, Ui::default());
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
        let journal = Journal::new(None, Ui::default());
        journal.refused(&refusal);
        assert_eq!(journal.summary().as_deref(), Some(expected));
        let repeated = Journal::new(None, Ui::default());
        repeated.repeat(&format!("T refused mirror.example:8443 at 10.0.0.1: {}", refusal.reason));
        assert_eq!(repeated.summary().as_deref(), Some(expected));
    }

    #[test]
    fn a_talkative_guest_does_not_fill_the_disk() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let journal = Journal::new(Some(file.reopen()?), Ui::default());
        for _ in 0..=MAX_LOG / 200 {
            journal.allowed(&"x".repeat(200));
        }
        assert!(file.as_file().metadata()?.len() <= MAX_LOG);
        Ok(())
    }
}
