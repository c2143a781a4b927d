//! Passes signals that were sent to sandpen on to the engine's client.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook::iterator::{Handle, SignalsInfo};

use crate::path::HostPath;

const FORWARDED: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];

/// Signals caught before the client exists, so that none ends sandpen while there is something to clean up.
pub struct Caught(SignalsInfo<WithRawSiginfo>);

/// Forwards until dropped.
pub struct Forwarder {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

/// How long a guest may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Who is sent what sandpen is sent.
pub enum Receiver {
    /// One process, which passes it on.
    Process(u32),
    /// A group of processes.
    Group(Pid),
}

impl Receiver {
    /// A group that is not in the foreground hears nothing of the terminal's signals, and one that is hears them instead of us.
    fn is_apart(&self) -> bool {
        matches!(self, Receiver::Group(_))
    }

    fn send(&self, signal: Signal) {
        let _ = match self {
            Receiver::Group(group) => kill_process_group(*group, signal),
            Receiver::Process(process) => match i32::try_from(*process).ok().and_then(Pid::from_raw) {
                Some(process) => kill_process(process, signal),
                None => Ok(()),
            },
        };
    }
}

/// Ends the guest for good.
type Kill = Box<dyn FnOnce() + Send>;

/// The grace period, and what comes after it; at most once.
#[derive(Clone)]
struct Patience {
    ended: Arc<AtomicBool>,
    kill: Arc<Mutex<Option<Kill>>>,
}

impl Patience {
    fn start(&self) {
        let patience = self.clone();
        thread::spawn(move || {
            let limit = Instant::now() + GRACE;
            while Instant::now() < limit && !patience.ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
            }
            patience.kill_now();
        });
    }

    fn kill_now(&self) {
        let kill = self.kill.lock().ok().and_then(|mut kill| kill.take());
        if let (Some(kill), false) = (kill, self.ended.load(Ordering::Relaxed)) {
            kill();
        }
    }
}

impl Caught {
    /// Starts catching.
    pub fn start() -> std::io::Result<Self> {
        SignalsInfo::new(FORWARDED).map(Caught)
    }

    /// The signal that asked for the end while there was no child yet to hear of it.
    pub fn ending(&mut self) -> Option<i32> {
        let asks = |signal: &i32| matches!(*signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT);
        self.0.pending().map(|info| info.si_signo).find(asks)
    }

    /// Forwards everything, also what already came. `report` is the file in which the guest helper says that the
    /// command runs: an engine's client drops signals until it has taken note of that itself. `kill` ends a guest that does not
    /// heed SIGTERM or SIGHUP within a grace period, or at once when SIGTERM comes a second time.
    pub fn forward_to(
        self,
        receiver: Receiver,
        report: Option<HostPath>,
        kill: impl FnOnce() + Send + 'static,
    ) -> Forwarder {
        let Caught(mut signals) = self;
        let handle = signals.handle();
        let ended = Arc::new(AtomicBool::new(false));
        let patience = Patience { ended: ended.clone(), kill: Arc::new(Mutex::new(Some(Box::new(kill)))) };
        let thread = thread::spawn(move || {
            let mut asked = false;
            for info in signals.forever() {
                // What the terminal sends (a positive code) reaches the whole foreground group, the client included. A new size is
                // told again: Docker's client misses one that comes while it tells the engine the first, and a repeated size is no
                // event for the guest.
                if info.si_code > 0 && !receiver.is_apart() && info.si_signo != SIGWINCH {
                    continue;
                }
                if let Some(report) = &report {
                    wait_until_settled(report);
                }
                if let Some(signal) = Signal::from_named_raw(info.si_signo) {
                    receiver.send(signal);
                }
                match (info.si_signo, asked) {
                    (SIGTERM, true) => patience.kill_now(),
                    (SIGTERM | SIGHUP, false) => {
                        asked = true;
                        patience.start();
                    }
                    _ => {}
                }
            }
        });
        Forwarder { handle, thread: Some(thread), ended }
    }
}

/// How long after the command's start a client has surely taken note of it.
const SETTLED: Duration = Duration::from_millis(400);
/// How long a start may take before signals go their way regardless.
const PATIENCE: Duration = Duration::from_secs(5);

fn wait_until_settled(report: &HostPath) {
    let limit = Instant::now() + PATIENCE;
    while Instant::now() < limit {
        let written = fs::metadata(report.as_path()).ok().filter(|meta| meta.len() > 0);
        let age = written.and_then(|meta| meta.modified().ok()).map(|at| at.elapsed().unwrap_or(SETTLED));
        if age.is_some_and(|age| age >= SETTLED) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
