//! Brings home what the guest has changed: asks the helper for it from time to time and at the end, and
//! lets it be written into the copy of the workspace. A record in the session's directory lets another
//! command go on after a launcher that was killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::connection::{Connection, LostLink};
use crate::config::value::Access;
use crate::gate::repository::KeptRepositories;
use crate::gate::workspace::{ReturnPlace, ReturnedFiles};
use crate::link::{LinkFrame, LinkWriter, WatchRequest};
use crate::path::HostPath;
use crate::plan::{Plan, Source, Topic};
use crate::process::RepeatedWork;
use crate::process::untrusted;
use crate::ui::Ui;

/// If the other machine is lost, so is what changed since the last time.
const INTERVAL: Duration = Duration::from_secs(60);
/// The record, in the session's directory.
const RECORD: &str = "returns.json";
const MAX_RECORD: u64 = 1 << 20;
/// The directory for incomplete files, in that of the copy.
const PARTS: &str = "incoming";
/// More files that cannot be read are not named.
const MAX_NAMED: usize = 8;

/// What comes back, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnRecord {
    pub request: WatchRequest,
    places: Vec<ReturnPlace>,
    /// The directory of the copy.
    #[serde(with = "crate::saved_path")]
    directory: PathBuf,
}

impl ReturnRecord {
    /// Decides what comes back: the copy's directories, and the private Git directories. A Git directory
    /// comes before its objects, so that no ref comes whose objects do not.
    pub fn of(plan: &Plan) -> Option<Self> {
        let directory = plan.workspace.directory()?;
        let full = plan.repository_gate.repositories.iter().flat_map(|repository| &repository.full);
        let objects: Vec<&PathBuf> = full.map(|dir| &dir.private_objects).collect();
        let mut places: Vec<(bool, ReturnPlace)> = Vec::new();
        for mount in plan.mounts.iter().filter(|mount| mount.access == Access::Rw && mount.is_directory) {
            let inside = mount.target.as_path().to_owned();
            match &mount.source {
                Source::Overlay { host, layer } => {
                    let (place, under) = (layer.join("upper").as_path().to_owned(), Some(host.as_path().to_owned()));
                    places.push((false, ReturnPlace { inside, place, under }));
                }
                Source::Host(source) if mount.why.topic == Topic::Repository => {
                    let is_objects = objects.iter().any(|path| path.as_path() == source.as_path());
                    let place = source.as_path().to_owned();
                    places.push((is_objects, ReturnPlace { inside, place, under: None }));
                }
                _ => {}
            }
        }
        places.sort_by_key(|(is_objects, _)| *is_objects);
        let places: Vec<ReturnPlace> = places.into_iter().map(|(_, place)| place).collect();
        let roots: Vec<PathBuf> = places.iter().map(|place| place.inside.clone()).collect();
        let targets = plan.mounts.iter().map(|mount| mount.target.as_path().to_owned());
        let left_out = targets.filter(|target| !roots.contains(target)).collect();
        Some(ReturnRecord {
            request: WatchRequest { roots, left_out },
            places,
            directory: directory.as_path().to_owned(),
        })
    }

    /// Reads the record of a session whose launcher has ended.
    pub fn read(session: &HostPath) -> Option<Self> {
        let text = untrusted::read_bytes(session.join(RECORD).as_path(), MAX_RECORD).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn write(&self, session: &HostPath) -> io::Result<()> {
        fs::write(session.join(RECORD).as_path(), serde_json::to_vec(self)?)
    }
}

/// Takes what comes back.
pub struct Returns {
    files: ReturnedFiles,
    parts: PathBuf,
    /// Whether the helper was asked and has not sent everything.
    is_asked: Arc<AtomicBool>,
    /// Why what comes now is not taken.
    failure: Option<String>,
    unreadable: Vec<String>,
    commits: Option<CommitThread>,
}

/// Brings commits into the user's repositories each time after something came back. A thread, because
/// Git may take long.
struct CommitThread {
    wake: mpsc::Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

impl CommitThread {
    fn start(copy: &Path) -> Option<Self> {
        let copy = HostPath::new(copy).ok()?;
        let (wake, woken) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut last = Ok(());
            while woken.recv().is_ok() {
                // Several times at once are one.
                while woken.try_recv().is_ok() {}
                let brought = KeptRepositories::open(&copy).map(|repositories| repositories.bring_commits());
                last = brought.transpose().map(drop).map_err(|error| error.to_string());
            }
            last
        });
        Some(CommitThread { wake, thread })
    }

    /// Ends the thread, after the work that it may be busy with.
    fn finish(self) -> Result<(), String> {
        drop(self.wake);
        self.thread.join().unwrap_or(Ok(()))
    }
}

/// Asks from time to time until it is dropped.
pub struct RegularReturns(Option<RepeatedWork<()>>);

impl Drop for RegularReturns {
    fn drop(&mut self) {
        self.0.take().map(RepeatedWork::stop);
    }
}

/// Why not everything came back.
#[derive(Debug)]
pub enum ReturnError {
    Lost(LostLink),
    /// This machine cannot take it.
    Failed(String),
}

impl Returns {
    pub fn open(record: &ReturnRecord) -> io::Result<Self> {
        let parts = record.directory.join(PARTS);
        Ok(Returns {
            files: ReturnedFiles::open(&record.places, &parts)?,
            parts,
            commits: CommitThread::start(&record.directory),
            is_asked: Arc::default(),
            failure: None,
            unreadable: Vec::new(),
        })
    }

    pub fn ask_regularly(&self, link: &LinkWriter) -> RegularReturns {
        let (link, is_asked) = (link.clone(), self.is_asked.clone());
        let ask = move |(): &mut ()| {
            if !is_asked.swap(true, Ordering::AcqRel) {
                let _ = link.send(&LinkFrame::Collect);
            }
        };
        RegularReturns(Some(RepeatedWork::start(INTERVAL, (), ask)))
    }

    /// Takes a frame if it belongs to what comes back; returns whether it does.
    pub fn take(&mut self, frame: LinkFrame, link: &LinkWriter) -> bool {
        let done = match frame {
            LinkFrame::Entry(entry) if self.failure.is_none() => self.files.entry(entry),
            LinkFrame::Content(bytes) if self.failure.is_none() => self.files.content(&bytes),
            LinkFrame::Removed(path) if self.failure.is_none() => self.files.removed(&path),
            // The rest of what failed.
            LinkFrame::Entry(_) | LinkFrame::Content(_) | LinkFrame::Removed(_) => return true,
            LinkFrame::Unreadable(text) => {
                if self.unreadable.len() <= MAX_NAMED && !self.unreadable.contains(&text) {
                    self.unreadable.push(text);
                }
                return true;
            }
            LinkFrame::EntriesEnd => {
                // Without an answer the helper sends the same the next time.
                if self.failure.is_none() {
                    let _ = link.send(&LinkFrame::Received);
                    if let Some(commits) = &self.commits {
                        let _ = commits.wake.send(());
                    }
                }
                self.is_asked.store(false, Ordering::Release);
                return true;
            }
            _ => return false,
        };
        if let Err(error) = done {
            self.files.abandon();
            self.failure = Some(error.to_string());
        }
        true
    }

    /// Brings everything home. The guest has ended, so nothing changes any more.
    pub fn finish(&mut self, connection: &Connection) -> Result<(), ReturnError> {
        if self.is_asked.load(Ordering::Acquire) {
            self.await_end(connection)?;
        }
        (self.failure, self.unreadable) = (None, Vec::new());
        self.is_asked.store(true, Ordering::Release);
        let sent = connection.writer.send(&LinkFrame::Collect);
        sent.map_err(|error| ReturnError::Lost(LostLink { message: error.to_string() }))?;
        self.await_end(connection)?;
        match self.failure.take() {
            Some(failure) => Err(ReturnError::Failed(failure)),
            None => Ok(()),
        }
    }

    fn await_end(&mut self, connection: &Connection) -> Result<(), ReturnError> {
        while self.is_asked.load(Ordering::Acquire) {
            match connection.next().map_err(ReturnError::Lost)? {
                LinkFrame::Failed(reason) => return Err(ReturnError::Failed(reason)),
                frame => {
                    self.take(frame, &connection.writer);
                }
            }
        }
        Ok(())
    }

    /// Waits for the commits, and names what did not come back.
    pub fn report(&mut self, ui: Ui) {
        if let Some(Err(error)) = self.commits.take().map(CommitThread::finish) {
            ui.warn(&format!("the commits are in the copy, but not below `refs/sandpen`: {error}"));
        }
        for text in self.unreadable.iter().take(MAX_NAMED) {
            ui.warn(&format!("not brought back: {text}"));
        }
        if self.unreadable.len() > MAX_NAMED {
            ui.warn("more files could not be read inside");
        }
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        remove(&self.parts);
    }
}

fn remove(parts: &Path) {
    let _ = fs::remove_dir_all(parts);
}
