//! `sandpen ps`: lists running and kept sandboxes as a table, as JSON, or as ids for shell scripts.

mod memory;

use std::time::Duration;

use serde_json::{Value, json};

use memory::Processes;

use super::workspace::waiting;
use crate::cli::Format;
use crate::config::value::{Name, Value as _};
use crate::error::Result;
use crate::facts;
use crate::gate::attach::is_attached;
use crate::host::Host;
use crate::process::Outcome;
use crate::session::cleanup::{self, listed, running};
use crate::session::registry::Entry;
use crate::ui::escape::escape;
use crate::ui::{self, Ui, size};

pub fn run(format: Format, all: bool, only_ids: bool, ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    if only_ids {
        return super::print(ui, &ids(&host));
    }
    cleanup::sweep(&host, ui);
    super::print(ui, &if format == Format::Json { json(&host, all)? } else { table(&host, all) })
}

const MAX_COMMAND_LENGTH: usize = 60;

fn table(host: &Host, all: bool) -> String {
    let mut rows = vec![["ID", "ENGINE", "STATE", "AGE", "MEMORY", "DIRECTORY", "COMMAND"].map(str::to_owned)];
    let processes = Processes::read();
    for (entry, record) in listed(host, all) {
        let state = match record.ended.filter(|_| !entry.is_live) {
            Some(code) => format!("ended ({code})"),
            None if attached(&entry) == Some(true) => "attached".to_owned(),
            None => state(&entry).to_owned(),
        };
        let memory =
            if entry.is_live { processes.memory(&entry, &record).map_or("?".into(), size) } else { "-".into() };
        let command = if record.command.is_empty() { "(shell)".into() } else { record.command.join(" ") };
        let command: String = command.chars().take(MAX_COMMAND_LENGTH).collect();
        let age = age(record.age());
        rows.push([record.id, record.engine, state, age, memory, record.directory, command]);
    }
    let running: Vec<String> = rows.iter().map(|row| row[0].clone()).collect();
    for copy in waiting(host).into_iter().filter(|copy| !running.contains(&copy.id)) {
        let command: String = copy.command.join(" ").chars().take(MAX_COMMAND_LENGTH).collect();
        let (age, directory) = (age(Duration::from_secs(copy.age())), copy.workdir.display().to_string());
        rows.push([copy.id, copy.engine, "kept".into(), age, "-".into(), directory, command]);
    }
    let width = |column: usize| rows.iter().map(|row| escape(&row[column]).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{:width$}  ", escape(cell)));
        }
        text.push_str(&escape(&row[6]));
        text.push('\n');
    }
    text
}

fn json(host: &Host, all: bool) -> Result<String> {
    let processes = Processes::read();
    let waiting = waiting(host);
    let object = |entry: &Entry| -> Option<Value> {
        let record = entry.record.as_ref()?;
        Some(json!({
            "id": record.id, "name": record.name, "engine": record.engine, "image": record.image, "command": record.command,
            "directory": record.directory, "age": record.age().as_secs(), "state": state(entry), "attached": attached(entry), "exit_code": record.ended, "changes": waiting.iter().any(|copy| copy.id == record.id),
            "memory": entry.is_live.then(|| processes.memory(entry, record)).flatten(),
            "pid": entry.is_live.then_some(record.owner.pid),
        }))
    };
    let mut records: Vec<Value> = listed(host, all).iter().filter_map(|(entry, _)| object(entry)).collect();
    let known: Vec<Value> = records.iter().map(|record| record["id"].clone()).collect();
    let kept = waiting.iter().filter(|copy| !known.contains(&json!(copy.id))).map(|copy| {
        json!({
            "id": copy.id, "name": null, "engine": copy.engine, "image": null, "command": copy.command,
            "directory": copy.workdir.to_string_lossy(), "age": copy.age(), "state": "kept", "attached": null,
            "exit_code": null, "changes": true, "memory": null, "pid": null,
        })
    });
    records.extend(kept);
    ui::json(&records)
}

/// Returns the ids of the running sandboxes, one per line.
fn ids(host: &Host) -> String {
    let ids = running(&facts::session_base(host)).into_iter().map(|record| record.id);
    // Shells split and expand the output, so an id that is no valid name is left out.
    ids.filter(|id| Name::parse(id).is_ok()).map(|id| id + "\n").collect()
}

/// Tells whether a terminal is attached to a detached sandbox; `None` for others.
fn attached(entry: &Entry) -> Option<bool> {
    let is_detached = entry.record.as_ref().is_some_and(|record| record.detached);
    (is_detached && entry.is_live).then(|| is_attached(entry.path.as_path()))
}

fn state(entry: &Entry) -> &'static str {
    let is_detached = entry.record.as_ref().is_some_and(|record| record.detached);
    match (entry.is_live, is_detached) {
        (true, true) if attached(entry) == Some(false) => "detached",
        (true, _) => "running",
        (false, _) => "ended",
    }
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}
