//! `sandpen proxy JSON [CMD…]`: stays with a proxy from its start to its end. In a container of its own it gets the guest's port
//! and serves it, itself or through the user's command; on the host it only sees to it that the user's command ends with sandpen.

#![allow(clippy::disallowed_methods, reason = "starts the user's proxy")]

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::config::value::HostRule;
use crate::plan::CONTROL_DIR;
use crate::process::{Outcome, lock};

/// How long the user's command may take to end.
const GRACE: Duration = Duration::from_secs(2);

/// What is to be done, as JSON in the first argument; the rest is the user's command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyJob {
    /// Where the guest's port is handed over; empty on the host.
    pub directory: String,
    /// What sandpen's own proxy allows; absent when the user's command decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<HostRule>>,
    /// Whether the launcher's lock can be watched.
    pub owner: bool,
    /// How many seconds the user's command may take to listen.
    pub timeout: u64,
}

/// The arguments after `proxy`.
pub fn supervise(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let attendance = arguments.next().and_then(|json| serde_json::from_str::<ProxyJob>(json.to_str()?).ok());
    let Some(attendance) = attendance else { return ExitCode::from(2) };
    match run(attendance, &arguments.collect::<Vec<_>>()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "sandpen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(attendance: ProxyJob, words: &[OsString]) -> io::Result<u8> {
    if attendance.directory.is_empty() {
        return on_the_host(words);
    }
    if attendance.owner {
        lock::exit_when_released(&Path::new(CONTROL_DIR).join(lock::OWNER));
    }
    #[cfg(target_os = "linux")]
    return super::sidecar::run(attendance, words);
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Ends the command, and all it started, when the launcher is gone: its end of stdin closes, however it went.
fn on_the_host(words: &[OsString]) -> io::Result<u8> {
    let mut child = start(words)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        let end = |signal| group.map(|group| rustix::process::kill_process_group(group, signal));
        end(Signal::TERM);
        thread::sleep(GRACE);
        end(Signal::KILL);
        std::process::exit(0);
    });
    let code = Outcome::from(child.wait()?).exit_code();
    // What it started beside itself is not left behind.
    group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
    Ok(code)
}

/// The user's command, in a process group of its own. stdout is ours.
pub(super) fn start(words: &[OsString]) -> io::Result<Child> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let stderr = Stdio::from(io::stderr().as_fd().try_clone_to_owned()?);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(stderr).process_group(0);
    command.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("`{}` cannot be started: {error}", program.to_string_lossy()))
    })
}

/// Whether anybody listens on this machine's loopback.
pub fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_millis(250)).is_ok()
}
