//! Reports long waits on stderr. On a terminal the line counts the seconds and disappears afterwards;
//! elsewhere it is one line. `-q` hides it.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Ui;

const DELAY: Duration = Duration::from_millis(700);
/// Engines are slow and usually print their own progress.
const ENGINE_DELAY: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_secs(1);

/// Reports a wait until it is dropped. It runs a thread, so it must be dropped before the process
/// forks.
#[derive(Debug)]
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts a counting line. Nothing else may write to the terminal meanwhile.
    pub fn start(ui: Ui, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::spawn(ui, move |stopped_within| {
            let begun = Instant::now();
            if stopped_within(DELAY) {
                return;
            }
            if !ui.has_status_line() {
                return ui.notice(&format!("waiting for {what}"));
            }
            while {
                ui.status(&format!("waiting for {what} ({} s)", begun.elapsed().as_secs()));
                !stopped_within(TICK)
            } {}
            ui.status("");
        })
    }

    /// Prints one line after a while, if `silent` finds that the engine has printed nothing itself.
    pub fn beside(ui: Ui, what: impl Into<String>, silent: impl FnOnce() -> bool + Send + 'static) -> Self {
        let what = what.into();
        Self::spawn(ui, move |stopped_within| {
            if !stopped_within(ENGINE_DELAY) && silent() && !stopped_within(Duration::ZERO) {
                ui.notice(&format!("waiting for {what}"));
            }
        })
    }

    fn spawn(ui: Ui, report: impl FnOnce(&dyn Fn(Duration) -> bool) + Send + 'static) -> Self {
        if ui.is_quiet() {
            return Progress { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel();
        let stopped_within = move |timeout| !matches!(stopped.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
        Progress { stop: Some(stop), thread: Some(thread::spawn(move || report(&stopped_within))) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
