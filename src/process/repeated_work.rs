//! Repeats a piece of work in another thread until it is stopped.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Tells threads that wait between two repetitions to end.
#[derive(Debug, Clone, Default)]
struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Waits for the next repetition. Returns `false` if there is none.
    fn is_continued(&self, interval: Duration) -> bool {
        let (is_stopped, condition) = &*self.0;
        let waited = is_stopped.lock().ok().and_then(|guard| {
            let (guard, _) = condition.wait_timeout_while(guard, interval, |stop| !*stop).ok()?;
            Some(!*guard)
        });
        waited.unwrap_or(false)
    }

    fn set(&self) {
        if let Ok(mut stop) = self.0.0.lock() {
            *stop = true;
        }
        self.0.1.notify_all();
    }
}

/// Work on a value in a thread of its own.
#[derive(Debug)]
pub struct RepeatedWork<T> {
    thread: JoinHandle<T>,
    stop: Stop,
}

impl<T: Send + 'static> RepeatedWork<T> {
    /// Does the work for the first time after one interval.
    pub fn start(interval: Duration, mut value: T, mut work: impl FnMut(&mut T) + Send + 'static) -> Self {
        let stop = Stop::default();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while stopped.is_continued(interval) {
                work(&mut value);
            }
            value
        });
        RepeatedWork { thread, stop }
    }

    /// Ends the thread, after the work that it may be busy with, and returns the value. `None` after a
    /// panic.
    pub fn stop(self) -> Option<T> {
        self.stop.set();
        self.thread.join().ok()
    }
}
