//! `sandpen stop`: sends SIGTERM to launchers, which stop their sandboxes and clean up. Those that do
//! not exit in time get a second one, so that they kill their guests; a launcher that does not exit
//! then either is killed.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::Result;
use crate::facts;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::Outcome;
use crate::session::cleanup;
use crate::session::registry::Record;
use crate::ui::Ui;
use crate::ui::progress::Progress;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a launcher is asked to kill its guest: two signals that come at once count as one.
const REPEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long a launcher may take to kill its guest and to clean up. It waits 15 s for an engine.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Bounds the wait for a killed launcher to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

pub fn run(ids: &[String], all: bool, time: Duration, ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    let base = facts::session_base(&host);
    let mut records = if all { cleanup::running(&base) } else { Vec::new() };
    for id in ids {
        match cleanup::find_kept(&host, id) {
            Some(record) => ui.notice(&format!("{} has already exited; `sandpen prune` removes it", record.id)),
            None => records.push(cleanup::find_running(&host, id)?),
        }
    }
    signal_launchers(&records, Signal::TERM);
    await_exit(&base, &mut records, time, ui);
    for record in &records {
        ui.notice(&format!("{} did not exit within {} s, killing it", record.id, time.as_secs()));
    }
    // A second SIGTERM lets a launcher kill its guest, record the end and clean up.
    let limit = Instant::now() + END_TIMEOUT;
    while !records.is_empty() && Instant::now() < limit {
        signal_launchers(&records, Signal::TERM);
        await_exit(&base, &mut records, REPEAT_INTERVAL, ui);
    }
    signal_launchers(&records, Signal::KILL);
    await_exit(&base, &mut records, KILL_TIMEOUT, ui);
    cleanup::sweep(&host, ui);
    Ok(Outcome::Exited(0))
}

/// Waits until the launchers have exited, and leaves those that have not.
fn await_exit(base: &HostPath, records: &mut Vec<Record>, timeout: Duration, ui: Ui) {
    let limit = Instant::now() + timeout;
    while let Some(record) = records.first() {
        let progress = Progress::start(ui, format!("{} to exit", record.id));
        while cleanup::is_live(base, record) && Instant::now() < limit {
            std::thread::sleep(POLL_INTERVAL);
        }
        drop(progress);
        records.retain(|record| cleanup::is_live(base, record));
        if Instant::now() >= limit {
            return;
        }
    }
}

fn signal_launchers(records: &[Record], signal: Signal) {
    for pid in records.iter().filter_map(|record| Pid::from_raw(i32::try_from(record.owner.pid).ok()?)) {
        // It fails if the launcher has exited meanwhile.
        let _ = kill_process(pid, signal);
    }
}
