//! Waits for the engine's client to exit, and kills a client that waits for an engine that does not
//! answer.

use std::process::Child;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::stdio::{stderr, stdout};

use super::end_calls::EndCalls;

/// How often the guest's status is read.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a client may take to exit after the guest.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A client's process that is not reaped before all threads are done with it, so that its id stays
/// its own.
#[derive(Debug, Clone, Copy)]
pub struct ClientProcess(Option<Pid>);

impl ClientProcess {
    pub fn of(child: &Child) -> Self {
        ClientProcess(i32::try_from(child.id()).ok().and_then(Pid::from_raw))
    }

    /// Waits until the process has exited, without reaping it. Kills it if `has_guest_ended` and the
    /// engine does not answer.
    pub fn wait(self, has_guest_ended: impl Fn() -> bool, calls: &EndCalls, container: &str) {
        let (sender, exited) = mpsc::channel::<()>();
        thread::spawn(move || {
            self.await_exit();
            drop(sender);
        });
        let mut ended_at = None;
        while exited.recv_timeout(STATUS_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            // A reader that is slow, such as a pager, holds the client up, too.
            if !has_guest_ended() || !is_output_writable() {
                ended_at = None;
            } else if ended_at.get_or_insert_with(Instant::now).elapsed() >= EXIT_TIMEOUT {
                ended_at = None;
                if !calls.engine_answers(container) {
                    self.kill();
                }
            }
        }
    }

    /// Waits until the process has exited, without reaping it.
    pub fn await_exit(self) {
        while self.check(WaitIdOptions::empty()) == Err(Errno::INTR) {}
    }

    /// Kills the process, unless it exits within `timeout`.
    pub fn kill_after(self, timeout: Duration) {
        let limit = Instant::now() + timeout;
        while self.check(WaitIdOptions::NOHANG) == Ok(false) {
            if Instant::now() >= limit {
                return self.kill();
            }
            thread::sleep(EXIT_POLL_INTERVAL);
        }
    }

    fn kill(self) {
        if let Some(pid) = self.0 {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Returns whether it has exited.
    fn check(self, options: WaitIdOptions) -> Result<bool, Errno> {
        let pid = self.0.ok_or(Errno::CHILD)?;
        Ok(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | options)?.is_some())
    }
}

fn is_output_writable() -> bool {
    let mut streams = [stdout(), stderr()].map(|stream| PollFd::from_borrowed_fd(stream, PollFlags::OUT));
    let _ = poll(&mut streams, Some(&Timespec::default()));
    streams.iter().all(|stream| !stream.revents().is_empty())
}
