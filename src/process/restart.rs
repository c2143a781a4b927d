//! Starts sandpen again in the same process, after a command that asked for it with its exit code.
//! Everything of the ended sandbox has been removed by then.

#![allow(clippy::disallowed_methods, reason = "executes sandpen itself, with its own arguments")]

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::host::Host;
use crate::vars;

/// A command that always asks for another start is started this often.
const MOST: u32 = 10;

/// Executes sandpen again. Returns only if that is not possible, or was done too often: `None` then.
/// A new copy of the workspace has the id `copy`, with which the command goes on.
pub fn restart(host: &Host, copy: Option<&str>) -> Option<io::Error> {
    let count: u32 = host.env.text(vars::RESTARTS).and_then(|count| count.parse().ok()).unwrap_or(0);
    if count >= MOST {
        return None;
    }
    let program = host.executable.as_ref()?;
    let mut command = Command::new(program.as_path());
    let arguments = std::env::args_os().skip(1);
    match copy {
        Some(id) => command.args(with_copy(arguments, id)).env(vars::WORKSPACE, id),
        None => command.args(arguments),
    };
    command.env(vars::RESTARTS, (count + 1).to_string());
    Some(command.exec())
}

/// Replaces the request for a new copy by the id of the one that was made.
fn with_copy(arguments: impl Iterator<Item = OsString>, id: &str) -> Vec<OsString> {
    let mut is_value = false;
    // Everything after `--` belongs to the command.
    let mut is_command = false;
    let replaced = arguments.map(|argument| {
        let was_value = std::mem::replace(&mut is_value, !is_command && argument == "--workspace");
        is_command |= argument == "--";
        match argument.to_str() {
            Some("copy") if was_value => id.into(),
            Some("--workspace=copy") if !is_command => format!("--workspace={id}").into(),
            _ => argument,
        }
    });
    replaced.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_option_is_replaced() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (before, after) in [
            ("run --workspace copy -- tool --workspace copy", "run --workspace x1 -- tool --workspace copy"),
            ("run --workspace=copy -- true", "run --workspace=x1 -- true"),
            ("run --name copy -- copy", "run --name copy -- copy"),
        ] {
            assert_eq!(with_copy(words(before).into_iter(), "x1"), words(after));
        }
    }
}
