//! Relays bytes between the caller's terminal and the guest's, in a thread.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{tcgetwinsize, tcsetwinsize};

use super::answers::drop_answers;
use super::caller::CallerTerminal;
use super::output_monitor::OutputMonitor;
use super::pty::{self, Pty};
use crate::process::signals::poll_until;

/// As much as a pseudo-terminal holds.
const BUFFER: usize = 64 << 10;
/// How often a sandpen in the background looks whether the shell has given it the foreground: not
/// every shell sends SIGCONT to a job that is running.
const FOREGROUND_INTERVAL: Duration = Duration::from_millis(200);
/// After the guest's end, a terminal that takes no bytes for so long loses the rest.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    TakeInput,
    Suspend,
    Resume,
    End,
}

/// The relay of a running guest. Dropping it writes what the guest has left in its terminal, and
/// restores the caller's.
#[derive(Debug)]
pub struct Relay {
    orders: Sender<Order>,
    wake: UnixStream,
    /// The caller's terminal and the master of the guest's.
    terminals: (OwnedFd, OwnedFd),
    /// Receives a message when the caller's terminal has been restored for a stop.
    suspended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub fn start(caller: CallerTerminal, pty: Pty, takes_input: bool) -> io::Result<Self> {
        let (orders, received) = channel();
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let (confirm, suspended) = channel();
        let terminals = (caller.as_fd().try_clone_to_owned()?, pty.master.try_clone()?);
        let worker = Worker {
            caller,
            master: pty.master,
            _slave: pty.slave,
            orders: received,
            woken,
            confirm,
            takes_input,
            is_suspended: false,
            is_hung_up: false,
            to_guest: Buffer::new(),
            to_caller: Buffer::new(),
            monitor: OutputMonitor::default(),
        };
        let thread = std::thread::Builder::new().name("terminal".into()).spawn(move || worker.run())?;
        Ok(Relay { orders, wake, terminals, suspended, thread: Some(thread) })
    }

    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
        let _ = (&self.wake).write(&[0]);
    }

    /// Gives the guest's terminal the size of the caller's. In this thread, so that a signal that the
    /// caller sends afterwards tells of the new size.
    pub fn resize(&self) {
        let (caller, master) = &self.terminals;
        if let Ok(size) = tcgetwinsize(caller) {
            let _ = tcsetwinsize(master, size);
        }
    }

    /// Passes keys from now on: the guest wants to read.
    pub fn take_input(&self) {
        self.order(Order::TakeInput);
    }

    /// Restores the caller's terminal, stops sandpen as its guest was stopped, so that the shell
    /// notices, and continues when the user resumes it.
    pub fn suspend(&self) {
        self.order(Order::Suspend);
        let _ = self.suspended.recv();
        let _ = kill_process(getpid(), Signal::STOP);
        self.order(Order::Resume);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.order(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Bytes on their way, at most [`BUFFER`].
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn new() -> Self {
        Buffer { bytes: vec![0; BUFFER], start: 0, end: 0 }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads as much as there is; returns `false` at the end of the terminal.
    fn fill(&mut self, from: BorrowedFd<'_>) -> bool {
        (self.start, self.end) = (0, 0);
        match rustix::io::read(from, self.bytes.as_mut_slice()) {
            Ok(0) => false,
            Ok(count) => {
                self.end = count;
                true
            }
            Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Writes as much as the terminal takes; returns `false` if it takes nothing any more.
    fn empty(&mut self, to: BorrowedFd<'_>) -> bool {
        match rustix::io::write(to, self.content()) {
            Ok(count) => {
                self.start += count;
                true
            }
            Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    fn content(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Replaces the content.
    fn set(&mut self, content: &[u8]) {
        self.clear();
        if let Some(start) = self.bytes.get_mut(..content.len()) {
            start.copy_from_slice(content);
            self.end = content.len();
        }
    }
}

struct Worker {
    caller: CallerTerminal,
    master: OwnedFd,
    /// Without an open slave the master would report the end of the terminal again and again.
    _slave: OwnedFd,
    orders: Receiver<Order>,
    woken: UnixStream,
    confirm: Sender<()>,
    takes_input: bool,
    is_suspended: bool,
    /// The caller's terminal is gone.
    is_hung_up: bool,
    to_guest: Buffer,
    to_caller: Buffer,
    monitor: OutputMonitor,
}

impl Worker {
    fn run(mut self) {
        block_stop_signals();
        loop {
            let has_keys = self.update_mode();
            let interval = (self.takes_input && !has_keys && !self.is_suspended && !self.is_hung_up)
                .then(|| Instant::now() + FOREGROUND_INTERVAL);
            let ready = self.wait(has_keys, interval);
            if self.follow_orders() {
                break;
            }
            self.relay(&ready);
        }
        self.leave();
    }

    /// Writes everything that the guest has written, ends what it has left unfinished, and restores
    /// the caller's terminal.
    fn leave(&mut self) {
        self.drain();
        if self.to_caller.is_empty() {
            self.to_caller.set(&self.monitor.closing());
            self.write_to_caller();
        }
        if self.monitor.take_recent_query() && self.caller.is_raw() && self.caller.is_foreground() && !self.is_hung_up {
            drop_answers(self.caller.as_fd(), self.caller.as_fd());
        }
        self.caller.restore();
    }

    /// Makes the caller's terminal raw while its keys are the guest's. Returns whether they are.
    fn update_mode(&mut self) -> bool {
        if !self.takes_input || self.is_suspended || self.is_hung_up {
            return false;
        }
        let is_foreground = self.caller.is_foreground();
        if is_foreground {
            self.caller.set_raw();
        } else {
            self.caller.forget();
        }
        is_foreground
    }

    fn wait(&self, has_keys: bool, until: Option<Instant>) -> Ready {
        let when = |condition: bool, flag: PollFlags| if condition { flag } else { PollFlags::empty() };
        let caller = when(has_keys && self.to_guest.is_empty(), PollFlags::IN)
            | when(!self.to_caller.is_empty(), PollFlags::OUT);
        let master = when(self.to_caller.is_empty(), PollFlags::IN) | when(!self.to_guest.is_empty(), PollFlags::OUT);
        let mut descriptors = vec![PollFd::new(&self.woken, PollFlags::IN), PollFd::new(&self.master, master)];
        // A terminal that is gone is always ready.
        if !caller.is_empty() {
            descriptors.push(PollFd::new(&self.caller, caller));
        }
        poll_until(&mut descriptors, until);
        let revents = |number: usize| descriptors.get(number).map_or(PollFlags::empty(), PollFd::revents);
        Ready { master: revents(1), caller: revents(2) }
    }

    /// Carries out the orders; returns `true` at the end.
    fn follow_orders(&mut self) -> bool {
        while matches!((&self.woken).read(&mut [0; 16]), Ok(count) if count > 0) {}
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::TakeInput => {
                    if !std::mem::replace(&mut self.takes_input, true) {
                        pty::process_output(&self.master);
                    }
                }
                Order::Suspend => {
                    self.leave();
                    self.is_suspended = true;
                    let _ = self.confirm.send(());
                }
                Order::Resume => {
                    self.is_suspended = false;
                    self.resize();
                    if self.to_caller.is_empty() {
                        self.to_caller.set(&self.monitor.reopening());
                    }
                }
                Order::End => return true,
            }
        }
        false
    }

    fn resize(&self) {
        if let Some(size) = self.caller.size() {
            let _ = tcsetwinsize(&self.master, size);
        }
    }

    fn relay(&mut self, ready: &Ready) {
        let at_end = PollFlags::HUP | PollFlags::ERR;
        if ready.master.intersects(PollFlags::IN) && self.to_caller.is_empty() {
            self.read_guest();
        }
        if ready.caller.intersects(PollFlags::IN | at_end) && self.to_guest.is_empty() && self.takes_input {
            // In the background reading fails with EIO, as it does when the terminal is gone.
            let is_open = self.to_guest.fill(self.caller.as_fd());
            if !is_open && self.caller.is_foreground() {
                self.hang_up();
            }
        }
        if !self.to_guest.is_empty() && !self.to_guest.empty(self.master.as_fd()) {
            self.to_guest.clear();
        }
        if self.is_hung_up || !self.to_caller.is_empty() && !self.to_caller.empty(self.caller.as_fd()) {
            self.to_caller.clear();
        }
    }

    /// Reads output of the guest; returns `false` at the end of its terminal.
    fn read_guest(&mut self) -> bool {
        let is_open = self.to_caller.fill(self.master.as_fd());
        self.monitor.look_at(self.to_caller.content());
        is_open
    }

    /// Asks the guest to end, as the kernel does if it is sandpen's controlling terminal.
    fn hang_up(&mut self) {
        if !std::mem::replace(&mut self.is_hung_up, true) {
            let _ = kill_process(getpid(), Signal::HUP);
        }
    }

    /// Writes everything that is in the guest's terminal.
    fn drain(&mut self) {
        loop {
            if !self.write_to_caller() || !self.read_guest() || self.to_caller.is_empty() {
                return;
            }
        }
    }

    /// Writes what is on its way to the caller's terminal; returns `false` if that takes no more.
    fn write_to_caller(&mut self) -> bool {
        let limit = Instant::now() + DRAIN_TIMEOUT;
        while !self.to_caller.is_empty() && !self.is_hung_up {
            if Instant::now() >= limit || !self.to_caller.empty(self.caller.as_fd()) {
                return false;
            }
            if !self.to_caller.is_empty() {
                poll_until(&mut [PollFd::new(&self.caller, PollFlags::OUT)], Some(limit));
            }
        }
        true
    }
}

struct Ready {
    master: PollFlags,
    caller: PollFlags,
}

/// Keeps the kernel from stopping sandpen when it uses the terminal from the background: reading
/// then fails instead.
fn block_stop_signals() {
    // SAFETY: the set is plain data that the calls initialise; only this thread's mask changes.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGTTIN);
        libc::sigaddset(&raw mut blocked, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
    }
}
