//! The sandboxes that run: `ps`, `exec`, `stop`, `prune`. Over all engines together, from the records their launchers keep.

#![allow(clippy::disallowed_methods, reason = "removes containers that killed launchers left")]

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::engine::Client;
use crate::error::{Error, Result};
use crate::escape::{escape, escape_json};
use crate::facts;
use crate::guest::Duties;
use crate::host::Host;
use crate::plan::PEN;
use crate::session::registry::{self, Entry, Record};
use crate::session::{self, Outcome};
use crate::suggest::nearest;
use crate::ui::Ui;

/// The live sandboxes as a table.
pub fn table(host: &Host) -> String {
    let mut rows = vec![["ID", "ENGINE", "AGE", "MEMORY", "DIRECTORY", "COMMAND"].map(str::to_owned)];
    for record in live(host) {
        let memory = memory(&record).map_or("?".into(), size);
        let command = if record.command.is_empty() { "(shell)".into() } else { record.command.join(" ") };
        let command: String = command.chars().take(60).collect();
        rows.push([
            record.id.clone(),
            record.engine.clone(),
            age(record.age()),
            memory,
            record.directory.clone(),
            command,
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| escape(&row[column]).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{:width$}  ", escape(cell)));
        }
        text.push_str(&escape(&row[5]));
        text.push('\n');
    }
    text
}

/// The live sandboxes as JSON.
pub fn json(host: &Host) -> String {
    let records: Vec<_> = live(host)
        .into_iter()
        .map(|record| {
            json!({
                "id": record.id, "name": record.name, "engine": record.engine, "image": record.image, "command": record.command,
                "directory": record.directory, "age": record.age().as_secs(), "state": "running", "memory": memory(&record),
                "pid": record.owner.pid,
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&records).unwrap_or_else(|_| "[]".into());
    format!("{}\n", escape_json(&text))
}

/// Runs a command in a running sandbox, behind the same walls as its first process.
pub fn exec(host: &Host, id: &str, command: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    let record = find(host, id)?;
    if record.engine == "native" {
        #[cfg(target_os = "linux")]
        return session::enter_native(&record, command, ui);
    }
    let _ = ui;
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
    let records = match all {
        true => live(host),
        false => ids.iter().map(|id| find(host, id)).collect::<Result<_>>()?,
    };
    let signal = |record: &Record, signal| {
        i32::try_from(record.owner.pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal))
    };
    for record in &records {
        signal(record, Signal::TERM);
    }
    let limit = Instant::now() + time;
    let is_live = |record: &Record| live(host).iter().any(|other| other.id == record.id);
    for record in &records {
        while is_live(record) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_live(record) {
            ui.notice(&format!("{} did not end within {} s and is killed", record.id, time.as_secs()));
            signal(record, Signal::KILL);
            while is_live(record) && Instant::now() < limit + Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    session::registry::sweep(&facts::session_base(host));
    Ok(())
}

/// Removes what killed launchers left: directories, and containers that are still there.
pub fn prune(host: &Host, ui: Ui) -> usize {
    let base = facts::session_base(host);
    let stale: Vec<Entry> = registry::all(&base).into_iter().filter(|entry| !entry.is_live).collect();
    for record in stale.iter().filter_map(|entry| entry.record.as_ref()).filter(|record| record.engine != "native") {
        remove_container(&record.client(&facts::host_path(host)), &record.name);
    }
    let removed = registry::sweep(&base);
    #[cfg(target_os = "linux")]
    let removed = removed + crate::engine::native::remove_stale();
    ui.notice(&format!("{removed} leftover{} removed", if removed == 1 { "" } else { "s" }));
    removed
}

fn remove_container(client: &Client, name: &str) {
    let Some(program) = &client.program else { return };
    let _ = Command::new(program.as_path())
        .args(["rm", "--force", name])
        .env("PATH", &client.path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn live(host: &Host) -> Vec<Record> {
    registry::all(&facts::session_base(host))
        .into_iter()
        .filter(|entry| entry.is_live)
        .filter_map(|entry| entry.record)
        .collect()
}

/// A live sandbox by its id or its name, or by the start of its id if that is unique.
fn find(host: &Host, id: &str) -> Result<Record> {
    let records = live(host);
    let exact = records.iter().find(|record| record.id == id || record.name == id);
    let mut starting = records.iter().filter(|record| id.len() >= 3 && record.id.starts_with(id));
    if let Some(record) = exact.or_else(|| starting.next().filter(|_| starting.next().is_none())) {
        return Ok(record.clone());
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

/// What a native sandbox's processes hold: those of the launcher's descendants. A container's are not its descendants, and asking
/// the engine would cost a call for each.
fn memory(record: &Record) -> Option<u64> {
    if record.engine != "native" {
        return None;
    }
    let processes: Vec<(u32, u32)> =
        std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| parent(&entry.path())).collect();
    let mut family = vec![record.owner.pid];
    let mut at = 0;
    while let Some(pid) = family.get(at).copied() {
        family.extend(processes.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
        at += 1;
    }
    Some(family.iter().skip(1).filter_map(|pid| resident(*pid)).sum())
}

fn parent(process: &Path) -> Option<(u32, u32)> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    Some((pid, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
}

fn resident(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{}k", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{}m", bytes >> 20),
        _ => format!("{:.1}g", bytes as f64 / 1_073_741_824.0),
    }
}
