//! Reads the limits of the control group where it is visible, and tries to exceed them where it is
//! not.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use serde::{Deserialize, Serialize};

use super::ProbeOutcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The control group has this limit.
    Set(u64),
    /// The kernel stopped the probe at this value.
    Stopped(u64),
    /// The probe reached this value, above the limit.
    Exceeded(u64),
    /// The control group has no limit.
    None,
}

/// Reads the control group's file of version 2 or, if there is none, of version 1.
fn read(files: [&str; 2]) -> Option<Limit> {
    let text = files.iter().find_map(|file| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok())?;
    Some(text.trim().parse().map_or(Limit::None, Limit::Set))
}

/// Starts threads until the kernel refuses: it counts them like processes, and they are cheaper.
pub fn processes(limit: u64) -> ProbeOutcome<Limit> {
    if let Some(found) = read(["pids.max", "pids/pids.max"]) {
        return Ok(found);
    }
    for count in 0..limit + 8 {
        let started = thread::Builder::new().stack_size(1 << 14).spawn(|| {
            loop {
                thread::park();
            }
        });
        if started.is_err() {
            return Ok(Limit::Stopped(count));
        }
    }
    Ok(Limit::Exceeded(limit + 8))
}

/// Memory that must stay free on the machine while the limit is tested.
const SPARE: u64 = 256 << 20;
/// The probe allocates this much more than the limit.
const MARGIN: u64 = 64 << 20;
const CHUNK: usize = 4 << 20;

/// Allocates more than the limit in a child process, which the kernel must kill.
pub fn memory(limit: u64) -> ProbeOutcome<Limit> {
    if let Some(found) = read(["memory.max", "memory/memory.limit_in_bytes"]) {
        return Ok(found);
    }
    let free = fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let free =
        free.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().split(' ').next()?.parse::<u64>().ok());
    let free = free.ok_or("/proc/meminfo has no MemAvailable")? << 10;
    if free < limit + MARGIN + SPARE {
        return Err(format!("only {} MiB are free on the machine, too little to reach the limit", free >> 20));
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let wanted = limit + MARGIN;
    let mut command = Command::new(program);
    command.args(["probe", "memory", &wanted.to_string()]).stdin(Stdio::null());
    let status = command.status().map_err(|error| error.to_string())?;
    match (status.signal(), status.code()) {
        (Some(libc::SIGKILL), _) => Ok(Limit::Stopped(limit)),
        (_, Some(0)) => Ok(Limit::Exceeded(wanted)),
        _ => Err(format!("the child process ended with {status}")),
    }
}

/// Runs in the child process, which asks to be the first that the kernel kills.
pub fn allocate(bytes: u64) -> ExitCode {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let mut held: Vec<Vec<u8>> = Vec::new();
    for _ in 0..bytes / CHUNK as u64 {
        // The kernel allocates only pages that are written.
        held.push(std::hint::black_box(vec![1; CHUNK]));
    }
    ExitCode::from(u8::from(held.len() as u64 != bytes / CHUNK as u64))
}
