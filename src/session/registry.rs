//! The sandboxes of this user: one directory each, with a record in it and a lock that its launcher holds. Whose lock is free is
//! left over from a launcher that was killed.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::directory;
use super::directory::{NEW, OLD};
use crate::guard::{Baseline, Review, background_review};
use crate::host::{Host, ProcessStamp};
use crate::launch::Launch;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::process::Client;
use crate::process::lock::{self, OWNER};
use crate::process::release_pages;
use crate::session_id::SessionId;

/// The file in the session's directory.
const RECORD: &str = "session.json";
/// A directory that is being made has no lock yet; one this old is not being made any more.
const IN_THE_MAKING: Duration = Duration::from_secs(60);

/// What is known of a sandbox from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: String,
    /// The container's name.
    pub name: String,
    /// The engine's name.
    pub engine: String,
    /// The engine's program.
    pub program: Option<String>,
    /// The image.
    pub image: Option<String>,
    /// The command, as text.
    pub command: Vec<String>,
    /// The working directory.
    pub directory: String,
    /// The guest's user inside, where sandpen chose it.
    pub user: Option<(u32, u32)>,
    /// Whether the guest helper is inside.
    pub has_helper: bool,
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// The launcher.
    pub owner: ProcessStamp,
    /// Whether it stays after its end.
    #[serde(default)]
    pub keep: bool,
    /// The code it ended with, if it is kept.
    #[serde(default)]
    pub ended: Option<u8>,
    /// What its proxy's container left in the engine, as commands that remove it.
    #[serde(default)]
    pub leftovers: Vec<Vec<String>>,
    /// The most processes it may have, where the kernel counts them per sandbox user.
    pub pids: Option<u64>,
}

impl Record {
    /// Of a launch.
    pub fn of(host: &Host, plan: &Plan, launch: &Launch) -> Self {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        Record {
            id: plan.id.to_string(),
            name: plan.id.name(),
            engine: plan.engine.kind.name().to_owned(),
            program: plan.engine.program.as_ref().map(ToString::to_string),
            image: plan.image.as_ref().map(|image| image.reference.to_string()),
            command: plan.command.iter().map(text).collect(),
            directory: plan.workdir.to_string(),
            user: plan.user.uid.zip(plan.user.gid).filter(|_| plan.user.is_host_user()),
            has_helper: plan.helper.is_some(),
            started: now(),
            owner: host.process,
            keep: plan.keep.is_some() && launch.container().is_some(),
            ended: None,
            leftovers: launch.container().and_then(|launch| launch.sidecar.as_ref()).map_or_else(Vec::new, |sidecar| {
                let words = |argv: &Vec<OsString>| argv.iter().skip(1).map(text).collect();
                sidecar.remove.iter().map(words).collect()
            }),
            pids: match launch {
                Launch::Container(_) | Launch::Seatbelt(_) => None,
                #[cfg(target_os = "linux")]
                Launch::Native(launch) => launch.setup.limits.pids,
            },
        }
    }

    /// The engine's client, with a PATH that leads nowhere into mounted directories.
    pub fn client(&self, path: &Path) -> Client {
        Client {
            program: self.program.as_ref().and_then(|program| HostPath::new(program).ok()),
            path: path.to_owned(),
            machine: None,
        }
    }

    /// How long it has been running.
    pub fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.started))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether a process still deals with a container. A client whose launcher was killed goes on making and starting it; so does the
/// half of rootless Podman's client that is in the user namespace when the other half was killed. What they make would be found
/// by nobody if the record were gone before.
pub fn is_in_flight(container: &str) -> bool {
    let names_it = |line: Vec<u8>| line.split(|byte| *byte == 0).any(|word| word == container.as_bytes());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok()).any(names_it)
}

/// How long it may go on, once it should have ended.
const IN_FLIGHT: Duration = Duration::from_secs(5);

/// Does something about a container until no process deals with it any more.
pub fn until_settled(container: &str, mut act: impl FnMut()) {
    act();
    let limit = Instant::now() + IN_FLIGHT;
    while is_in_flight(container) && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(50));
        act();
    }
}

/// A session directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where it is.
    pub path: HostPath,
    /// Its record; `None` when it was killed before it wrote one.
    pub record: Option<Record>,
    /// Whether its launcher lives.
    pub is_live: bool,
}

impl Entry {
    fn read(path: HostPath, is_live: bool) -> Self {
        let record = fs::read(path.join(RECORD).as_path()).ok().and_then(|json| serde_json::from_slice(&json).ok());
        Entry { path, record, is_live }
    }

    /// Whether this is its id.
    pub fn is_called(&self, id: &SessionId) -> bool {
        self.path.as_path().file_name().is_some_and(|name| *name == *id.to_string())
    }

    /// Whether it has ended and stays all the same.
    pub fn is_kept(&self) -> bool {
        !self.is_live && self.record.as_ref().is_some_and(|record| record.keep)
    }

    /// Whether it is left over from a launcher that was killed.
    pub fn is_stale(&self) -> bool {
        !self.is_live && !self.is_kept()
    }
}

/// Writes the record of a session into its directory.
pub fn write(directory: &HostPath, record: &Record) -> std::io::Result<()> {
    // Written aside, so that nobody ever reads half of it.
    let aside = directory.join(format!("{RECORD}.new"));
    fs::write(aside.as_path(), serde_json::to_vec(record)?)?;
    fs::rename(aside.as_path(), directory.join(RECORD).as_path())
}

/// All sessions below a directory, the oldest first.
pub fn all(base: &HostPath) -> Vec<Entry> {
    let mut entries: Vec<Entry> = found(base).map(|(path, is_live)| Entry::read(path, is_live)).collect();
    entries.sort_by_key(|entry| entry.record.as_ref().map_or(0, |record| record.started));
    entries
}

/// The session directories below a directory, and whether their launchers live.
fn found(base: &HostPath) -> impl Iterator<Item = (HostPath, bool)> {
    fs::read_dir(base.as_path()).into_iter().flatten().flatten().filter_map(|entry| look(&entry))
}

fn look(entry: &fs::DirEntry) -> Option<(HostPath, bool)> {
    let path = HostPath::new(entry.path()).ok().filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir()))?;
    let is_young = || {
        let made = entry.metadata().and_then(|meta| meta.modified());
        // The clock may have been set back meanwhile.
        made.is_ok_and(|made| made.elapsed().unwrap_or_else(|ahead| ahead.duration()) < IN_THE_MAKING)
    };
    let name = entry.file_name();
    let is = |prefix: &str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    let is_held = || lock::is_held(path.join(OWNER).as_path());
    let is_live = match (is(NEW), is(OLD)) {
        // A launcher's last act, if it still lives: helping it does no harm.
        (_, true) => false,
        // The lock is there a moment before it is held.
        (true, _) => is_held() == Some(true) || is_young(),
        _ => is_held().unwrap_or_else(is_young),
    };
    Some((path, is_live))
}

/// What can be done beside a running sandbox, so that no launch waits for it: sweeping, and giving memory back.
#[derive(Debug)]
pub struct BackgroundSweep {
    base: Option<HostPath>,
    swept: Option<Receiver<Swept>>,
}

impl BackgroundSweep {
    /// For a session.
    pub fn of(session: &HostPath) -> Self {
        BackgroundSweep { base: session.as_path().parent().and_then(|base| HostPath::new(base).ok()), swept: None }
    }

    /// Begins only if there is something to sweep: a thread costs more than a look. For whoever gives memory back without it.
    #[cfg(target_os = "linux")]
    pub fn sweep_if_needed(&mut self) {
        let is_tidy = |base: &HostPath| found(base).all(|(_, is_live)| is_live) && background_review::is_idle(base);
        if !self.base.as_ref().is_some_and(is_tidy) {
            self.start();
        }
    }

    /// Begins. Only after the native engine's fork, which wants a process of one thread.
    pub fn start(&mut self) {
        let Some(base) = self.base.take() else { return };
        let (sender, swept) = std::sync::mpsc::channel();
        self.swept = Some(swept);
        std::thread::spawn(move || {
            let _ = sender.send(sweep(&base));
            std::thread::sleep(release_pages::MIN_GUEST_TIME);
            release_pages::release_code_pages();
        });
    }

    /// What was found, once the sweep is through.
    pub fn finish(self) -> Swept {
        self.swept.and_then(|swept| swept.recv().ok()).unwrap_or_default()
    }
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// How many sessions were removed.
    pub removed: usize,
    /// What they had left in repositories.
    pub reviews: Vec<Review>,
}

/// Removes what killed launchers left, except containers: those end by themselves when their launcher's lock is free.
pub fn sweep(base: &HostPath) -> Swept {
    let is_over =
        |entry: &&Entry| entry.is_stale() && !entry.record.as_ref().is_some_and(|record| is_in_flight(&record.name));
    let mut swept = Swept::default();
    // Nobody waits for the records of sandboxes that run: there may be hundreds.
    let ended = found(base).filter(|(_, is_live)| !is_live).map(|(path, is_live)| Entry::read(path, is_live));
    for entry in ended.collect::<Vec<_>>().iter().filter(is_over) {
        swept.removed += usize::from(remove(entry, &mut swept.reviews));
    }
    swept.reviews.extend(background_review::catch_up(base));
    swept
}

/// Removes the directory of a session that has ended, after the review that its launcher could not make; `false` if somebody has
/// taken its place.
pub fn remove(entry: &Entry, reviews: &mut Vec<Review>) -> bool {
    directory::remove_stale(&entry.path, || {
        reviews.extend(Baseline::of_session(&entry.path).map(|baseline| baseline.catch_up()));
    })
}
