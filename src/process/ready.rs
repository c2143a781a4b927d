//! Processes that work beside a sandbox and must be ready before it starts: the SSH tunnel and
//! proxies. Starts them, waits until they are ready, quotes their stderr and ends them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often signals and the time limit are checked while a process starts.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// How often an ending process is checked.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How many bytes of stderr an error quotes, from its end.
const QUOTED_BYTES: u64 = 2000;

/// The result of starting something that takes its time.
#[derive(Debug)]
pub enum Startup<T> {
    /// It is ready.
    Ready(T),
    /// This signal arrived first; nothing is left running.
    Interrupted(i32),
}

impl<T> Startup<T> {
    /// Converts the value of a startup that was not interrupted.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Startup<U> {
        match self {
            Startup::Ready(value) => Startup::Ready(convert(value)),
            Startup::Interrupted(signal) => Startup::Interrupted(signal),
        }
    }
}

/// Why a process did not become ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// It ended, or closed its stdout, before it was ready.
    #[error("the process ended")]
    Ended,
    /// The time limit is over.
    #[error("the process was not ready in time")]
    TimedOut,
}

/// The end of a process's stderr, as the cause of an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Stderr(pub String);

/// A process beside the sandbox. Dropping it closes its stdin, waits for it to end, and kills it
/// after a time limit.
#[derive(Debug)]
pub struct CompanionProcess {
    child: Child,
    /// Closing it asks the process to end; so does sandpen's death, however it came.
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: PathBuf,
    exit_timeout: Duration,
    is_ending: Arc<AtomicBool>,
}

impl CompanionProcess {
    /// Starts a command with its stderr in a new file. The caller connects stdin.
    pub fn start(mut command: Command, stderr: PathBuf, exit_timeout: Duration) -> io::Result<Self> {
        command.stdout(Stdio::piped()).stderr(File::create(&stderr)?);
        // Ctrl-C is for the guest; this process ends with the session.
        command.process_group(0);
        let mut child = command.spawn()?;
        Ok(Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            child,
            stderr,
            exit_timeout,
            is_ending: Arc::default(),
        })
    }

    /// Writes to the process's stdin, which stays open. A write fails if the process has ended;
    /// waiting for it reports that.
    pub fn write(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(text.as_bytes());
        }
    }

    /// Takes stdout and stdin, for a protocol in both directions. Closing them asks the process to end.
    pub fn take_streams(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        Some((self.stdout.take()?.into(), self.stdin.take()?.into()))
    }

    /// Reads stdout in a new thread and returns the lines.
    pub fn lines(&mut self) -> mpsc::Receiver<String> {
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = self.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(io::Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        lines
    }

    /// Passes further lines on in a new thread, and calls `ended_early` if the process ends before
    /// it was asked to, or before it announced its end with a line for which `is_end_announcement` returns `true`.
    pub fn watch(
        &self,
        lines: mpsc::Receiver<String>,
        mut is_end_announcement: impl FnMut(&str) -> bool + Send + 'static,
        ended_early: impl FnOnce() + Send + 'static,
    ) {
        let is_ending = self.is_ending.clone();
        thread::spawn(move || {
            let mut is_announced = false;
            for line in lines {
                is_announced |= is_end_announcement(&line);
            }
            if !is_announced && !is_ending.load(Ordering::SeqCst) {
                ended_early();
            }
        });
    }

    /// Returns the exit status if the process has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns the end of what the process wrote to stderr; `None` if that is nothing.
    pub fn stderr(&self) -> Option<Stderr> {
        let mut file = File::open(&self.stderr).ok()?;
        let length = file.metadata().map_or(0, |meta| meta.len());
        file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES))).ok()?;
        let mut bytes = Vec::new();
        file.take(QUOTED_BYTES).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(Stderr(text))
    }

    /// Kills the process at once.
    pub fn kill(&mut self) {
        self.is_ending.store(true, Ordering::SeqCst);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the process to end and waits until it has, or until its time limit is over.
    pub fn request_exit(&mut self) {
        self.is_ending.store(true, Ordering::SeqCst);
        drop(self.stdin.take());
        let limit = Instant::now() + self.exit_timeout;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < limit {
            thread::sleep(EXIT_POLL_INTERVAL);
        }
    }
}

impl Drop for CompanionProcess {
    fn drop(&mut self) {
        self.request_exit();
        self.kill();
    }
}

/// Waits until `check` returns a value. It may block for the interval that it is passed, and fails
/// when the process has ended.
pub fn wait<T>(
    timeout: Duration,
    mut termination_signal: impl FnMut() -> Option<i32>,
    mut check: impl FnMut(Duration) -> Result<Option<T>, NotReady>,
) -> Result<Startup<T>, NotReady> {
    let limit = Instant::now() + timeout;
    loop {
        if let Some(value) = check(POLL_INTERVAL)? {
            return Ok(Startup::Ready(value));
        }
        if let Some(signal) = termination_signal() {
            return Ok(Startup::Interrupted(signal));
        }
        if Instant::now() > limit {
            return Err(NotReady::TimedOut);
        }
    }
}

/// Waits until one of `lines` is `expected`. Lines before it, such as the output of a shell's
/// start-up files, are ignored.
pub fn wait_for_line(
    lines: &mpsc::Receiver<String>,
    expected: &str,
    timeout: Duration,
    termination_signal: impl FnMut() -> Option<i32>,
) -> Result<Startup<()>, NotReady> {
    wait(timeout, termination_signal, |interval| match lines.recv_timeout(interval) {
        Ok(line) if line == expected => Ok(Some(())),
        Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(NotReady::Ended),
    })
}
