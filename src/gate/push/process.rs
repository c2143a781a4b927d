//! Runs the programs of the host that reach a server: `ssh`, `git` and `curl`. None of them gets
//! anything that a guest chose in its arguments or its environment.

#![allow(clippy::disallowed_methods, reason = "starts the host's transports")]

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::programs::{Registration, RunningPrograms};
use crate::host::Host;

/// The part of a program's messages that is kept.
const MAX_MESSAGE: usize = 4 << 10;
/// How long a program may take to exit when its streams are closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long its last messages may take; a process that it left may keep the stream open.
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The environment of programs on the host.
#[derive(Debug, Clone)]
pub struct HostEnvironment(Vec<(OsString, OsString)>);

impl HostEnvironment {
    /// Takes the host's variables, without those of Git and without programs that ask for
    /// passwords.
    pub fn new(host: &Host, path: &Path) -> Self {
        let is_kept = |name: &str| !name.starts_with("GIT_") && name != "SSH_ASKPASS" && name != "PATH";
        let kept = host.env.iter().filter(|(name, _)| is_kept(&name.to_string_lossy()));
        let mut variables: Vec<_> = kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        variables.extend([("PATH".into(), path.into()), ("LC_ALL".into(), "C".into())]);
        HostEnvironment(variables)
    }

    /// Prepares a call of a program.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().envs(self.0.iter().map(|(name, value)| (name, value))).current_dir("/");
        command
    }
}

/// A child that is the leader of its process group. Dropping it ends the group.
#[derive(Debug)]
pub struct GroupLeader {
    pub child: Child,
    /// `None` once the child was waited for.
    registration: Option<Registration>,
}

impl GroupLeader {
    /// Takes a child that was started in a process group of its own.
    pub fn new(child: Child, programs: &RunningPrograms) -> Self {
        let registration = programs.register(child.id());
        GroupLeader { child, registration: Some(registration) }
    }

    /// Returns the status if the child has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(registration) = &self.registration
            && !registration.has_ended()?
        {
            return Ok(None);
        }
        self.wait().map(Some)
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(registration) = self.registration.take() {
            registration.wait_for_end()?;
        }
        // Its number may belong to another process from now on.
        self.child.wait()
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        if let Some(registration) = &self.registration {
            registration.kill();
        }
        let _ = self.wait();
    }
}

/// A running program with its messages. Dropping it ends the program.
#[derive(Debug)]
pub struct TransportProcess {
    leader: GroupLeader,
    messages: Receiver<String>,
}

/// The streams of a program.
pub struct Streams {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
}

impl TransportProcess {
    pub fn start(mut command: Command, programs: &RunningPrograms) -> io::Result<(Self, Streams)> {
        // Ctrl-C ends the processes of sandpen's group.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (send, messages) = channel();
        let process = TransportProcess { leader: GroupLeader::new(child, programs), messages };
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        thread::spawn(move || send.send(first_messages(stderr)));
        Ok((process, Streams { stdin, stdout }))
    }

    /// Waits for the end and returns whether it succeeded, with the messages.
    pub fn finish(mut self) -> (bool, String) {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let mut status = None;
        while status.is_none() && Instant::now() < deadline {
            status = self.leader.try_wait().ok().flatten();
            if status.is_none() {
                thread::sleep(POLL_INTERVAL);
            }
        }
        let text = self.messages.recv_timeout(MESSAGE_TIMEOUT).unwrap_or_default();
        (status.is_some_and(|status| status.success()), text)
    }
}

/// Reads messages to their end, so that the program is never held up, and keeps their beginning.
fn first_messages(mut stream: ChildStderr) -> String {
    let (mut kept, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut part) {
        let left = MAX_MESSAGE - kept.len();
        kept.extend_from_slice(&part[..count.min(left)]);
    }
    let text = String::from_utf8_lossy(&kept).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}
