//! `sandpen stop`: sends SIGTERM to launchers, which stop their sandboxes and clean up, and kills the
//! launchers that do not exit in time.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::Result;
use crate::facts;
use crate::host::Host;
use crate::process::Outcome;
use crate::session::cleanup;
use crate::session::registry::Record;
use crate::ui::Ui;
use crate::ui::progress::Progress;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
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
    for record in &records {
        signal_launcher(record, Signal::TERM);
    }
    let limit = Instant::now() + time;
    let is_live = |record: &Record| cleanup::is_live(&base, record);
    for record in &records {
        let progress = Progress::start(ui, format!("{} to exit", record.id));
        while is_live(record) && Instant::now() < limit {
            std::thread::sleep(POLL_INTERVAL);
        }
        drop(progress);
        if is_live(record) {
            ui.notice(&format!("{} did not exit within {} s, killing it", record.id, time.as_secs()));
            signal_launcher(record, Signal::KILL);
            while is_live(record) && Instant::now() < limit + KILL_TIMEOUT {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
    cleanup::sweep(&host, ui);
    Ok(Outcome::Exited(0))
}

fn signal_launcher(record: &Record, signal: Signal) {
    if let Some(pid) = i32::try_from(record.owner.pid).ok().and_then(Pid::from_raw) {
        // It fails if the launcher has exited meanwhile.
        let _ = kill_process(pid, signal);
    }
}
