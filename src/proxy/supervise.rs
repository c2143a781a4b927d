//! Runs `sandpen proxy JSON [CMD…]`, the process of a proxy. In a separate container it serves the
//! guest's port, itself or through the user's command; on the host it only makes sure that the
//! user's command ends with sandpen.

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

use super::protocol::ProxyJob;
use crate::process::{Outcome, lock};

/// How long the user's command may take to exit after SIGTERM.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Takes the arguments after `proxy`.
pub fn supervise(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let job = arguments.next().and_then(|json| serde_json::from_str::<ProxyJob>(json.to_str()?).ok());
    let Some(job) = job else { return ExitCode::from(2) };
    match run(job, &arguments.collect::<Vec<_>>()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "sandpen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(job: ProxyJob, argv: &[OsString]) -> io::Result<u8> {
    if job.directory.is_empty() {
        return run_on_host(argv);
    }
    // The directory of the socket is in the control directory, where the launcher's lock is, too.
    if let (true, Some(control_dir)) = (job.owner, Path::new(&job.directory).parent()) {
        lock::exit_when_released(&control_dir.join(lock::OWNER));
    }
    #[cfg(target_os = "linux")]
    return super::sidecar::run(job, argv);
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Ends the command and its process group when the launcher exits, for whatever reason: then this
/// process reads the end of stdin.
fn run_on_host(argv: &[OsString]) -> io::Result<u8> {
    let mut child = start(argv)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        let end = |signal| group.map(|group| rustix::process::kill_process_group(group, signal));
        end(Signal::TERM);
        thread::sleep(GRACE_PERIOD);
        end(Signal::KILL);
        std::process::exit(0);
    });
    let outcome = Outcome::from(child.wait()?);
    // Its own children may have outlived it.
    group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
    Ok(outcome.exit_code())
}

/// Starts the user's command in a new process group. Its stdout goes to stderr, because stdout is
/// for the lines of the protocol.
pub(super) fn start(argv: &[OsString]) -> io::Result<Child> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let stderr = Stdio::from(io::stderr().as_fd().try_clone_to_owned()?);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(stderr).process_group(0);
    command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start `{}`: {error}", program.to_string_lossy())))
}

/// Whether a process listens on this port of the loopback interface.
pub fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), CONNECT_TIMEOUT).is_ok()
}
