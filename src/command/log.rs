//! `sandpen log`: prints what a sandbox asked of the outside and what became of it, also after its
//! end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::termios::{QueueSelector, tcflush};

use crate::cli::Format;
use crate::error::{Diagnostic, Kind, Result};
use crate::event_log::{self, ENDED, Event, Gate, SavedLog, local_time};
use crate::facts;
use crate::gate::agent::{ANSWER_TIMEOUT, QuestionInbox};
use crate::host::Host;
use crate::path::HostPath;
use crate::process::Outcome;
use crate::process::signals::poll_until;
use crate::session::cleanup;
use crate::ui::Ui;
use crate::ui::escape::escape;
use crate::ui::suggest::nearest;

/// How often `--follow` looks for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// The most ids that an error names.
const MAX_NAMED: usize = 10;
/// The fewest characters by which an id can be abbreviated.
const MIN_ID_PREFIX: usize = 3;

#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error("there is no record of a sandbox `{id}`")]
    NotFound { id: String, nearest: Option<String>, known: Vec<String> },
    #[error("there is no record of a sandbox of this directory")]
    NoneHere { known: Vec<String> },
}

impl Diagnostic for LogError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        let (nearest, known) = match self {
            LogError::NotFound { nearest, known, .. } => (nearest.as_ref(), known),
            LogError::NoneHere { known } => (None, known),
        };
        let list = match known.len() {
            0 => "no sandbox has a record yet".to_owned(),
            1..=MAX_NAMED => format!("there are: {}", known.join(", ")),
            _ => format!("there are: {} and {} more", known[..MAX_NAMED].join(", "), known.len() - MAX_NAMED),
        };
        nearest.map(|near| format!("did you mean `{near}`?")).into_iter().chain([list]).collect()
    }
}

pub fn run(id: Option<&str>, follow: bool, format: Format, ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    let sessions = facts::session_base(&host);
    let log = find(&host, &sessions, id)?;
    let mut reader = EventReader::default();
    let is_terminal = host.terminal.stdin && host.terminal.stdout;
    let inbox = (follow && is_terminal).then(|| QuestionInbox::open(&sessions.join(&log.id))).flatten();
    loop {
        let is_running = follow && is_running(&sessions, &log.id);
        // Read after that, so that nothing of a sandbox that has just ended is missed.
        let events = reader.read(&log.path);
        let text: String = events.iter().map(|event| line(event, format)).collect();
        if !text.is_empty() {
            ui.data(&text)?;
        }
        let has_ended = events.iter().any(|event| event.gate == Gate::Sandbox && event.what == ENDED);
        if !is_running || has_ended {
            return Ok(Outcome::Exited(0));
        }
        if let Some(question) = inbox.as_ref().and_then(QuestionInbox::next) {
            // What was typed before the question does not answer it.
            let _ = tcflush(rustix::stdio::stdin(), QueueSelector::IFlush);
            ui.alert(&format!("{} [y/N]", question.text));
            let is_allowed = read_line(ANSWER_TIMEOUT).is_some_and(|line| matches!(line.trim(), "y" | "yes"));
            question.answer(is_allowed);
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// Reads a line from the terminal; `None` if the user types none in time.
fn read_line(timeout: Duration) -> Option<String> {
    let mut descriptors = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
    poll_until(&mut descriptors, Some(Instant::now() + timeout));
    if descriptors[0].revents().is_empty() {
        return None;
    }
    // A read returns one line; a buffer would keep the next one as an answer to the next question.
    let mut line = [0; 64];
    let count = rustix::io::read(rustix::stdio::stdin(), &mut line).ok().filter(|count| *count > 0)?;
    Some(String::from_utf8_lossy(line.get(..count)?).into_owned())
}

fn is_running(sessions: &HostPath, id: &str) -> bool {
    cleanup::running(sessions).iter().any(|record| record.id == id)
}

fn find(host: &Host, sessions: &HostPath, id: Option<&str>) -> Result<SavedLog> {
    let logs = event_log::saved(sessions);
    let known = || logs.iter().map(|log| log.id.clone()).collect::<Vec<String>>();
    let Some(id) = id else {
        let here = host.cwd.to_string();
        let found = logs.iter().find(|log| log.directory().as_ref() == Some(&here)).cloned();
        return Ok(found.ok_or_else(|| LogError::NoneHere { known: known() })?);
    };
    let name = id.strip_prefix("sandpen-").unwrap_or(id);
    let exact = logs.iter().find(|log| log.id == id || log.id == name);
    let mut starting = logs.iter().filter(|log| id.len() >= MIN_ID_PREFIX && log.id.starts_with(id));
    let found = exact.or_else(|| starting.next().filter(|_| starting.next().is_none())).cloned();
    Ok(found.ok_or_else(|| {
        let known = known();
        let nearest = nearest(id, known.iter().map(String::as_str)).map(ToString::to_string);
        LogError::NotFound { id: id.to_owned(), nearest, known }
    })?)
}

/// Reads the events that were added to a record since the last time.
#[derive(Default)]
struct EventReader {
    position: u64,
    /// The start of a line whose end is not written yet.
    rest: Vec<u8>,
}

impl EventReader {
    fn read(&mut self, path: &Path) -> Vec<Event> {
        let Ok(mut file) = File::open(path) else { return Vec::new() };
        if file.seek(SeekFrom::Start(self.position)).is_err() {
            return Vec::new();
        }
        let before = self.rest.len();
        let _ = file.read_to_end(&mut self.rest);
        self.position += (self.rest.len() - before) as u64;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let complete: Vec<u8> = self.rest.drain(..end).collect();
        complete.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

fn line(event: &Event, format: Format) -> String {
    match format {
        Format::Json => event.line(),
        Format::Text => {
            let reason = if event.reason.is_empty() { String::new() } else { format!(" ({})", escape(&event.reason)) };
            let (gate, verdict) = (event.gate.name(), event.verdict.name());
            format!("{}  {gate:10}  {verdict:7}  {}{reason}\n", local_time(&event.time), escape(&event.what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_log::Verdict;
    use std::io::Write;

    #[test]
    fn half_a_line_is_read_when_it_is_complete() -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        let line = Event::new("id", Gate::Ssh, Verdict::Allowed, "git@example.org", "").line();
        let (first, second) = line.split_at(line.len() / 2);
        let mut reader = EventReader::default();
        write!(file, "{line}{first}")?;
        assert_eq!(reader.read(file.path()).len(), 1);
        assert_eq!(reader.read(file.path()).len(), 0);
        writeln!(file, "{second}not an event")?;
        assert_eq!(reader.read(file.path()).len(), 1);
        Ok(())
    }

    #[test]
    fn a_text_from_inside_stays_on_its_line() {
        let event = Event::new("id", Gate::Network, Verdict::Refused, "a\nb", "\u{1b}[2J");
        let text = line(&event, Format::Text);
        assert!(text.ends_with("  network     refused  a\\nb (\\u{1b}[2J)\n"), "{text:?}");
    }
}
