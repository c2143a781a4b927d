//! Starts sandpen again in the same process, after a command that asked for it with its exit code.
//! Everything of the ended sandbox has been removed by then.

#![allow(clippy::disallowed_methods, reason = "executes sandpen itself, with its own arguments")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::host::Host;
use crate::vars;

/// A command that always asks for another start is started this often.
const MOST: u32 = 10;

/// Executes sandpen again. Returns only if that is not possible, or was done too often: `None` then.
pub fn restart(host: &Host) -> Option<io::Error> {
    let count: u32 = host.env.text(vars::RESTARTS).and_then(|count| count.parse().ok()).unwrap_or(0);
    if count >= MOST {
        return None;
    }
    let program = host.executable.as_ref()?;
    let mut command = Command::new(program.as_path());
    command.args(std::env::args_os().skip(1)).env(vars::RESTARTS, (count + 1).to_string());
    Some(command.exec())
}
