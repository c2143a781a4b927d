//! The sandboxes that run or are kept: `ps`, `exec`, `stop`, `prune`. Over all engines together, from the records their launchers
//! keep.

#![allow(clippy::disallowed_methods, reason = "removes containers that killed launchers left")]

mod list;
mod memory;

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::engine::Client;
use crate::error::{Error, Result};
use crate::facts;
use crate::guard::later;
use crate::guest::Duties;
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::{EngineKind, PEN, SessionId};
use crate::session::registry::{self, Entry, Record};
use crate::session::{self, Outcome};
use crate::suggest::nearest;
use crate::ui::Ui;
use crate::waiting::Waiting;

pub use list::{ids, json, table};

/// Runs a command in a running sandbox, behind the same walls as its first process.
pub fn exec(host: &Host, id: &str, command: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    let record = find(host, id)?;
    if record.engine == "native" {
        #[cfg(target_os = "linux")]
        return session::enter_native(&record, command, ui);
    }
    if record.engine == EngineKind::SandboxExec.name() {
        return session::enter_seatbelt(host, &facts::session_base(host).join(&record.id), command, ui);
    }
    let mut argv: Vec<OsString> = vec![record.engine.clone().into(), "exec".into(), "--interactive".into()];
    if host.terminal.stdin && host.terminal.stdout {
        argv.push("--tty".into());
    }
    argv.extend(["--workdir".into(), record.directory.clone().into()]);
    if let Some((uid, gid)) = record.user {
        argv.extend(["--user".into(), format!("{uid}:{gid}").into()]);
    }
    argv.push(record.name.clone().into());
    if record.has_helper {
        // Through the helper, so that the same filter stands in front of it as of the first command.
        let duties = serde_json::to_string(&Duties { further: true, ..Duties::default() }).unwrap_or_default();
        argv.extend([format!("{PEN}/sandpen").into(), "guest".into(), duties.into()]);
        argv.extend(command);
    } else {
        argv.extend(if command.is_empty() { vec!["sh".into()] } else { command });
    }
    session::attach(&record.client(&facts::host_path(host)), &argv)
}

/// Ends sandboxes through their launchers, which clean up; those that do not end in time are killed.
pub fn stop(host: &Host, ids: &[String], all: bool, time: Duration, ui: Ui) -> Result<()> {
    let base = facts::session_base(host);
    let mut records = if all { live(&base) } else { Vec::new() };
    for id in ids {
        match kept(host, id) {
            Some(record) => ui.notice(&format!("{} has ended already; `sandpen prune` removes it", record.id)),
            None => records.push(find(host, id)?),
        }
    }
    let signal = |record: &Record, signal| {
        i32::try_from(record.owner.pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal))
    };
    for record in &records {
        signal(record, Signal::TERM);
    }
    let limit = Instant::now() + time;
    let is_live = |record: &Record| live(&base).iter().any(|other| other.owner == record.owner);
    for record in &records {
        let waiting = Waiting::for_(ui, format!("{} to end", record.id));
        while is_live(record) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(waiting);
        if is_live(record) {
            ui.notice(&format!("{} did not end within {} s and is killed", record.id, time.as_secs()));
            signal(record, Signal::KILL);
            while is_live(record) && Instant::now() < limit + Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    settle(host, ui);
    Ok(())
}

/// Removes the directories that killed launchers left, and tells what their sandboxes had left in repositories.
pub fn settle(host: &Host, ui: Ui) {
    for review in registry::sweep(&facts::session_base(host)).reviews {
        review.tell(ui);
    }
}

/// Makes the reviews that wait, for somebody else to read. Nobody sees what this process says.
pub fn review_in_silence() -> ExitCode {
    // Nobody is to wait for it, not even to unmount the directory it was started in.
    let _ = rustix::process::chdir("/");
    let Ok(host) = Host::read() else { return ExitCode::FAILURE };
    let base = facts::session_base(&host);
    match later::keep(&base, &registry::sweep(&base).reviews) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Removes what killed launchers left, directories and containers, and what was kept.
pub fn prune(host: &Host, ui: Ui) {
    let base = facts::session_base(host);
    let ended: Vec<Entry> = registry::all(&base).into_iter().filter(|entry| !entry.is_live).collect();
    let (kept, stale): (Vec<Entry>, Vec<Entry>) = ended.into_iter().partition(Entry::is_kept);
    let removed = |entries: &[Entry]| entries.iter().filter(|entry| remove(host, entry, ui)).count();
    let (kept, stale) = (removed(&kept), removed(&stale));
    #[cfg(target_os = "linux")]
    let stale = stale + crate::engine::native::remove_stale();
    ui.notice(&format!("{stale} leftover{} removed", if stale == 1 { "" } else { "s" }));
    if kept > 0 {
        ui.notice(&format!("{kept} kept sandbox{} removed", if kept == 1 { "" } else { "es" }));
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
    let stale = stale.max(crate::engine::native::stale().len());
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
        Some(_) => Err(session::name_taken(id)),
        None => Ok(()),
    }
}

/// How often the engine is asked to remove what a proxy's container used.
const PATIENCE: usize = 10;

/// Removes a sandbox that has ended, its container first: what is removed must not lose its record before.
fn remove(host: &Host, entry: &Entry, ui: Ui) -> bool {
    if let Some(record) = entry.record.as_ref().filter(|record| ["docker", "podman"].contains(&record.engine.as_str()))
    {
        let client = record.client(&facts::host_path(host));
        registry::until_settled(&record.name, || {
            quietly(&client, &["rm", "--force", &record.name]);
        });
        for words in &record.leftovers {
            // A volume is in use until the engine has removed what used it.
            let _ = (0..PATIENCE).any(|_| {
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
fn listed(host: &Host) -> Vec<(Entry, Record)> {
    let entries = registry::all(&facts::session_base(host)).into_iter().filter(|entry| !entry.is_stale());
    entries.filter_map(|entry| entry.record.clone().map(|record| (entry, record))).collect()
}

fn live(base: &HostPath) -> Vec<Record> {
    registry::all(base).into_iter().filter(|entry| entry.is_live).filter_map(|entry| entry.record).collect()
}

/// A kept sandbox by its id or its name.
fn kept(host: &Host, id: &str) -> Option<Record> {
    let mut ended = listed(host).into_iter().filter(|(entry, _)| !entry.is_live).map(|(_, record)| record);
    ended.find(|record| record.id == id || record.name == id)
}

/// A live sandbox by its id or its name, or by the start of its id if that is unique.
fn find(host: &Host, id: &str) -> Result<Record> {
    let records = live(&facts::session_base(host));
    let exact = records.iter().find(|record| record.id == id || record.name == id);
    let mut starting = records.iter().filter(|record| id.len() >= 3 && record.id.starts_with(id));
    if let Some(record) = exact.or_else(|| starting.next().filter(|_| starting.next().is_none())) {
        return Ok(record.clone());
    }
    if let Some(record) = kept(host, id) {
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
