//! The sandboxes of this user: a directory for each, with a record and a lock that its launcher
//! holds. A directory whose lock is free was left by a launcher that was killed.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::directory::{self, NEW, OLD};
use super::end_calls::{UnfinishedCalls, remove_with_retries};
use crate::config::value::NetworkMode;
use crate::gate::repository::{Report, RepositoryExchange};
use crate::host::{Host, ProcessStamp};
use crate::launch::Launch;
use crate::path::HostPath;
use crate::plan::{CONTROL_DIR, Plan};
use crate::process::lock::{self, OWNER};
use crate::process::release_pages;
use crate::process::{CallResult, Client};
use crate::session_id::SessionId;
use crate::ui::Ui;

/// The file with the record, in the session's directory.
const RECORD: &str = "session.json";
/// The age at which a directory without a lock is no longer taken for one that is being created.
const CREATION_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may go on with a container that should have ended.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after its start the exit code and the last screen of a detached sandbox are kept.
const ENDED_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
const CLIENT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The description of a sandbox for `ps`, `exec`, `stop` and `prune`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    /// The container's name.
    pub name: String,
    /// The engine's name.
    pub engine: String,
    /// The path of the engine's client.
    pub program: Option<String>,
    pub image: Option<String>,
    pub command: Vec<String>,
    pub directory: String,
    /// The user and group of the guest, if sandpen chose them.
    pub user: Option<(u32, u32)>,
    /// Whether the helper is mounted in the container.
    pub has_helper: bool,
    /// Directories of sandpen's own at the end of PATH.
    #[serde(default)]
    pub append_path: Vec<String>,
    /// The start, in seconds since 1970.
    pub started: u64,
    /// The launcher.
    pub owner: ProcessStamp,
    /// Whether the container is kept after its end.
    #[serde(default)]
    pub keep: bool,
    /// Whether it was started with `run --detach`.
    #[serde(default)]
    pub detached: bool,
    /// The exit code, once a sandbox that is kept or detached has ended.
    #[serde(default)]
    pub ended: Option<u8>,
    /// The arguments of the client's commands that remove what the proxy's container used.
    #[serde(default)]
    pub leftovers: Vec<Vec<String>>,
    /// The limit of processes of a native sandbox.
    pub pids: Option<u64>,
    /// Whether programs in a native sandbox may make sandboxes of their own.
    #[serde(default)]
    pub nested: bool,
    /// The pod, for `kubernetes`.
    #[serde(default)]
    pub pod: Option<PodRecord>,
    /// The client's arguments that select an engine on another machine.
    #[serde(default)]
    pub endpoint: Vec<String>,
    /// The calls that the launcher left, because the engine did not answer.
    #[serde(default)]
    pub unfinished: Option<UnfinishedCalls>,
}

/// A pod, for the commands that find it later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The arguments of kubectl that select the cluster and the namespace.
    pub cluster: Vec<String>,
    pub namespace: String,
    /// The labels by which it is found if its uid is not known.
    pub labels: serde_json::Value,
    /// `None` before the pod was created.
    pub uid: Option<String>,
    /// Whether commands inside may make sockets of the local system only.
    #[serde(default)]
    pub is_offline: bool,
}

impl Record {
    pub fn new(host: &Host, plan: &Plan, launch: &Launch) -> Self {
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
            append_path: {
                let appended = plan.helper_config.append_path.iter();
                appended.filter(|path| path.starts_with(CONTROL_DIR)).cloned().collect()
            },
            started: now(),
            owner: host.process,
            keep: plan.keep.is_some() && launch.container().is_some(),
            detached: false,
            ended: None,
            leftovers: launch.container().and_then(|launch| launch.sidecar.as_ref()).map_or_else(Vec::new, |sidecar| {
                let arguments = |argv: &Vec<OsString>| argv.iter().skip(1).map(text).collect();
                sidecar.remove.iter().map(arguments).collect()
            }),
            pids: match launch {
                Launch::Container(_) | Launch::Seatbelt(_) | Launch::Kubernetes(_) => None,
                #[cfg(target_os = "linux")]
                Launch::Native(launch) => launch.setup.limits.pids,
            },
            nested: plan.nested.is_allowed(),
            pod: match launch {
                Launch::Kubernetes(launch) => Some(PodRecord {
                    cluster: launch.recorded_cluster.iter().map(text).collect(),
                    namespace: launch.namespace.clone(),
                    labels: launch.manifest.pointer("/metadata/labels").cloned().unwrap_or_default(),
                    uid: None,
                    is_offline: plan.network.mode == NetworkMode::Off,
                }),
                _ => None,
            },
            endpoint: launch
                .container()
                .map_or_else(Vec::new, |launch| launch.client.endpoint.iter().map(text).collect()),
            unfinished: None,
        }
    }

    /// Returns the engine's client, with a PATH without mounted directories.
    pub fn client(&self, path: &Path) -> Client {
        Client {
            program: self.program.as_ref().and_then(|program| HostPath::new(program).ok()),
            path: path.to_owned(),
            machine: None,
            endpoint: self.endpoint.iter().map(OsString::from).collect(),
        }
    }

    /// Tells whether the sandbox is on another machine.
    pub fn is_elsewhere(&self) -> bool {
        self.pod.is_some() || !self.endpoint.is_empty()
    }

    /// Returns the time since the start.
    pub fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.started))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns whether a process still works on a container. A client whose launcher was killed goes on
/// to create and start it; so does the child of rootless Podman's client after its parent was
/// killed. If the record were removed before, no sandpen would find that container.
pub fn is_in_use(container: &str) -> bool {
    let names_it = |line: Vec<u8>| line.split(|byte| *byte == 0).any(|word| word == container.as_bytes());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
    processes.filter(|process| fs::read(process.join("cmdline")).is_ok_and(names_it)).any(|process| !is_guest(&process))
}

/// Returns whether a process is in a pid namespace of its own. A guest can give itself any arguments.
fn is_guest(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    pids.is_some_and(|pids| pids.split_whitespace().count() > 1)
}

/// Makes a call once, and again as long as a process works on the container and the engine answers.
pub fn repeat_while_in_use(container: &str, mut call: impl FnMut() -> CallResult) -> CallResult {
    let mut result = call();
    let limit = Instant::now() + CLIENT_TIMEOUT;
    while result != CallResult::TimedOut && is_in_use(container) && Instant::now() < limit {
        std::thread::sleep(CLIENT_POLL_INTERVAL);
        result = call();
    }
    result
}

/// Makes the calls that an entry's launcher left; returns whether the engine answered them.
pub fn finish_calls(entry: &mut Entry) -> bool {
    let Some(record) = &mut entry.record else { return true };
    let Some(UnfinishedCalls { path, calls }) = record.unfinished.take() else { return true };
    let client = record.client(&path);
    let make = || {
        let is_answered = calls.iter().all(|arguments| remove_with_retries(&client, arguments));
        if is_answered { CallResult::Succeeded } else { CallResult::TimedOut }
    };
    if repeat_while_in_use(&record.name, make) == CallResult::TimedOut {
        record.unfinished = Some(UnfinishedCalls { path, calls });
        return false;
    }
    // If this fails, the calls are repeated, which does no harm.
    let _ = write(&entry.path, record);
    true
}

/// A session directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub path: HostPath,
    /// `None` if the launcher was killed before it wrote one.
    pub record: Option<Record>,
    /// Whether its launcher is running.
    pub is_live: bool,
}

impl Entry {
    fn read(path: HostPath, is_live: bool) -> Self {
        let record = fs::read(path.join(RECORD).as_path()).ok().and_then(|json| serde_json::from_slice(&json).ok());
        Entry { path, record, is_live }
    }

    pub fn has_id(&self, id: &SessionId) -> bool {
        self.path.as_path().file_name().is_some_and(|name| *name == *id.to_string())
    }

    /// Returns whether it has ended and is kept.
    pub fn is_kept(&self) -> bool {
        !self.is_live && self.record.as_ref().is_some_and(|record| record.keep)
    }

    /// Returns whether it was detached, and has ended not long ago.
    pub fn has_ended(&self) -> bool {
        let is_recent = |record: &Record| record.age() < ENDED_LIFETIME;
        let has_ended = |record: &Record| record.detached && record.ended.is_some() && is_recent(record);
        !self.is_live && self.record.as_ref().is_some_and(has_ended)
    }

    /// Returns whether it was left by a launcher that was killed, or has ended long ago.
    pub fn is_stale(&self) -> bool {
        !self.is_live && !self.is_kept() && !self.has_ended()
    }
}

/// Writes the record of a session into its directory.
pub fn write(directory: &HostPath, record: &Record) -> std::io::Result<()> {
    // Written to another file first, so that no reader sees half of it.
    let new = directory.join(format!("{RECORD}.new"));
    fs::write(new.as_path(), serde_json::to_vec(record)?)?;
    fs::rename(new.as_path(), directory.join(RECORD).as_path())
}

/// Lists all sessions below a directory, the oldest first.
pub fn all(base: &HostPath) -> Vec<Entry> {
    let mut entries: Vec<Entry> = directories(base).map(|(path, is_live)| Entry::read(path, is_live)).collect();
    entries.sort_by_key(|entry| entry.record.as_ref().map_or(0, |record| record.started));
    entries
}

/// Lists the sessions' directories below a directory, and whether their launchers are running.
fn directories(base: &HostPath) -> impl Iterator<Item = (HostPath, bool)> {
    fs::read_dir(base.as_path()).into_iter().flatten().flatten().filter_map(|entry| inspect(&entry))
}

fn inspect(entry: &fs::DirEntry) -> Option<(HostPath, bool)> {
    let path = HostPath::new(entry.path()).ok().filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir()))?;
    let is_young = || {
        let made = entry.metadata().and_then(|meta| meta.modified());
        // A time in the future means that the clock was set back.
        made.is_ok_and(|made| made.elapsed().unwrap_or_else(|ahead| ahead.duration()) < CREATION_TIMEOUT)
    };
    let name = entry.file_name();
    let begins = |prefix: &str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    let is_held = || lock::is_held(path.join(OWNER).as_path());
    let is_live = if begins(OLD) {
        // The launcher may still be removing it; both can do that at once.
        false
    } else if begins(NEW) {
        // The lock's file exists a moment before the lock is held.
        is_held() == Some(true) || is_young()
    } else {
        is_held().unwrap_or_else(is_young)
    };
    Some((path, is_live))
}

/// A thread that removes what killed launchers left while a sandbox runs, so that no launch waits
/// for it. Afterwards it releases memory.
#[derive(Debug)]
pub struct BackgroundSweep {
    base: Option<HostPath>,
    result: Option<Receiver<SweepResult>>,
}

impl BackgroundSweep {
    pub fn new(session: &HostPath) -> Self {
        BackgroundSweep { base: session.as_path().parent().and_then(|base| HostPath::new(base).ok()), result: None }
    }

    /// Starts the thread only if there is something to remove, because a thread costs more than
    /// looking. For the native launcher, which releases memory without the thread.
    #[cfg(target_os = "linux")]
    pub fn sweep_if_needed(&mut self) {
        let is_tidy = |base: &HostPath| directories(base).all(|(_, is_live)| is_live);
        if !self.base.as_ref().is_some_and(is_tidy) {
            self.start();
        }
    }

    /// Starts the thread. The native engine must have forked before, which needs a single-threaded
    /// process.
    pub fn start(&mut self) {
        let Some(base) = self.base.take() else { return };
        let (sender, result) = std::sync::mpsc::channel();
        self.result = Some(result);
        std::thread::spawn(move || {
            let _ = sender.send(sweep(&base));
            std::thread::sleep(release_pages::MIN_GUEST_TIME);
            release_pages::release_code_pages();
        });
    }

    /// Waits for the thread's result.
    pub fn finish(self) -> SweepResult {
        self.result.and_then(|result| result.recv().ok()).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub struct SweepResult {
    /// The number of removed sessions.
    pub removed: usize,
    /// What came out of their repositories, by the sandbox's id.
    pub reports: Vec<(String, Report)>,
}

impl SweepResult {
    pub fn print(&self, ui: Ui) {
        for (id, report) in &self.reports {
            report.print_recovered(id, ui);
        }
    }
}

/// Removes what killed launchers left, except containers: the helper in them ends them when the
/// lock is free. Removes the containers of launchers that could not, because their engine did not
/// answer.
pub fn sweep(base: &HostPath) -> SweepResult {
    let is_over =
        |entry: &Entry| entry.is_stale() && !entry.record.as_ref().is_some_and(|record| is_in_use(&record.name));
    let mut result = SweepResult::default();
    directory::remove_memory_of_killed();
    // The records of running sandboxes are not read: there may be hundreds.
    let ended = directories(base).filter(|(_, is_live)| !is_live).map(|(path, is_live)| Entry::read(path, is_live));
    let mut silent_engines = Vec::new();
    for mut entry in ended.collect::<Vec<_>>() {
        let engine =
            entry.record.as_ref().filter(|record| record.unfinished.is_some()).map(|record| record.engine.clone());
        if let Some(engine) = engine
            && (silent_engines.contains(&engine) || !finish_calls(&mut entry))
        {
            silent_engines.push(engine);
            continue;
        }
        // What runs on another machine does not end with its launcher's lock; `prune` removes it.
        let is_elsewhere = entry.record.as_ref().is_some_and(Record::is_elsewhere);
        if is_over(&entry) && !is_elsewhere {
            result.removed += usize::from(remove(&entry, Incomplete::Keep, &mut result.reports));
        }
    }
    result
}

/// Whether a session's directory is removed although something in it could not come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incomplete {
    Keep,
    Remove,
}

/// Removes the directory of a session that has ended, after the exchange that its launcher could
/// not make; returns `false` if it is kept, or if a new session has taken its name.
pub fn remove(entry: &Entry, incomplete: Incomplete, reports: &mut Vec<(String, Report)>) -> bool {
    directory::remove_stale(&entry.path, || {
        let Some(mut exchange) = RepositoryExchange::of_session(&entry.path) else { return true };
        let (report, is_complete) = match exchange.finish() {
            Ok(report) => (report, true),
            Err(report) => (report, false),
        };
        reports.push((exchange.id().to_owned(), report));
        is_complete || incomplete == Incomplete::Remove
    })
}
