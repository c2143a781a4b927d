//! Processes that tests start, watch and end: nothing here waits without a deadline, and nothing outlives its test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Ran;

/// Long enough for a busy machine with two cores; a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds, and fails if it does not in time.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(comes_true(PATIENCE, &mut holds), "not within {PATIENCE:?}: {what}");
}

/// Waits until something holds, or the time is over.
pub fn comes_true(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
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

/// A command that is running. Dropping it kills it.
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

    /// The next line of stdout.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(_) => panic!("no line on stdout; stderr: {}", self.kill().stderr),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The engine's client and whatever else it started itself.
    pub fn children(&self) -> Vec<u32> {
        let file = format!("/proc/{0}/task/{0}/children", self.pid());
        let text = fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
    }

    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Gives the guest some input; its stdin must be a pipe.
    pub fn write(&mut self, text: &str) {
        use std::io::Write;
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).expect("the guest reads");
    }

    /// Gives the guest the end of its input.
    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for the end.
    #[track_caller]
    pub fn ran(&mut self) -> Ran {
        let ended = comes_true(PATIENCE, || self.child.try_wait().expect("wait").is_some());
        assert!(ended, "still running after {PATIENCE:?}; stderr: {}", self.kill().stderr);
        self.report()
    }

    /// Kills it, and waits for this process alone: what it started may live on.
    pub fn kill_alone(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("wait");
    }

    fn kill(&mut self) -> Ran {
        let _ = self.child.kill();
        self.report()
    }

    fn report(&mut self) -> Ran {
        let status = self.child.wait().expect("wait");
        // After SIGKILL the engine's client lives on for a moment, and holds the other ends.
        let end = Instant::now() + Duration::from_secs(10);
        let next = || self.lines.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        let stdout: Vec<String> = std::iter::from_fn(next).collect();
        let ended = || self.stderr.as_ref().is_none_or(JoinHandle::is_finished);
        comes_true(end.saturating_duration_since(Instant::now()), ended);
        let stderr = self.stderr.take().filter(JoinHandle::is_finished).and_then(|reader| reader.join().ok());
        let (stderr, waits) = super::apart(&stderr.unwrap_or_default());
        Ran { code: status.code(), stdout: stdout.join("\n"), stderr, waits }
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
    kill_process(pid, which).expect("the process is there");
}

/// The command lines of all processes, NUL bytes as blanks.
pub fn command_lines() -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

/// Whether any process has this text on its command line.
pub fn is_running(text: &str) -> bool {
    command_lines().iter().any(|line| line.contains(text))
}
