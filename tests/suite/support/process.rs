//! Starts, watches and ends processes for tests: every wait has a deadline, and no process outlives
//! its test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Finished;

/// A busy machine with two cores needs this long at most; only a failing test waits for all of it.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until `holds` returns true, and fails after a timeout.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(holds_within(TIMEOUT, &mut holds), "not within {TIMEOUT:?}: {what}");
}

/// Returns whether `holds` returned true before the timeout.
pub fn holds_within(timeout: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + timeout;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Dropping it kills the process.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut errors = child.stderr.take().expect("stderr");
        let stderr = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Running { child, lines, stderr: Some(stderr) }
    }

    /// Waits for the next line of stdout.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => line,
            Err(_) => panic!("no line on stdout; stderr: {}", self.kill().stderr),
        }
    }

    /// Returns whether stdout has an unread line, and discards that line.
    pub fn has_line(&mut self) -> bool {
        self.lines.try_recv().is_ok()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the ids of the direct children, such as the engine's client.
    pub fn children(&self) -> Vec<u32> {
        let file = format!("/proc/{0}/task/{0}/children", self.pid());
        let text = fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
    }

    /// Returns the ids of the children that any thread has started.
    pub fn children_of_all_threads(&self) -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let texts: Vec<String> =
            threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default()).collect();
        texts.iter().flat_map(|text| text.split_whitespace()).map(|pid| pid.parse().expect("a pid")).collect()
    }

    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Writes to the guest's stdin, which must be a pipe.
    pub fn write(&mut self, text: &str) {
        use std::io::Write;
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).expect("the guest reads");
    }

    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    pub fn has_exited(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_some()
    }

    /// Waits until the process exits.
    #[track_caller]
    pub fn finish(&mut self) -> Finished {
        let ended = holds_within(TIMEOUT, || self.child.try_wait().expect("wait").is_some());
        assert!(ended, "still running after {TIMEOUT:?}; stderr: {}", self.kill().stderr);
        self.report()
    }

    /// Kills this process and waits for it alone; its children may still run.
    pub fn kill_alone(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("wait");
    }

    fn kill(&mut self) -> Finished {
        let _ = self.child.kill();
        self.report()
    }

    fn report(&mut self) -> Finished {
        let status = self.child.wait().expect("wait");
        // After SIGKILL the engine's client still runs for a moment and keeps the pipes open.
        let end = Instant::now() + Duration::from_secs(10);
        let next = || self.lines.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        let stdout: Vec<String> = std::iter::from_fn(next).collect();
        let ended = || self.stderr.as_ref().is_none_or(JoinHandle::is_finished);
        holds_within(end.saturating_duration_since(Instant::now()), ended);
        let stderr = self.stderr.take().filter(JoinHandle::is_finished).and_then(|reader| reader.join().ok());
        let (stderr, progress) = super::split_progress(&stderr.unwrap_or_default());
        Finished { code: status.code(), stdout: stdout.join("\n"), stderr, progress }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(pid: u32, which: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, which).expect("the process exists");
}

/// Returns the command lines of all processes, with NUL bytes replaced by blanks.
pub fn command_lines() -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

/// Returns whether any process has this text on its command line.
pub fn is_running(text: &str) -> bool {
    command_lines().iter().any(|line| line.contains(text))
}
