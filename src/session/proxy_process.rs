//! A proxy that is a process of its own: started before the guest, waited for, watched, ended after it – also when sandpen is killed.

#![allow(clippy::disallowed_methods, reason = "the session starts the proxy's process")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::process::lock;
use crate::proxy::{OVER, PROXY_PORT, ProxyJob, READY, READY_TIMEOUT, listens};
use crate::ui::Ui;

/// What the proxy says, in the session's directory.
const WORDS: &str = "proxy-command.log";
/// Beside the sessions' directories: who holds its lock has the usual port.
const CLAIM: &str = "proxy-port";
/// Tells a proxy on the host which port is meant: the usual one may be taken by another sandbox's.
const PORT_VARIABLE: &str = "SANDPEN_PROXY_PORT";
/// How often a starting proxy is looked at, and after how long the user hears of it.
const STEP: Duration = Duration::from_millis(25);
const NOTICE: Duration = Duration::from_millis(500);
/// How long a proxy may take to end.
const FAREWELL: Duration = Duration::from_millis(3000);
/// How much of a failed proxy's words is shown.
const LAST_WORDS: u64 = 2000;

/// What came of starting one.
pub enum Opened<T> {
    /// It stands.
    Ready(T),
    /// This signal came first.
    Interrupted(i32),
}

/// A running proxy. Dropping it ends it, and removes what it alone used.
pub struct ProxyProcess {
    child: Child,
    /// On the host: closing it is the signal to end, which the launcher's death is, too.
    stdin: Option<ChildStdin>,
    /// It never ends before the process does.
    lines: Option<Lines>,
    ending: Arc<AtomicBool>,
    died: Arc<AtomicBool>,
    words: HostPath,
    remove: Box<dyn Fn()>,
    /// The usual port is ours for as long as this is open.
    claim: Option<File>,
}

/// Where the process's lines come from.
enum Lines {
    Unread(ChildStdout),
    Read(mpsc::Receiver<String>),
}

impl ProxyProcess {
    /// The user's proxy on this machine, with sandpen between them to end it. Starts no thread.
    pub fn on_host(
        host: &Host,
        argv: &[String],
        path: &Path,
        session: &HostPath,
        ui: Ui,
        mut interrupted: impl FnMut() -> Option<i32>,
    ) -> Result<Opened<(Self, u16)>> {
        let program = host.executable.as_ref().ok_or_else(|| Error::launch("sandpen's own program cannot be found"))?;
        let (port, claim) = claim_port(session)?;
        let timeout = READY_TIMEOUT.as_secs();
        let job = ProxyJob { directory: String::new(), rules: None, owner: false, timeout };
        let mut command = Command::new(program.as_path());
        command.arg("proxy").arg(serde_json::to_string(&job).unwrap_or_default()).args(argv);
        command.env(PORT_VARIABLE, port.to_string()).env("PATH", path).stdin(Stdio::piped());
        let mut process = Self::start(command, session, Box::new(|| {}))?;
        process.claim = claim;
        let hint = match port {
            PROXY_PORT => format!("it must listen on 127.0.0.1:{PROXY_PORT}"),
            port => format!(
                "port {PROXY_PORT} is taken, perhaps by another sandbox's proxy: it must listen on 127.0.0.1:{port}, which {PORT_VARIABLE} tells it"
            ),
        };
        let begun = Instant::now();
        let mut told = false;
        loop {
            if listens(port) {
                return Ok(Opened::Ready((process, port)));
            }
            if let Ok(Some(status)) = process.child.try_wait() {
                return Err(process.failure(format!("the proxy command ended at once: {status}")).hint(hint));
            }
            if let Some(signal) = interrupted() {
                return Ok(Opened::Interrupted(signal));
            }
            if begun.elapsed() > READY_TIMEOUT {
                let words = format!("the proxy command did not listen on port {port} within {timeout} s");
                return Err(process.failure(words).hint(hint));
            }
            if begun.elapsed() > NOTICE && !told {
                told = true;
                ui.notice(&format!("waiting for the proxy command to listen on port {port}"));
            }
            thread::sleep(STEP);
        }
    }

    /// A proxy in a container, whose helper says when it is ready; `command` is the engine's client.
    pub fn in_container(
        command: Command,
        session: &HostPath,
        ui: Ui,
        mut interrupted: impl FnMut() -> Option<i32>,
        remove: Box<dyn Fn()>,
    ) -> Result<Opened<Self>> {
        let mut command = command;
        command.stdin(Stdio::null());
        let mut process = Self::start(command, session, remove)?;
        let lines = process.read_lines();
        // The engine itself takes its time, too.
        let limit = Instant::now() + READY_TIMEOUT * 2;
        let begun = Instant::now();
        let mut told = false;
        loop {
            match lines.recv_timeout(STEP) {
                Ok(line) if line == READY => break,
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(process.failure("the proxy's container ended at once".into()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() > limit => {
                    return Err(
                        process.failure(format!("the proxy was not ready within {} s", READY_TIMEOUT.as_secs() * 2))
                    );
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if let Some(signal) = interrupted() {
                return Ok(Opened::Interrupted(signal));
            }
            if begun.elapsed() > NOTICE && !told {
                told = true;
                ui.notice("waiting for the proxy to be ready");
            }
        }
        process.lines = Some(Lines::Read(lines));
        Ok(Opened::Ready(process))
    }

    fn start(mut command: Command, session: &HostPath, remove: Box<dyn Fn()>) -> Result<Self> {
        let words = session.join(WORDS);
        let cannot = |error: std::io::Error| Error::launch("the proxy cannot be started").cause(error);
        let file = File::create(words.as_path()).map_err(cannot)?;
        // Ctrl-C is for the guest; the proxy ends with the session.
        command.stdout(Stdio::piped()).stderr(file).process_group(0);
        let mut child = command.spawn().map_err(cannot)?;
        Ok(ProxyProcess {
            stdin: child.stdin.take(),
            lines: child.stdout.take().map(Lines::Unread),
            child,
            ending: Arc::new(AtomicBool::new(false)),
            died: Arc::new(AtomicBool::new(false)),
            words,
            remove,
            claim: None,
        })
    }

    fn read_lines(&mut self) -> mpsc::Receiver<String> {
        let (sender, lines) = mpsc::channel();
        match self.lines.take() {
            Some(Lines::Unread(stdout)) => {
                thread::spawn(move || {
                    for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                        if sender.send(line).is_err() {
                            break;
                        }
                    }
                });
                lines
            }
            Some(Lines::Read(lines)) => lines,
            None => lines,
        }
    }

    /// Hands on what it says, and ends the guest if it ends before.
    pub fn watch(&mut self, mut hear: impl FnMut(&str) + Send + 'static, end: impl FnOnce() + Send + 'static) {
        let lines = self.read_lines();
        let (ending, died) = (self.ending.clone(), self.died.clone());
        thread::spawn(move || {
            let mut over = false;
            for line in lines {
                over |= line == OVER;
                hear(&line);
            }
            if !over && !ending.load(Ordering::SeqCst) {
                died.store(true, Ordering::SeqCst);
                end();
            }
        });
    }

    /// Why the guest was ended, if it was ended because of its proxy.
    pub fn died(&self) -> Option<Error> {
        let died = self.died.load(Ordering::SeqCst);
        died.then(|| self.failure("the proxy ended, and the guest was stopped with it".into()))
    }

    fn failure(&self, what: String) -> Error {
        let mut words = String::new();
        if let Ok(mut file) = File::open(self.words.as_path()) {
            let length = file.metadata().map_or(0, |meta| meta.len());
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)));
            let mut bytes = Vec::new();
            let _ = file.take(LAST_WORDS).read_to_end(&mut bytes);
            words = String::from_utf8_lossy(&bytes).trim().to_owned();
        }
        let error = Error::launch(what);
        if words.is_empty() { error } else { error.cause(words) }
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        drop(self.stdin.take());
        let limit = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < limit {
            thread::sleep(Duration::from_millis(5));
        }
        (self.remove)();
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(self.claim.take());
    }
}

/// The usual port, unless another sandbox of this user has claimed it or anybody listens there; else a free one. Without the
/// claim, two that start at once would both find the port free, and one would be served by the other's proxy.
fn claim_port(session: &HostPath) -> Result<(u16, Option<File>)> {
    let failed = |error: std::io::Error| Error::launch("no port can be had for the proxy").cause(error);
    let file = session.as_path().with_file_name(CLAIM);
    File::options().create(true).append(true).open(&file).map_err(failed)?;
    if let Ok(claim) = lock::take(&file)
        && !listens(PROXY_PORT)
    {
        return Ok((PROXY_PORT, Some(claim)));
    }
    let bound = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    bound.map(|address| (address.port(), None)).map_err(failed)
}
