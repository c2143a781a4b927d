//! Starts a sandbox in another process, which stays when the caller returns. It has a terminal to
//! which `sandpen attach` connects, and leaves its exit code and its last screen.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, WaitOptions, ioctl_tiocsctty, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::Streams;
use super::error::SessionError;
use crate::error::Result;
use crate::gate::attach::AttachServer;
use crate::gate::terminal::Pty;
use crate::host::{Host, ProcessStamp};
use crate::launch::Launch;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::process::{Outcome, socket_path};
use crate::ui::Ui;

/// The socket that `sandpen attach` connects to, in the session's directory.
const SOCKET: &str = "attach";
/// The file with the last screen, in the session's directory.
const SCREEN: &str = "screen";
/// The size of the terminal until a client attaches.
const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

/// Returns the socket of a session.
pub fn socket_of(session: &HostPath) -> HostPath {
    session.join(SOCKET)
}

/// Reads the last screen of a session that has ended.
pub fn screen_of(session: &HostPath) -> String {
    fs::read_to_string(session.join(SCREEN).as_path()).unwrap_or_default()
}

/// Starts a sandbox, prints its id and returns. If it does not start, returns its outcome.
pub fn detach(host: &Host, plan: &Plan, launch: &Launch, ui: Ui) -> Result<Outcome> {
    if let Launch::Seatbelt(_) = launch {
        return Err(SessionError::DetachSeatbelt.into());
    }
    let (read, write) = io::pipe().map_err(SessionError::Detach)?;
    // SAFETY: sandpen has one thread before it launches, so the child may use everything.
    match unsafe { libc::fork() } {
        -1 => Err(SessionError::Detach(io::Error::last_os_error()).into()),
        0 => {
            drop(read);
            run(host, plan, launch, write.into(), ui)
        }
        child => {
            drop(write);
            await_start(read.into(), child, plan, ui)
        }
    }
}

fn fork_failed(errno: rustix::io::Errno) -> SessionError {
    SessionError::Detach(errno.into())
}

/// Waits until the launcher has started the command or has ended.
fn await_start(read: OwnedFd, child: i32, plan: &Plan, ui: Ui) -> Result<Outcome> {
    if File::from(read).read(&mut [0]).is_ok_and(|count| count > 0) {
        ui.data(&format!("{}\n", plan.id))?;
        return Ok(Outcome::Exited(0));
    }
    let status = waitpid(Pid::from_raw(child), WaitOptions::empty()).map_err(fork_failed)?;
    Ok(status.map_or(Outcome::Exited(1), |(_, status)| Outcome::from_wait(status)))
}

/// Runs the sandbox in the child.
fn run(host: &Host, plan: &Plan, launch: &Launch, started: OwnedFd, ui: Ui) -> Result<Outcome> {
    rustix::process::setsid().map_err(fork_failed)?;
    let null = File::open("/dev/null").map_err(SessionError::Detach)?;
    dup2_stdin(&null).map_err(fork_failed)?;
    let host = Host { process: ProcessStamp::current(), ..host.clone() };
    let streams = Streams::Detached(Detached {
        started: Some(started.into()),
        session: plan.session_dir.clone(),
        has_terminal: false,
    });
    super::run_with(&host, plan, launch, ui, streams, || ()).map(|(outcome, ())| outcome)
}

/// A terminal that clients of `sandpen attach` connect to.
pub struct ServedTerminal {
    server: AttachServer,
    /// Without an open slave the master would report the end of the terminal again and again.
    _slave: OwnedFd,
}

/// A launcher without a terminal.
#[derive(Debug)]
pub struct Detached {
    /// Tells the caller that the command has started.
    started: Option<File>,
    session: HostPath,
    /// Whether the terminal is this process's own.
    has_terminal: bool,
}

impl Detached {
    /// Opens the guest's terminal.
    pub fn open(&self) -> Result<Pty> {
        Ok(Pty::plain(ROWS, COLUMNS).map_err(SessionError::Terminal)?)
    }

    /// Serves the terminal.
    pub fn serve(&self, pty: Pty) -> Result<ServedTerminal> {
        let socket = socket_of(&self.session);
        let listener = socket_path::bind(socket.as_path()).map_err(SessionError::Terminal)?;
        let Pty { master, slave } = pty;
        let server = AttachServer::start(master, listener, self.session.as_path(), ROWS, COLUMNS);
        let server = server.map_err(SessionError::Terminal)?;
        Ok(ServedTerminal { server, _slave: slave })
    }

    /// Serves the terminal, and makes it this process's own: the streams of a command on another machine pass
    /// through the launcher, as from a terminal that it was started in.
    pub fn take_terminal(&mut self) -> Result<ServedTerminal> {
        let pty = self.open()?;
        let taken = ioctl_tiocsctty(&pty.slave).and_then(|()| dup2_stdin(&pty.slave));
        taken.and_then(|()| dup2_stdout(&pty.slave)).map_err(|errno| SessionError::Terminal(errno.into()))?;
        self.has_terminal = true;
        self.serve(pty)
    }

    /// Lets the caller return. From now on there is nobody to print to.
    pub fn report_start(&mut self) {
        let Some(mut started) = self.started.take() else { return };
        let _ = started.write_all(b"1");
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            if !self.has_terminal {
                let _ = dup2_stdout(null.as_fd());
            }
            let _ = dup2_stderr(null.as_fd());
        }
    }

    /// Tells whether the command has started.
    pub fn has_started(&self) -> bool {
        self.started.is_none()
    }

    /// Ends the terminal and saves its last screen.
    pub fn finish(&self, terminal: ServedTerminal, exit_code: u8) {
        let screen = terminal.server.finish(exit_code.into());
        // Without it `attach` shows nothing of a sandbox that has ended.
        let _ = fs::write(self.session.join(SCREEN).as_path(), screen);
    }
}
