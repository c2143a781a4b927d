//! The SSH reverse tunnel into a Podman machine (R7): one ssh process, one socket of the sandbox's own in the machine, gone with
//! the sandbox however it ends.

#![allow(clippy::disallowed_methods, reason = "the tunnel is an ssh process")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::plan::TunnelPlan;
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// What runs in the machine. It is fed through stdin, so no shell word is ever put together; its parameters are the session's
/// random id and a number. It ends when stdin does – also after `kill -9` of the launcher – and takes the socket along (R7.11).
///
/// sshd makes the socket 0600 and a guest may be any user, so it is moved into a directory that can be entered but not listed,
/// under a name nobody can guess.
const SCRIPT: &str = include_str!("tunnel.sh");

/// How long clean-up may delay the exit (R7.11).
const FAREWELL: Duration = Duration::from_millis(1500);
/// ssh's own time limit comes first by this much: it says what was wrong.
const GRACE: Duration = Duration::from_millis(300);
/// How often signals are looked for while the tunnel is opened.
const STEP: Duration = Duration::from_millis(50);

/// What came of opening a tunnel.
#[derive(Debug)]
pub enum Opened {
    /// It stands.
    Ready(Tunnel),
    /// This signal came first.
    Interrupted(i32),
}

/// A running tunnel. Dropping it ends ssh and removes the socket from the machine, exactly once (R7.9, R7.10).
#[derive(Debug)]
pub struct Tunnel {
    child: Child,
    /// Closing it is the signal to clean up.
    stdin: Option<ChildStdin>,
    closing: Arc<AtomicBool>,
}

impl Tunnel {
    /// Starts ssh and waits until the machine says that the socket is there, or a signal asks to end. On any failure nothing is
    /// left (R7.6–R7.8).
    pub fn open(plan: &TunnelPlan, ui: Ui, interrupted: impl FnMut() -> Option<i32>) -> Result<Opened> {
        let program = plan.program.as_ref().ok_or_else(|| {
            Error::launch("there is no `ssh` on PATH to tunnel the SSH agent with")
                .hint("install OpenSSH's client, or pass --ssh-agent off")
        })?;
        ui.verbose(&format!("SSH tunnel: {}", crate::ui::shell::shell_words(&plan.argv)));
        let mut child = Command::new(program.as_path())
            .args(&plan.argv[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the guest; the tunnel ends with the session.
            .process_group(0)
            .spawn()
            .map_err(|error| failure(plan, "the SSH tunnel cannot be started".to_owned(), &error.to_string()))?;
        let words = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().map(|stderr| collect(stderr, words.clone()));
        let (ready, news) = mpsc::channel();
        let closing = Arc::new(AtomicBool::new(false));
        if let Some(stdout) = child.stdout.take() {
            watch(stdout, ready, closing.clone(), ui);
        }
        let mut tunnel = Tunnel { stdin: child.stdin.take(), child, closing };
        let script = format!("{}{SCRIPT}", plan.parameters);
        // A pipe that is closed already means that ssh has ended; waiting below tells.
        let _ = tunnel.stdin.as_mut().map(|stdin| stdin.write_all(script.as_bytes()));
        let waiting = Progress::start(ui, format!("the SSH tunnel into the Podman machine `{}`", plan.connection.name));
        let waited = wait(&news, plan.timeout + GRACE, interrupted);
        drop(waiting);
        let failed = match waited {
            News::Ready => return Ok(Opened::Ready(tunnel)),
            News::Interrupted(signal) => return Ok(Opened::Interrupted(signal)),
            News::Late => {
                let _ = tunnel.child.kill();
                format!("the SSH tunnel into the Podman machine was not ready within {} s", plan.timeout.as_secs())
            }
            News::Ended => "the SSH tunnel into the Podman machine could not be established".to_owned(),
        };
        drop(tunnel);
        // ssh has ended; its last words may still be on their way.
        let limit = Instant::now() + GRACE;
        while stderr.as_ref().is_some_and(|reader| !reader.is_finished()) && Instant::now() < limit {
            thread::sleep(Duration::from_millis(2));
        }
        let said = words.lock().map(|words| words.trim().to_owned()).unwrap_or_default();
        let said = if said.is_empty() { said } else { format!("ssh says: {said}") };
        Err(failure(plan, failed, &said))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        drop(self.stdin.take());
        let limit = Instant::now() + FAREWELL;
        while Instant::now() < limit {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The machine is gone or hangs: it must not hold up the exit.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The launch ends here, with what was wrong and what to do (R7.7, R7.8).
fn failure(plan: &TunnelPlan, what: String, why: &str) -> Error {
    let error = Error::launch(what);
    let error = if why.is_empty() { error } else { error.cause(why) };
    error
        .hint(format!(
            "check that the machine runs: `podman machine list`, `podman machine start` (connection `{}`)",
            plan.connection.name
        ))
        .hint("or do without the SSH agent: --ssh-agent off")
}

/// What the launcher learns while it waits.
enum News {
    Ready,
    Ended,
    Late,
    Interrupted(i32),
}

fn wait(news: &mpsc::Receiver<bool>, timeout: Duration, mut interrupted: impl FnMut() -> Option<i32>) -> News {
    let limit = Instant::now() + timeout;
    loop {
        match news.recv_timeout(STEP) {
            Ok(true) => return News::Ready,
            Ok(false) | Err(mpsc::RecvTimeoutError::Disconnected) => return News::Ended,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if let Some(signal) = interrupted() {
            return News::Interrupted(signal);
        }
        if Instant::now() > limit {
            return News::Late;
        }
    }
}

/// Keeps ssh's words for the case that it fails.
fn collect(mut stderr: impl Read + Send + 'static, words: Arc<Mutex<String>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = stderr.read(&mut buffer) {
            if let Ok(mut words) = words.lock()
                && words.len() < 8192
            {
                words.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        }
    })
}

/// Tells when the machine is ready; afterwards, says once if the tunnel ends before the sandbox does.
fn watch(stdout: impl Read + Send + 'static, ready: mpsc::Sender<bool>, closing: Arc<AtomicBool>, ui: Ui) {
    thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines();
        // Start-up files of the user's shell in the machine may have talked before.
        let is_ready = lines.any(|line| line.is_ok_and(|line| line == "ready"));
        let _ = ready.send(is_ready);
        if is_ready {
            for _ in lines {}
            if !closing.load(Ordering::Relaxed) {
                ui.warn("the SSH tunnel into the Podman machine has ended: SSH keys no longer work inside");
            }
        }
    });
}
