//! Limits what is on its way in one stream: without a limit, a slow reader of one stream would hold up
//! all others.

use std::sync::{Condvar, Mutex, PoisonError};

/// The most bytes on their way.
pub const WINDOW: usize = 256 * 1024;

/// The bytes that may still be sent.
#[derive(Debug)]
pub struct Window {
    /// `None` once it is closed.
    credit: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Default for Window {
    fn default() -> Self {
        Window { credit: Mutex::new(Some(WINDOW)), changed: Condvar::new() }
    }
}

impl Window {
    /// Waits until something may be sent, and takes at most `most` bytes; `None` if it was closed.
    pub fn take(&self, most: usize) -> Option<usize> {
        let mut credit = self.credit.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &mut *credit {
                None => return None,
                Some(0) => credit = self.changed.wait(credit).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let taken = most.min(*left);
                    *left -= taken;
                    return Some(taken);
                }
            }
        }
    }

    /// Gives back what was taken and not sent, or what the other end has dealt with. More than the
    /// window is never in it, whatever the other end says.
    pub fn add(&self, bytes: usize) {
        let mut credit = self.credit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = &mut *credit {
            *left = left.saturating_add(bytes).min(WINDOW);
        }
        self.changed.notify_all();
    }

    /// Ends all waiting.
    pub fn close(&self) {
        *self.credit.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_window_is_given() {
        let window = Window::default();
        assert_eq!(window.take(WINDOW - 10), Some(WINDOW - 10));
        assert_eq!(window.take(100), Some(10));
        window.add(5);
        assert_eq!(window.take(100), Some(5));
        window.add(usize::MAX);
        assert_eq!(window.take(usize::MAX), Some(WINDOW));
        window.close();
        assert_eq!(window.take(1), None);
    }

    #[test]
    fn waiting_ends_with_credit_and_when_it_is_closed() {
        let window = Window::default();
        window.take(WINDOW);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| window.take(7));
            window.add(3);
            assert_eq!(waiting.join().ok(), Some(Some(3)));
            let waiting = scope.spawn(|| window.take(7));
            window.close();
            assert_eq!(waiting.join().ok(), Some(None));
        });
    }
}
