//! Finds sandboxes by their records, and removes what killed launchers left, on every engine.

#![allow(clippy::disallowed_methods, reason = "removes containers that killed launchers left")]

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use super::registry::{self, Entry, Record};
use crate::error::{Error, Result};
use crate::facts;
use crate::guard::background_review;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::Client;
use crate::session_id::SessionId;
use crate::ui::Ui;
use crate::ui::suggest::nearest;

/// Removes the directories that killed launchers left, and tells what their sandboxes had left in repositories.
pub fn settle(host: &Host, ui: Ui) {
    for review in registry::sweep(&facts::session_base(host)).reviews {
        review.tell(ui);
    }
}

/// Makes the reviews that wait, for somebody else to read. Nobody sees what this process says.
pub fn review_in_background() -> ExitCode {
    // Nobody is to wait for it, not even to unmount the directory it was started in.
    let _ = rustix::process::chdir("/");
    let Ok(host) = Host::read() else { return ExitCode::FAILURE };
    let base = facts::session_base(&host);
    match background_review::keep(&base, &registry::sweep(&base).reviews) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What is there beyond the sandboxes of this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Left by launchers that were killed: sandboxes, or control groups of theirs.
    pub stale: usize,
    /// Kept on purpose.
    pub kept: usize,
    /// Running now.
    pub running: usize,
}

/// Counts them.
pub fn leftovers(host: &Host) -> Leftovers {
    let entries = registry::all(&facts::session_base(host));
    let count = |wanted: fn(&Entry) -> bool| entries.iter().filter(|entry| wanted(entry)).count();
    let stale = count(Entry::is_stale);
    #[cfg(target_os = "linux")]
    let stale = stale.max(crate::native::stale().len());
    Leftovers { stale, kept: count(Entry::is_kept), running: count(|entry| entry.is_live) }
}

/// Makes sure that nothing stands in the way of a sandbox with a name of the user's choice.
pub fn free_name(host: &Host, id: &SessionId, ui: Ui) -> Result<()> {
    let taken = registry::all(&facts::session_base(host)).into_iter().find(|entry| entry.is_called(id));
    match taken {
        Some(entry) if entry.is_stale() => {
            remove(host, &entry, ui);
            Ok(())
        }
        Some(_) => Err(super::name_taken(id)),
        None => Ok(()),
    }
}

/// How often the engine is asked to remove what a proxy's container used.
const REMOVE_ATTEMPTS: usize = 10;

/// Removes a sandbox that has ended, its container first: what is removed must not lose its record before.
pub fn remove(host: &Host, entry: &Entry, ui: Ui) -> bool {
    if let Some(record) = entry.record.as_ref().filter(|record| ["docker", "podman"].contains(&record.engine.as_str()))
    {
        let client = record.client(&facts::host_path(host));
        registry::until_settled(&record.name, || {
            quietly(&client, &["rm", "--force", &record.name]);
        });
        for words in &record.leftovers {
            // A volume is in use until the engine has removed what used it.
            let _ = (0..REMOVE_ATTEMPTS).any(|_| {
                quietly(&client, words) || {
                    std::thread::sleep(Duration::from_millis(100));
                    false
                }
            });
        }
    }
    let mut reviews = Vec::new();
    let removed = registry::remove(entry, &mut reviews);
    for review in reviews {
        review.tell(ui);
    }
    removed
}

fn quietly(client: &Client, words: &[impl AsRef<std::ffi::OsStr>]) -> bool {
    let Some(program) = &client.program else { return true };
    let status = Command::new(program.as_path())
        .args(words)
        .env("PATH", &client.path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Those that run or are kept, with their records.
pub fn listed(host: &Host) -> Vec<(Entry, Record)> {
    let entries = registry::all(&facts::session_base(host)).into_iter().filter(|entry| !entry.is_stale());
    entries.filter_map(|entry| entry.record.clone().map(|record| (entry, record))).collect()
}

pub fn running(base: &HostPath) -> Vec<Record> {
    registry::all(base).into_iter().filter(|entry| entry.is_live).filter_map(|entry| entry.record).collect()
}

/// A kept sandbox by its id or its name.
pub fn find_kept(host: &Host, id: &str) -> Option<Record> {
    let mut ended = listed(host).into_iter().filter(|(entry, _)| !entry.is_live).map(|(_, record)| record);
    ended.find(|record| record.id == id || record.name == id)
}

/// A live sandbox by its id or its name, or by the start of its id if that is unique.
pub fn find_running(host: &Host, id: &str) -> Result<Record> {
    let records = running(&facts::session_base(host));
    let exact = records.iter().find(|record| record.id == id || record.name == id);
    let mut starting = records.iter().filter(|record| id.len() >= 3 && record.id.starts_with(id));
    if let Some(record) = exact.or_else(|| starting.next().filter(|_| starting.next().is_none())) {
        return Ok(record.clone());
    }
    if let Some(record) = find_kept(host, id) {
        return Err(Error::launch(format!("the sandbox `{}` has ended", record.id))
            .hint("it is kept until `sandpen prune`; its engine's own `cp`, `diff` and `commit` can look into it"));
    }
    let ids: Vec<&str> = records.iter().map(|record| record.id.as_str()).collect();
    let error = Error::launch(format!("no sandbox `{id}` runs"));
    let error = match nearest(id, ids.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    };
    Err(match ids.is_empty() {
        true => error.hint("none runs; `sandpen ps` lists them"),
        false => error.hint(format!("running: {}", ids.join(", "))),
    })
}
