//! Tries the limits: reads them where the control group can be seen, and runs into them where it cannot.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::command::selftest::probe::Seen;

/// How a limit shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limited {
    /// The control group says so.
    To(u64),
    /// The kernel put an end to it, at or before the limit.
    Stopped(u64),
    /// It went beyond the limit.
    Beyond(u64),
    /// The control group says that there is none.
    Not,
}

/// The first of these files, of version 2 or of version 1, that can be read.
fn read(files: [&str; 2]) -> Option<Limited> {
    let text = files.iter().find_map(|file| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok())?;
    Some(text.trim().parse().map_or(Limited::Not, Limited::To))
}

/// How many processes there can be. Threads count alike, and need less.
pub fn processes(limit: u64) -> Seen<Limited> {
    if let Some(limited) = read(["pids.max", "pids/pids.max"]) {
        return Ok(limited);
    }
    for count in 0..limit + 8 {
        let started = thread::Builder::new().stack_size(1 << 14).spawn(|| {
            loop {
                thread::park();
            }
        });
        if started.is_err() {
            return Ok(Limited::Stopped(count));
        }
    }
    Ok(Limited::Beyond(limit + 8))
}

/// Room between what is tried and what the machine has.
const SPARE: u64 = 256 << 20;
/// How far beyond the limit is tried.
const MARGIN: u64 = 64 << 20;
const CHUNK: usize = 4 << 20;

/// How much memory there can be.
pub fn memory(limit: u64) -> Seen<Limited> {
    if let Some(limited) = read(["memory.max", "memory/memory.limit_in_bytes"]) {
        return Ok(limited);
    }
    let free = fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let free =
        free.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().split(' ').next()?.parse::<u64>().ok());
    let free = free.ok_or("the kernel does not tell how much memory is free")? << 10;
    if free < limit + MARGIN + SPARE {
        return Err(format!("the machine has {} MiB left, too little to run into the limit", free >> 20));
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let wanted = limit + MARGIN;
    let mut command = Command::new(program);
    command.args(["probe", "memory", &wanted.to_string()]).stdin(Stdio::null());
    let status = command.status().map_err(|error| error.to_string())?;
    match (status.signal(), status.code()) {
        (Some(libc::SIGKILL), _) => Ok(Limited::Stopped(limit)),
        (_, Some(0)) => Ok(Limited::Beyond(wanted)),
        _ => Err(format!("it ended with {status}")),
    }
}

/// Uses up memory, as the first one to be killed for it.
pub fn use_up(bytes: u64) -> ExitCode {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let mut held: Vec<Vec<u8>> = Vec::new();
    for _ in 0..bytes / CHUNK as u64 {
        // Pages that are never written are never had.
        held.push(std::hint::black_box(vec![1; CHUNK]));
    }
    ExitCode::from(u8::from(held.len() as u64 != bytes / CHUNK as u64))
}
