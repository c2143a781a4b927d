//! The helper in a Kubernetes pod, which has two containers of the same image. The keeper's first
//! process holds the link to the launcher and the work; the guest's first process starts the command.
//! They speak over a socket in a volume that only the keeper can write. A container of Docker or Podman on
//! another machine has both in one: its first process is the keeper, as root, and starts the other (`alone`).
//!
//! ```text
//! launcher ── kubectl exec ── bridge ── keeper ── guest ── command
//! ```

mod alone;
mod bridge;
mod changes;
mod guest;
mod held_socket;
mod keeper;
mod pump;
mod receive;
mod running;

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How long a process waits for the keeper's socket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// The helper's `main` in a pod, with the arguments after `pod`: the role of the process.
pub fn main(arguments: &[OsString]) -> ExitCode {
    // No process inside may trace this one.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let role = arguments.first().and_then(|role| role.to_str());
    let ended = match role {
        Some("keep") => keeper::run(arguments.get(1..).unwrap_or_default()).map(|()| 0),
        Some("link") => bridge::run().map(|()| 0),
        Some("guest") => guest::connected_to_keeper(),
        Some("alone") => match arguments.get(1).and_then(|json| serde_json::from_str(json.to_str()?).ok()) {
            Some(config) => alone::run(config),
            None => return ExitCode::from(2),
        },
        Some("command") => guest::started_by_keeper(),
        Some("exec") => guest::on_standard_streams(),
        _ => return ExitCode::from(2),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = io::Write::write_all(&mut io::stderr(), format!("sandpen: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Connects to a socket that may not exist yet.
fn connect(socket: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let limit = Instant::now() + timeout;
    loop {
        match UnixStream::connect(socket) {
            Err(_) if Instant::now() < limit => thread::sleep(CONNECT_INTERVAL),
            result => return result,
        }
    }
}
