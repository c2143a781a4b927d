//! Ends work on what guests leave in the workspace, such as the search for repositories, at a deadline
//! or when the user asks for it. A guest decides how much there is to do.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// How long all of it together may take. Verifying a large fetch takes minutes.
pub const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The number of the signal that arrived since the work began, or 0.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
/// `None` while no work is bounded.
static DEADLINE: Mutex<Option<Instant>> = Mutex::new(None);

/// Why work was stopped. What is left to do is done by the next command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    #[error("it was stopped by signal {0}")]
    Signal(i32),
    #[error("it did not end within {} minutes", TIME_LIMIT.as_secs() / 60)]
    Deadline,
}

/// While it exists, all work that calls [`check`] is bounded together. Work of a launcher whose guest is
/// running is not: signals belong to the guest then.
#[derive(Debug)]
pub struct BoundedWork(());

impl BoundedWork {
    /// Begins work that SIGINT and SIGTERM stop. The caller catches these signals already. A terminal
    /// that hangs up may send SIGHUP more than once, so that one does not stop the work.
    pub fn begin() -> Self {
        for signal in [SIGINT, SIGTERM] {
            // Without it, only the deadline ends the work.
            let _ =
                usize::try_from(signal).map(|number| signal_hook::flag::register_usize(signal, SIGNAL.clone(), number));
        }
        Self::begin_without_signals()
    }

    /// Begins work of a command that a signal ends as usual.
    pub fn begin_without_signals() -> Self {
        SIGNAL.store(0, Ordering::Relaxed);
        set_deadline(Instant::now().checked_add(TIME_LIMIT));
        BoundedWork(())
    }

    /// Returns the signal that stopped the work.
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(SIGNAL.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
    }
}

impl Drop for BoundedWork {
    fn drop(&mut self) {
        set_deadline(None);
    }
}

fn set_deadline(deadline: Option<Instant>) {
    *DEADLINE.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
}

/// Fails if bounded work must stop.
pub fn check() -> Result<(), Stopped> {
    stopped(*DEADLINE.lock().unwrap_or_else(PoisonError::into_inner), SIGNAL.load(Ordering::Relaxed))
}

fn stopped(deadline: Option<Instant>, signal: usize) -> Result<(), Stopped> {
    let Some(deadline) = deadline else { return Ok(()) };
    match i32::try_from(signal) {
        Ok(signal) if signal > 0 => Err(Stopped::Signal(signal)),
        _ if Instant::now() >= deadline => Err(Stopped::Deadline),
        _ => Ok(()),
    }
}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> Self {
        io::Error::other(stopped)
    }
}

/// Returns the stop that an error is.
pub fn stop(error: &io::Error) -> Option<Stopped> {
    error.get_ref()?.downcast_ref().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state of its own: other tests call `check` meanwhile.
    #[test]
    fn work_ends_at_a_signal_and_at_the_deadline_and_only_while_it_is_bounded() {
        let later = Instant::now().checked_add(TIME_LIMIT);
        assert_eq!(stopped(None, 15), Ok(()), "the signal was the guest's");
        assert_eq!(stopped(later, 0), Ok(()));
        assert_eq!(stopped(later, 15), Err(Stopped::Signal(15)));
        assert_eq!(stopped(Some(Instant::now()), 0), Err(Stopped::Deadline));
        assert_eq!(stop(&Stopped::Signal(15).into()), Some(Stopped::Signal(15)));
        assert_eq!(stop(&io::ErrorKind::TimedOut.into()), None);
    }
}
