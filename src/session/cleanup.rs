//! Finds sandboxes by their records, and removes what killed launchers left behind, on every
//! engine.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::detached::screen_of;
use super::directory;
use super::end_calls::remove_with_retries;
use super::error::SessionError;
use super::kubernetes;
use super::registry::{self, Entry, Incomplete, Record, SweepResult};
use super::remote::Recovered;
use super::remote_container;
use crate::error::{Diagnostic, Kind, Result};
use crate::facts;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::CallResult;
use crate::process::bounded_work::BoundedWork;
use crate::session_id::SessionId;
use crate::ui::Ui;
use crate::ui::suggest::nearest;

/// How long an engine may take to remove a container.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether a launcher has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The fewest characters by which an id can be abbreviated.
const MIN_ID_PREFIX: usize = 3;

/// Why a sandbox cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("the sandbox `{0}` has ended")]
    Ended(String),
    #[error("no running sandbox is named `{id}`")]
    NotFound { id: String, nearest: Option<String>, running: Vec<String> },
}

impl Diagnostic for LookupError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            LookupError::Ended(_) => {
                vec![
                    "it is kept until `sandpen prune`; use the engine's `cp`, `diff` or `commit` to look into it"
                        .into(),
                ]
            }
            LookupError::NotFound { nearest, running, .. } => {
                let running = if running.is_empty() {
                    "no sandboxes are running; `sandpen ps` lists them".to_owned()
                } else {
                    format!("running: {}", running.join(", "))
                };
                nearest.iter().map(|near| format!("did you mean `{near}`?")).chain([running]).collect()
            }
        }
    }
}

/// Removes the directories that killed launchers left, after an exchange with the host's
/// repositories, and prints what came out.
pub fn sweep(host: &Host, ui: Ui) {
    let _work = BoundedWork::begin_without_signals();
    registry::sweep(&facts::session_base(host)).print(ui);
    bring_from_elsewhere(host, ui);
}

/// Brings home what the guests of killed launchers changed on other machines.
pub fn bring_from_elsewhere(host: &Host, ui: Ui) {
    let left = registry::all(&facts::session_base(host)).into_iter().filter(Entry::is_stale);
    for entry in left {
        let Some(record) = entry.record.as_ref().filter(|record| record.is_elsewhere()) else { continue };
        let is_done =
            || recover(host, &entry, record, ui) != Recovered::Later && remove_elsewhere(host, &entry, record);
        directory::remove_stale(&entry.path, is_done);
    }
}

fn recover(host: &Host, entry: &Entry, record: &Record, ui: Ui) -> Recovered {
    let client = record.client(&facts::host_path(host));
    match &record.pod {
        Some(pod) => kubernetes::recover(&client, &record.name, pod, &entry.path, ui),
        None => remote_container::recover(&client, &record.name, &entry.path, ui),
    }
}

/// Removes a container on another machine; a pod is gone when its work is there.
fn remove_elsewhere(host: &Host, entry: &Entry, record: &Record) -> bool {
    record.pod.is_some() || remove_container(host, entry, record)
}

/// Counts of sandboxes, for `doctor`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Left by launchers that were killed: sandboxes, or their control groups.
    pub stale: usize,
    /// Kept with `run --keep`.
    pub kept: usize,
    pub running: usize,
}

pub fn leftovers(host: &Host) -> Leftovers {
    let entries = registry::all(&facts::session_base(host));
    let count = |wanted: fn(&Entry) -> bool| entries.iter().filter(|entry| wanted(entry)).count();
    let stale = count(Entry::is_stale);
    #[cfg(target_os = "linux")]
    let stale = stale.max(crate::native::stale().len());
    Leftovers { stale, kept: count(Entry::is_kept), running: count(|entry| entry.is_live) }
}

/// Fails if a sandbox that is running or kept has the name; removes a stale one.
pub fn free_name(host: &Host, id: &SessionId, ui: Ui) -> Result<()> {
    let namesake = registry::all(&facts::session_base(host)).into_iter().find(|entry| entry.has_id(id));
    match namesake {
        Some(entry) if (entry.is_stale() || entry.has_ended()) && remove(host, &entry, Incomplete::Keep, ui) => Ok(()),
        Some(_) => Err(SessionError::NameTaken(id.clone()).into()),
        None => Ok(()),
    }
}

/// Removes a sandbox that has ended; returns whether it did. The container goes first: without its
/// record it could not be found any more.
pub fn remove(host: &Host, entry: &Entry, incomplete: Incomplete, ui: Ui) -> bool {
    if let Some(record) = entry.record.as_ref().filter(|record| record.is_elsewhere()) {
        let recovered = recover(host, entry, record, ui);
        if recovered == Recovered::Later && incomplete == Incomplete::Keep {
            return false;
        }
        if let (Recovered::Later, Some(pod)) = (recovered, &record.pod)
            && !kubernetes::delete_recorded(&record.client(&facts::host_path(host)), &record.name, pod)
        {
            ui.warn(&format!("the cluster does not answer: the pod `{}` is not deleted", record.name));
            return false;
        }
    }
    if let Some(record) = entry.record.as_ref().filter(|record| ["docker", "podman"].contains(&record.engine.as_str()))
        && !remove_container(host, entry, record)
    {
        ui.warn(&format!("{} does not answer: the sandbox `{}` is not removed", record.engine, record.id));
        return false;
    }
    let mut result = SweepResult::default();
    let is_removed = registry::remove(entry, incomplete, &mut result.reports);
    result.print(ui);
    is_removed
}

/// Removes the container and what its proxy used; returns whether the engine answered.
fn remove_container(host: &Host, entry: &Entry, record: &Record) -> bool {
    let client = record.client(&facts::host_path(host));
    // Without `--time`, Podman waits ten seconds for a guest that ignores SIGTERM.
    let force: &[&str] =
        if record.engine == "podman" { &["--force", "--time", "0"] } else { &["--force", "--volumes"] };
    let words = || ["rm"].iter().chain(force).copied().chain([record.name.as_str()]).map(OsString::from);
    let arguments = || client.pin().into_iter().chain(words());
    let remove = || client.run_quietly(arguments(), REMOVE_TIMEOUT);
    registry::finish_calls(&mut entry.clone())
        && registry::repeat_while_in_use(&record.name, remove) != CallResult::TimedOut
        && (client.program.is_none()
            || record.leftovers.iter().all(|arguments| remove_with_retries(&client, arguments)))
}

/// Returns the exit code and the last screen of a detached sandbox that has ended.
pub fn find_ended(host: &Host, id: &str) -> Option<(u8, String)> {
    let mut ended = registry::all(&facts::session_base(host)).into_iter().filter(Entry::has_ended);
    let is_it = |record: &Record| {
        record.id == id || record.name == id || id.len() >= MIN_ID_PREFIX && record.id.starts_with(id)
    };
    let entry = ended.find(|entry| entry.record.as_ref().is_some_and(is_it))?;
    Some((entry.record.as_ref()?.ended?, screen_of(&entry.path)))
}

/// Lists the sandboxes that are running or kept, and on request detached ones that have ended.
pub fn listed(host: &Host, includes_ended: bool) -> Vec<(Entry, Record)> {
    let entries = registry::all(&facts::session_base(host)).into_iter();
    let entries = entries.filter(|entry| !entry.is_stale() && (includes_ended || !entry.has_ended()));
    entries.filter_map(|entry| entry.record.clone().map(|record| (entry, record))).collect()
}

pub fn running(base: &HostPath) -> Vec<Record> {
    registry::all(base).into_iter().filter(|entry| entry.is_live).filter_map(|entry| entry.record).collect()
}

/// Waits until the launcher of a sandbox has exited, or for some time.
pub fn await_end(host: &Host, record: &Record, timeout: Duration) {
    let base = facts::session_base(host);
    let limit = Instant::now() + timeout;
    while is_live(&base, record) && Instant::now() < limit {
        std::thread::sleep(EXIT_POLL_INTERVAL);
    }
}

/// Returns whether the launcher of a sandbox is running.
pub fn is_live(base: &HostPath, record: &Record) -> bool {
    running(base).iter().any(|other| other.owner == record.owner)
}

/// Finds a kept sandbox by its id or its name.
pub fn find_kept(host: &Host, id: &str) -> Option<Record> {
    let mut ended = listed(host, true).into_iter().filter(|(entry, _)| !entry.is_live).map(|(_, record)| record);
    ended.find(|record| record.id == id || record.name == id)
}

/// Finds a running sandbox by its id or its name, or by the start of its id if that is unique.
pub fn find_running(host: &Host, id: &str) -> Result<Record> {
    let records = running(&facts::session_base(host));
    let exact = records.iter().find(|record| record.id == id || record.name == id);
    let mut starting = records.iter().filter(|record| id.len() >= MIN_ID_PREFIX && record.id.starts_with(id));
    if let Some(record) = exact.or_else(|| starting.next().filter(|_| starting.next().is_none())) {
        return Ok(record.clone());
    }
    if let Some(record) = find_kept(host, id) {
        return Err(LookupError::Ended(record.id).into());
    }
    let running: Vec<String> = records.into_iter().map(|record| record.id).collect();
    let nearest = nearest(id, running.iter().map(String::as_str)).map(ToString::to_string);
    Err(LookupError::NotFound { id: id.to_owned(), nearest, running }.into())
}
