//! A long wait is never silent: after a moment it says what is waited for. On a terminal the line counts the seconds and goes when
//! the wait is over; elsewhere it is one line. Never on stdout, and not with `-q`.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::ui::Ui;

/// A wait that is shorter needs no word.
const MOMENT: Duration = Duration::from_millis(700);
/// Engines take their time, and mostly have words of their own.
const LONG: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_secs(1);

/// A wait; it is over when this is dropped. Has a thread of its own, so it must be over before anything forks.
#[derive(Debug)]
pub struct Progress {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Nobody else writes to the terminal meanwhile.
    pub fn start(ui: Ui, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::spawn(ui, move |over| {
            let begun = Instant::now();
            if over(MOMENT) {
                return;
            }
            if !ui.counts() {
                return ui.notice(&format!("waiting for {what}"));
            }
            while {
                ui.count(&format!("waiting for {what} ({} s)", begun.elapsed().as_secs()));
                !over(TICK)
            } {}
            ui.count("");
        })
    }

    /// Others may write to the terminal meanwhile, so it is one line; and only if `silent` finds that they do not.
    pub fn beside(ui: Ui, what: impl Into<String>, silent: impl FnOnce() -> bool + Send + 'static) -> Self {
        let what = what.into();
        Self::spawn(ui, move |over| {
            if !over(LONG) && silent() && !over(Duration::ZERO) {
                ui.notice(&format!("waiting for {what}"));
            }
        })
    }

    fn spawn(ui: Ui, tell: impl FnOnce(&dyn Fn(Duration) -> bool) + Send + 'static) -> Self {
        if ui.is_quiet() {
            return Progress { over: None, thread: None };
        }
        let (over, news) = mpsc::channel();
        let is_over = move |timeout| !matches!(news.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
        Progress { over: Some(over), thread: Some(thread::spawn(move || tell(&is_over))) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
