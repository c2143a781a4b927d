//! Runs the programs of the host that reach a server: `ssh`, `git` and `curl`. None of them gets
//! anything that a guest chose in its arguments or its environment.

#![allow(clippy::disallowed_methods, reason = "starts the host's transports")]

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

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

/// A running program with its messages. Dropping it ends the program.
#[derive(Debug)]
pub struct TransportProcess {
    child: Child,
    messages: Receiver<String>,
}

/// The streams of a program.
pub struct Streams {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
}

impl TransportProcess {
    pub fn start(mut command: Command) -> io::Result<(Self, Streams)> {
        // Ctrl-C ends the processes of sandpen's group.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (send, messages) = channel();
        let process = TransportProcess { child, messages };
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
            status = self.child.try_wait().ok().flatten();
            if status.is_none() {
                thread::sleep(POLL_INTERVAL);
            }
        }
        let text = self.messages.recv_timeout(MESSAGE_TIMEOUT).unwrap_or_default();
        (status.is_some_and(|status| status.success()), text)
    }
}

impl Drop for TransportProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
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
