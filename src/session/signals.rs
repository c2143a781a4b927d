//! Passes signals that were sent to sandpen on to the engine's client.

use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook::iterator::{Handle, SignalsInfo};

const FORWARDED: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// Signals caught before the client exists, so that none ends sandpen while there is something to clean up.
pub struct Caught(SignalsInfo<WithRawSiginfo>);

/// Forwards until dropped.
pub struct Forwarder {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
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

    /// Forwards everything, also what already came, to a child.
    pub fn forward_to(self, child: u32) -> Forwarder {
        let Caught(mut signals) = self;
        let handle = signals.handle();
        let thread = thread::spawn(move || {
            let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) else { return };
            for info in signals.forever() {
                // What the terminal sends (a positive code) reaches the whole foreground group, the client included.
                if info.si_code > 0 {
                    continue;
                }
                if let Some(signal) = Signal::from_named_raw(info.si_signo) {
                    let _ = kill_process(child, signal);
                }
            }
        });
        Forwarder { handle, thread: Some(thread) }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
