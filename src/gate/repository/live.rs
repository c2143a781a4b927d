//! Exchanges what changes while the guest is running, once a second, in another thread.

use std::fs::File;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{FILE, RepositoryExchange};

/// Changes are noticed after at most two seconds.
const INTERVAL: Duration = Duration::from_secs(1);

/// An exchange in another thread, once a second.
pub struct LiveExchange {
    thread: JoinHandle<RepositoryExchange>,
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl LiveExchange {
    pub fn start(mut exchange: RepositoryExchange) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (stopped, file) = (Arc::clone(&stop), exchange.scratch.join(FILE));
        // Another thread, because an exchange may take minutes.
        std::thread::spawn(move || {
            while is_continued(&stopped) {
                // The time of this file tells when the launcher was last alive.
                if let Ok(file) = File::options().append(true).open(&file) {
                    let _ = file.set_modified(std::time::SystemTime::now());
                }
            }
        });
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while is_continued(&stopped) {
                exchange.exchange_if_changed();
            }
            exchange
        });
        LiveExchange { thread, stop }
    }

    /// Ends the thread, after the exchange that it may be busy with.
    pub fn stop(self) -> Option<RepositoryExchange> {
        if let Ok(mut stop) = self.stop.0.lock() {
            *stop = true;
        }
        self.stop.1.notify_all();
        self.thread.join().ok()
    }
}

/// Waits for the next exchange. Returns `false` if there is none.
fn is_continued(stop: &(Mutex<bool>, Condvar)) -> bool {
    let (is_stopped, condition) = stop;
    let waited = is_stopped.lock().ok().and_then(|guard| {
        let (guard, _) = condition.wait_timeout_while(guard, INTERVAL, |stop| !*stop).ok()?;
        Some(!*guard)
    });
    waited.unwrap_or(false)
}
