//! Passes signals that were sent to sandpen on to the engine's client, or to the sandbox's first process.

use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Handle;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;

use crate::path::HostPath;

const FORWARDED: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];

/// Signals caught before the client exists, so that none ends sandpen while there is something to clean up.
pub struct SignalQueue(SignalDelivery<UnixStream, WithRawSiginfo>);

/// Forwards until dropped.
pub struct ForwarderThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
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

impl SignalQueue {
    /// Starts catching.
    pub fn start() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        SignalDelivery::with_pipe(read, write, WithRawSiginfo, FORWARDED).map(SignalQueue)
    }

    /// The signal that asked for the end while there was no child yet to hear of it.
    pub fn ending(&mut self) -> Option<i32> {
        let asks = |signal: &i32| matches!(*signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT);
        self.0.pending().map(|info| info.si_signo).find(asks)
    }

    /// For a receiver, also of what already came. `report` is the file in which the guest helper says that the command runs: an
    /// engine's client drops signals until it has taken note of that itself. `kill` ends a guest that does not heed SIGTERM or SIGHUP
    /// within a grace period, or at once when SIGTERM comes a second time.
    pub fn courier<K: FnOnce()>(self, receiver: Receiver, report: Option<HostPath>, kill: K) -> SignalForwarder<K> {
        SignalForwarder { caught: self, receiver, report, kill: Some(kill), deadline: None }
    }

    /// A courier in a thread of its own, beside a process that is waited for.
    pub fn forward_to(
        self,
        receiver: Receiver,
        report: Option<HostPath>,
        kill: impl FnOnce() + Send + 'static,
    ) -> ForwarderThread {
        let handle = self.0.handle();
        let mut courier = self.courier(receiver, report, kill);
        let ended = handle.clone();
        let thread = thread::spawn(move || {
            loop {
                wait(&mut [courier.poll()], courier.deadline());
                if ended.is_closed() {
                    return;
                }
                courier.deliver();
            }
        });
        ForwarderThread { handle, thread: Some(thread) }
    }
}

/// Passes signals on to a receiver, and ends the guest for good when it had its time.
pub struct SignalForwarder<K> {
    caught: SignalQueue,
    receiver: Receiver,
    report: Option<HostPath>,
    /// At most once.
    kill: Option<K>,
    /// The end of the grace period, once the guest was asked to end.
    deadline: Option<Instant>,
}

impl<K: FnOnce()> SignalForwarder<K> {
    /// Ready when there is something to deliver.
    pub fn poll(&self) -> PollFd<'_> {
        PollFd::new(self.caught.0.get_read(), PollFlags::IN)
    }

    /// When to deliver at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.kill.is_some())
    }

    /// Passes on what came. Never waits, except for an engine's client to listen.
    pub fn deliver(&mut self) {
        let came: Vec<_> = self.caught.0.pending().collect();
        let handle = self.caught.0.handle();
        for info in came {
            // What the terminal sends (a positive code) reaches the whole foreground group, the receiver included. An engine's client
            // is told of a new size again: Docker's misses one that comes while it tells the engine the first, and a repeated size is
            // no event for the guest.
            let is_told_again = info.si_signo == SIGWINCH && self.report.is_some();
            if info.si_code > 0 && !self.receiver.is_apart() && !is_told_again {
                continue;
            }
            if let Some(report) = &self.report {
                wait_until_settled(report, || handle.is_closed());
            }
            // Whoever has ended meanwhile hears no more.
            if handle.is_closed() {
                return;
            }
            if let Some(signal) = Signal::from_named_raw(info.si_signo) {
                self.receiver.send(signal);
            }
            match (info.si_signo, self.deadline) {
                (SIGTERM, Some(_)) => self.deadline = Some(Instant::now()),
                (SIGTERM | SIGHUP, None) => self.deadline = Some(Instant::now() + GRACE),
                _ => {}
            }
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now())
            && let Some(kill) = self.kill.take()
        {
            kill();
        }
    }
}

/// Waits until one of these is ready, a signal comes, or it is that time.
pub fn wait(ready: &mut [PollFd<'_>], until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let _ = poll(ready, left.as_ref());
}

/// How long after the command's start a client has surely taken note of it.
const SETTLED: Duration = Duration::from_millis(400);
/// How long a start may take before signals go their way regardless.
const CLIENT_READY_TIMEOUT: Duration = Duration::from_secs(5);

fn wait_until_settled(report: &HostPath, is_over: impl Fn() -> bool) {
    let limit = Instant::now() + CLIENT_READY_TIMEOUT;
    while Instant::now() < limit && !is_over() {
        let written = fs::metadata(report.as_path()).ok().filter(|meta| meta.len() > 0);
        let age = written.and_then(|meta| meta.modified().ok()).map(|at| at.elapsed().unwrap_or(SETTLED));
        if age.is_some_and(|age| age >= SETTLED) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for ForwarderThread {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
