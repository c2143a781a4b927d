//! Forwards signals that sandpen gets to the sandbox: to the engine's client, to the native
//! sandbox's first process, or to Seatbelt's process group.
//!
//! A signal takes one of these ways to the command:
//!
//! - `tty`: sandpen passes the key as a byte to the client's pseudo-terminal, which the client has put
//!   into raw mode as well. The terminal inside the container makes a signal of it, for the command's
//!   group. Before that, the client's terminal signals the client.
//! - `client`: The kernel signals sandpen's group. The client, a member, forwards the signal to the
//!   helper (pid 1 of the container), and the helper to the command. sandpen ignores its copy.
//! - `group`: The command's group has the terminal's foreground; the kernel signals it. sandpen sees
//!   nothing.
//! - `relay`: sandpen has put the terminal into raw mode and passes the key to the guest's
//!   pseudo-terminal, which makes a signal of it, for the command's group.
//! - `A`: sandpen → client → helper → command, each with `kill`.
//! - `B`: sandpen → pid 1 of the sandbox → command.
//! - `R`: sandpen → link → helper → command.
//! - `K`: sandpen → the command's process group, as a key does.
//! - `C`: sandpen → process group of helper and command. The helper forwards nothing.
//! - –: The terminal does not send it, or the guest has no terminal that could change its size.
//!
//! | sandbox and sender               | SIGINT   | SIGTERM | SIGHUP      | SIGTSTP     | SIGWINCH    |
//! |----------------------------------|----------|---------|-------------|-------------|-------------|
//! | container, terminal              | `tty`    | –       | `A` (4) (6) | `tty` (1)   | size (2)    |
//! | container, terminal, in pipeline | `client` | –       | `A` (4) (6) | stops (3)   | –           |
//! | container, `kill` of sandpen     | `A`      | `A` (4) | `A` (4)     | stops (9)   | size (2)    |
//! | native, terminal                 | `relay`  | –       | `B` (4) (6) | `relay` (5) | size (7)    |
//! | native, terminal, in pipeline    | `K`      | –       | `B` (4) (6) | both (8)    | size (7)    |
//! | native, `kill` of sandpen        | `B`      | `B` (4) | `B` (4)     | both (8)    | `B`, (7)    |
//! | pod, terminal                    | `relay`  | –       | `R` (4) (6) | `relay` (1) | `R`, size   |
//! | pod, terminal, in pipeline       | `R`      | –       | `R` (4) (6) | stops (3)   | –           |
//! | pod, `kill` of sandpen           | `R`      | `R` (4) | `R` (4)     | stops (3)   | `R`, size   |
//! | Seatbelt, terminal               | `group`  | –       | `C` (4) (6) | `group` (1) | `group`     |
//! | Seatbelt, terminal, in pipeline  | `C`      | –       | `C` (4) (6) | stops (3)   | `C`         |
//! | Seatbelt, `kill` of sandpen      | `C`      | `C` (4) | `C` (4)     | stops (3)   | `C`         |
//!
//! 1. The command stops and the helper resumes it: no program outside could.
//! 2. The relay sets the size of the client's terminal, the client that of the container's, and the
//!    kernel signals the command's group if it has changed.
//! 3. SIGTSTP is not caught: it stops sandpen and not the command.
//! 4. A guest that does not end within [`GRACE_PERIOD`], or before a second SIGTERM, is killed.
//! 5. Pid 1 of the sandbox reports the stop; sandpen stops too, and resumes the command when the
//!    shell resumes sandpen.
//! 6. The kernel signals only the leader of the terminal's session, and the foreground group when
//!    the leader exits. So the command may get a second SIGHUP from the kernel or the client, or
//!    sandpen none at all: then [`HangUpWatch`] sends it one.
//! 7. The relay sets the size of the guest's pseudo-terminal, and the kernel signals the command's
//!    group.
//! 8. sandpen stops the command's group and itself, and resumes the command when it is resumed.
//! 9. With a terminal, sandpen restores it and stops; in a pipeline as in 3. The command goes on until
//!    nobody reads its output.
//!
//! SIGQUIT goes the way of SIGINT, SIGUSR1 and SIGUSR2 that of `kill`. Without a controlling
//! terminal only the rows with `kill` apply.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use rustix::stdio::stdin;
use rustix::termios::isatty;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::Handle;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;

use super::client_ready::wait_for_client;
use super::lease;
use crate::path::HostPath;

/// The signals that sandpen catches and forwards. SIGTSTP is not among them, so that `kill -TSTP`
/// stops sandpen as it stops any program, nor is SIGCONT, which then resumes it.
const CAUGHT_BY_SANDPEN: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];

/// The signals that pid 1 of a native sandbox forwards: all that sandpen forwards, and SIGCONT,
/// with which sandpen resumes a command that the terminal stopped.
#[cfg(target_os = "linux")]
pub const FORWARDED_BY_INIT: [i32; 8] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];

/// The signals that the helper catches in a container. It forwards all but SIGCHLD, which tells it
/// of children that ended or stopped. SIGWINCH is missing: the container's terminal sends it to the
/// command's group directly. SIGCONT is there for `docker kill --signal CONT`.
pub const CAUGHT_IN_CONTAINER: [i32; 8] = [SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT];

/// The signals that the helper catches under Seatbelt, and forwards none of, because it shares its
/// process group with the command. Those that stop a process are there so that the helper goes on
/// and can resume the command.
pub const CAUGHT_UNDER_SEATBELT: [i32; 11] =
    [SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU];

/// The time that a guest has to end after SIGTERM or SIGHUP.
pub const GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Signals that arrived and were not forwarded yet. It is made before the sandbox, so that no
/// signal ends sandpen while there is something to clean up.
pub struct SignalQueue {
    delivery: SignalDelivery<UnixStream, WithRawSiginfo>,
    /// Whether stdin was a terminal then: one that is gone is none any more.
    had_terminal: bool,
    before_forwarding: Option<SignalHook>,
}

/// Gets the number of each signal that arrives, before it is forwarded.
pub type SignalHook = Box<dyn FnMut(i32) + Send>;

/// What is done when a descriptor becomes readable for the first time, by a thread that waits for
/// signals anyway.
pub struct ReadyAction {
    pub descriptor: OwnedFd,
    pub action: Box<dyn FnOnce(OwnedFd) + Send>,
}

impl ReadyAction {
    pub fn run(self) {
        (self.action)(self.descriptor);
    }
}

/// A thread that forwards signals until it is dropped.
pub struct ForwarderThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// The process or process group that signals are forwarded to.
pub enum SignalTarget {
    /// A process in sandpen's group, or one that forwards the signal itself.
    Process(u32),
    /// A process group other than sandpen's.
    Group(Pid),
    /// A native sandbox, which is in another session than sandpen.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "for the native engine"))]
    Sandbox {
        /// Pid 1, which forwards signals to the command.
        init: Pid,
        /// Returns the command's process group. Keys signal all of it.
        command: Box<dyn Fn() -> Option<Pid> + Send>,
        /// Whether it has a terminal, which changes its size.
        has_terminal: bool,
    },
    /// A command on another machine.
    Remote(Box<dyn Fn(Signal) + Send>),
}

impl SignalTarget {
    /// Tells whether the terminal of sandpen does not signal the target.
    fn is_separate(&self) -> bool {
        matches!(self, SignalTarget::Group(_) | SignalTarget::Sandbox { .. } | SignalTarget::Remote(_))
    }

    /// Sends a signal; `is_key` if the terminal made it of a key.
    fn send(&self, signal: Signal, is_key: bool) {
        let _ = match self {
            SignalTarget::Remote(send) => {
                send(signal);
                Ok(())
            }
            SignalTarget::Group(group) => kill_process_group(*group, signal),
            SignalTarget::Sandbox { has_terminal: true, .. } if signal == Signal::WINCH => Ok(()),
            SignalTarget::Sandbox { init, command, .. } => match command().filter(|_| is_key) {
                Some(group) => kill_process_group(group, signal),
                None => kill_process(*init, signal),
            },
            SignalTarget::Process(process) => match i32::try_from(*process).ok().and_then(Pid::from_raw) {
                Some(process) => kill_process(process, signal),
                None => Ok(()),
            },
        };
    }
}

impl SignalQueue {
    /// Starts to catch signals.
    pub fn start() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        SignalDelivery::with_pipe(read, write, WithRawSiginfo, CAUGHT_BY_SANDPEN).map(|delivery| SignalQueue {
            delivery,
            had_terminal: isatty(stdin()),
            before_forwarding: None,
        })
    }

    /// Catches SIGTSTP as well, for a caller that stops its guest together with sandpen.
    #[cfg(target_os = "linux")]
    pub fn catch_stop(&self) -> io::Result<()> {
        self.delivery.handle().add_signal(SIGTSTP)
    }

    /// Catches the signal that tells that somebody waits for a lease, too.
    #[cfg(target_os = "linux")]
    pub fn catch_lease(&self) -> io::Result<()> {
        self.delivery.handle().add_signal(lease::SIGNAL)
    }

    /// Calls `hook` with the number of each signal that arrives, before it is forwarded. It is dropped
    /// with the forwarder.
    #[cfg(target_os = "linux")]
    pub fn set_hook(&mut self, hook: SignalHook) {
        self.before_forwarding = Some(hook);
    }

    /// Returns a signal that asked sandpen to end, if one arrived. For the time before there is a
    /// process to forward it to.
    pub fn termination_signal(&mut self) -> Option<i32> {
        let ends = |signal: &i32| matches!(*signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT);
        self.delivery.pending().map(|info| info.si_signo).find(ends)
    }

    /// Forwards to `target`, starting with the signals that already arrived. `status_file` is given
    /// for an engine's client, see [`wait_for_client`]. `kill` ends a guest that outlives the grace
    /// period.
    pub fn forwarder<K: FnOnce()>(
        self,
        target: SignalTarget,
        status_file: Option<HostPath>,
        kill: K,
    ) -> SignalForwarder<K> {
        let hang_up = self.had_terminal.then(HangUpWatch::start).flatten();
        SignalForwarder { queue: self, target, status_file, kill: Some(kill), deadline: None, _hang_up: hang_up }
    }

    /// Forwards in a separate thread, for a caller that waits for a process meanwhile. The thread also
    /// carries out `on_ready`.
    pub fn forward_in_thread(
        self,
        target: SignalTarget,
        status_file: Option<HostPath>,
        kill: impl FnOnce() + Send + 'static,
        mut on_ready: Option<ReadyAction>,
    ) -> ForwarderThread {
        let handle = self.delivery.handle();
        let mut forwarder = self.forwarder(target, status_file, kill);
        let ended = handle.clone();
        let thread = thread::spawn(move || {
            loop {
                let is_ready = {
                    let mut descriptors = vec![forwarder.poll()];
                    descriptors.extend(on_ready.iter().map(|ready| PollFd::new(&ready.descriptor, PollFlags::IN)));
                    poll_until(&mut descriptors, forwarder.deadline());
                    descriptors.get(1).is_some_and(|descriptor| !descriptor.revents().is_empty())
                };
                if ended.is_closed() {
                    return;
                }
                if let Some(ready) = on_ready.take_if(|_| is_ready) {
                    ready.run();
                }
                forwarder.forward();
            }
        });
        ForwarderThread { handle, thread: Some(thread) }
    }
}

/// Forwards signals to a target, and kills the guest when its grace period is over.
pub struct SignalForwarder<K> {
    queue: SignalQueue,
    target: SignalTarget,
    status_file: Option<HostPath>,
    /// `None` once the guest was killed.
    kill: Option<K>,
    /// The end of the grace period, once the guest was asked to end.
    deadline: Option<Instant>,
    _hang_up: Option<HangUpWatch>,
}

impl<K: FnOnce()> SignalForwarder<K> {
    /// Returns the descriptor that is readable when a signal has arrived.
    pub fn poll(&self) -> PollFd<'_> {
        PollFd::new(self.queue.delivery.get_read(), PollFlags::IN)
    }

    /// Returns when [`forward`](Self::forward) must be called even if no signal arrives.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.kill.is_some())
    }

    /// Forwards the signals that arrived, and returns their numbers. Blocks only to wait for an
    /// engine's client.
    pub fn forward(&mut self) -> Vec<i32> {
        let arrived: Vec<_> = self.queue.delivery.pending().collect();
        let numbers = arrived.iter().map(|info| info.si_signo).collect();
        let handle = self.queue.delivery.handle();
        for info in arrived {
            if let Some(hook) = &mut self.queue.before_forwarding {
                hook(info.si_signo);
            }
            // The caller stops sandpen and its guest, or ends the lease.
            if matches!(info.si_signo, SIGTSTP | lease::SIGNAL) {
                continue;
            }
            let asked_at = Instant::now();
            // The kernel, a positive code, sends a key's signal to the terminal's whole foreground
            // group, the target included. It sends a hang-up to the session's leader alone, which
            // may be sandpen. SIGWINCH is repeated to an engine's client: Docker's misses one that
            // arrives while it reports the one before, and a repeated size is no event for the
            // guest.
            let is_for_all = match info.si_signo {
                SIGHUP | SIGTERM => false,
                SIGWINCH => self.status_file.is_none(),
                _ => true,
            };
            if info.si_code > 0 && !self.target.is_separate() && is_for_all {
                continue;
            }
            if let Some(status_file) = &self.status_file {
                wait_for_client(status_file, || handle.is_closed());
            }
            // The target has exited: its process id may be another's.
            if handle.is_closed() {
                return numbers;
            }
            if let Some(signal) = Signal::from_named_raw(info.si_signo) {
                self.target.send(signal, info.si_code > 0 && matches!(info.si_signo, SIGINT | SIGQUIT));
            }
            match (info.si_signo, self.deadline) {
                (SIGTERM, Some(_)) => self.deadline = Some(Instant::now()),
                (SIGTERM | SIGHUP, None) => self.deadline = Some(asked_at + GRACE_PERIOD),
                _ => {}
            }
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now())
            && let Some(kill) = self.kill.take()
        {
            kill();
        }
        numbers
    }
}

/// A thread that sends SIGHUP to sandpen when the terminal on stdin is gone. The kernel does not if
/// sandpen is in another session, or if the foreground group is the guest's.
struct HangUpWatch {
    /// Closing it ends the thread.
    _stop: UnixStream,
}

impl HangUpWatch {
    fn start() -> Option<Self> {
        let (stop, stopped) = UnixStream::pair().ok()?;
        thread::spawn(move || {
            let mut descriptors =
                [PollFd::from_borrowed_fd(stdin(), PollFlags::empty()), PollFd::new(&stopped, PollFlags::empty())];
            while let Err(Errno::INTR) = poll(&mut descriptors, None) {}
            // macOS reports another event, because it cannot poll terminals.
            if descriptors[0].revents().contains(PollFlags::HUP) && descriptors[1].revents().is_empty() {
                let _ = kill_process(getpid(), Signal::HUP);
            }
        });
        Some(HangUpWatch { _stop: stop })
    }
}

/// Waits until a descriptor is ready, a signal handler runs, or the deadline is over.
pub fn poll_until(descriptors: &mut [PollFd<'_>], deadline: Option<Instant>) {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let _ = poll(descriptors, left.as_ref());
}

impl Drop for ForwarderThread {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Lets the kernel end this process when its terminal hangs up, also where the caller ignores SIGHUP, as
/// `nohup` does.
pub fn end_at_hang_up() {
    // SAFETY: a plain system call; no other code of this process handles the signal.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
}
