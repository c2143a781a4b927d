//! Records what a sandbox asked of the outside and what became of it: one JSON object per line, in a
//! file per sandbox that stays after its end. Decides nothing; `sandpen log` prints it.

mod event;
mod timestamp;

pub use event::{Event, Gate, Verdict};
pub use timestamp::{local_time, timestamp};

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use crate::path::HostPath;

/// The size limit of a record, in bytes: the guest must not fill the disk.
const MAX_SIZE: u64 = 4 << 20;
/// Room that stays free for the lines that say that the record is full, and that the sandbox ended.
const RESERVE: u64 = 4 << 10;
/// How long the record of a sandbox that has ended is kept.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
const EXTENSION: &str = "jsonl";

/// The events of the sandbox itself.
pub const STARTED: &str = "started";
pub const ENDED: &str = "ended";

/// The record of one sandbox. It has no file before its first event.
#[derive(Debug)]
pub struct EventLog {
    /// `None` if nothing is recorded.
    path: Option<PathBuf>,
    id: String,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    file: Option<File>,
    written: u64,
    /// The disk is full or the size limit is reached.
    is_full: bool,
}

impl EventLog {
    /// Makes the record of a sandbox, given the directory of all sessions.
    pub fn new(sessions: &Path, id: &str) -> Self {
        let path = directory(sessions).join(format!("{id}.{EXTENSION}"));
        EventLog { path: Some(path), id: id.to_owned(), state: Mutex::default() }
    }

    /// Makes a record that keeps nothing.
    pub fn disabled() -> Self {
        EventLog { path: None, id: String::new(), state: Mutex::default() }
    }

    /// Records one event. Texts from inside are shortened.
    pub fn record(&self, gate: Gate, verdict: Verdict, what: &str, reason: &str) {
        self.write(&Event::new(&self.id, gate, verdict, what, reason));
    }

    /// Records that the sandbox was started over a directory.
    pub fn start(&self, directory: &str, command: &str) {
        let event = Event::new(&self.id, Gate::Sandbox, Verdict::Done, STARTED, command);
        self.write(&Event { directory: Some(directory.to_owned()), ..event });
    }

    /// Records the end of a sandbox that was started.
    pub fn end(&self, reason: &str) {
        if self.state.lock().is_ok_and(|state| state.file.is_some()) {
            self.write(&Event::new(&self.id, Gate::Sandbox, Verdict::Done, ENDED, reason));
        }
    }

    fn write(&self, event: &Event) {
        let (Some(path), Ok(mut state)) = (&self.path, self.state.lock()) else { return };
        let mut line = event.line();
        let is_last = event.what == ENDED && event.gate == Gate::Sandbox;
        if state.written + line.len() as u64 > MAX_SIZE - RESERVE && !is_last {
            if std::mem::replace(&mut state.is_full, true) {
                return;
            }
            let text = "the record has reached its size limit; what follows is not recorded";
            line = Event::new(&self.id, Gate::Sandbox, Verdict::Failed, "record", text).line();
        }
        if state.file.is_none() {
            state.file = create(path).ok();
        }
        state.written += line.len() as u64;
        // Nothing depends on the record, so a full disk does not stop the sandbox.
        if let Some(file) = &mut state.file {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// Adds an event to the record of a sandbox that may have ended.
pub fn append(sessions: &HostPath, id: &str, gate: Gate, verdict: Verdict, what: &str, reason: &str) {
    let path = directory(sessions.as_path()).join(format!("{id}.{EXTENSION}"));
    let line = Event::new(id, gate, verdict, what, reason).line();
    let file = OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(&path).or_else(|_| create(&path));
    // As in a running sandbox, nothing depends on the record.
    if let Ok(mut file) = file
        && file.metadata().is_ok_and(|meta| meta.len() + line.len() as u64 <= MAX_SIZE)
    {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Creates the file. That of an earlier sandbox of the same name is replaced.
fn create(path: &Path) -> io::Result<File> {
    let new = || OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
    new().or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let parent = path.parent().unwrap_or(path);
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            new()
        }
        io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            new()
        }
        _ => Err(error),
    })
}

/// Returns the directory of all records, which lies beside that of all sessions.
fn directory(sessions: &Path) -> PathBuf {
    sessions.with_file_name("log")
}

/// A record on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedLog {
    pub id: String,
    pub path: PathBuf,
    modified: SystemTime,
}

impl SavedLog {
    /// Reads the directory over which the sandbox was started.
    pub fn directory(&self) -> Option<String> {
        use std::io::BufRead;
        let mut line = String::new();
        io::BufReader::new(File::open(&self.path).ok()?).read_line(&mut line).ok()?;
        serde_json::from_str::<Event>(&line).ok()?.directory
    }
}

/// Lists the records beside a directory of sessions, the newest first.
pub fn saved(sessions: &HostPath) -> Vec<SavedLog> {
    let entries = fs::read_dir(directory(sessions.as_path())).into_iter().flatten().flatten();
    let mut logs: Vec<SavedLog> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let id = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?.to_owned();
            Some(SavedLog { id, modified: entry.metadata().ok()?.modified().ok()?, path })
        })
        .collect();
    logs.sort_by_key(|log| std::cmp::Reverse(log.modified));
    logs
}

/// Removes the old records of sandboxes that have ended; returns their number.
pub fn remove_old(sessions: &HostPath, is_running: impl Fn(&str) -> bool) -> usize {
    let is_old = |log: &SavedLog| log.modified.elapsed().is_ok_and(|age| age > LIFETIME) && !is_running(&log.id);
    saved(sessions).iter().filter(|log| is_old(log)).filter(|log| fs::remove_file(&log.path).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn lines(path: &Path) -> Vec<Event> {
        let text = fs::read_to_string(path).expect("the record");
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
    }

    #[test]
    fn a_sandbox_that_did_not_start_has_no_record() -> io::Result<()> {
        let base = tempfile::tempdir()?;
        let log = EventLog::new(&base.path().join("sessions"), "id");
        log.end("failed");
        assert!(!base.path().join("log").exists());
        EventLog::disabled().record(Gate::Ssh, Verdict::Allowed, "x", "");
        Ok(())
    }

    #[test]
    fn events_are_lines_of_a_private_file() -> io::Result<()> {
        let base = tempfile::tempdir()?;
        let log = EventLog::new(&base.path().join("sessions"), "id");
        log.start("/work", "git status");
        log.record(Gate::Network, Verdict::Refused, "a\nb\u{1b}", &"x".repeat(5000));
        log.end("exit code 0");
        let path = base.path().join("log/id.jsonl");
        assert_eq!(path.metadata()?.mode() & 0o777, 0o600);
        let events = lines(&path);
        assert_eq!(
            events.iter().map(|event| event.what.as_str()).collect::<Vec<_>>(),
            ["started", "a\nb\u{1b}", "ended"]
        );
        assert!(events[1].reason.len() < 1000 && events[1].reason.ends_with('…'));
        assert_eq!(events[0].directory.as_deref(), Some("/work"));
        let text = fs::read_to_string(&path)?;
        assert!(text.lines().count() == 3 && !text.contains('\u{1b}'), "{text}");
        // Another sandbox of the same name has a new record.
        EventLog::new(&base.path().join("sessions"), "id").start("/other", "");
        assert_eq!(lines(&path).len(), 1);
        Ok(())
    }

    #[test]
    fn a_talkative_guest_does_not_fill_the_disk() -> io::Result<()> {
        let base = tempfile::tempdir()?;
        let log = EventLog::new(&base.path().join("sessions"), "id");
        for _ in 0..MAX_SIZE / 400 {
            log.record(Gate::Network, Verdict::Refused, &"x".repeat(400), "");
        }
        log.end("exit code 1");
        let path = base.path().join("log/id.jsonl");
        assert!(path.metadata()?.len() <= MAX_SIZE);
        let events = lines(&path);
        let last: Vec<&str> = events.iter().rev().take(2).map(|event| event.reason.as_str()).collect();
        assert_eq!(last[0], "exit code 1");
        assert!(last[1].contains("size limit"), "{last:?}");
        Ok(())
    }

    #[test]
    fn old_records_of_ended_sandboxes_are_removed() -> io::Result<()> {
        let base = tempfile::tempdir()?;
        let sessions = HostPath::new(base.path().join("sessions")).expect("a path");
        for id in ["old", "running", "new"] {
            EventLog::new(sessions.as_path(), id).start("/", "");
        }
        for id in ["old", "running"] {
            let file = File::options().append(true).open(base.path().join(format!("log/{id}.jsonl")))?;
            file.set_modified(SystemTime::now() - LIFETIME - Duration::from_secs(60))?;
        }
        assert_eq!(remove_old(&sessions, |id| id == "running"), 1);
        let mut left: Vec<String> = saved(&sessions).into_iter().map(|log| log.id).collect();
        left.sort();
        assert_eq!(left, ["new", "running"]);
        Ok(())
    }
}
