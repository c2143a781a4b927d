//! Limits how many pushes are served at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub struct PushSlots {
    free: AtomicUsize,
}

/// Dropping it frees the slot.
#[derive(Debug)]
pub struct PushSlot<'a>(&'a AtomicUsize);

impl PushSlots {
    pub fn new(count: usize) -> Self {
        PushSlots { free: AtomicUsize::new(count) }
    }

    /// Returns `None` if none is free.
    pub fn take(&self) -> Option<PushSlot<'_>> {
        let taken = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| free.checked_sub(1));
        taken.ok().map(|_| PushSlot(&self.free))
    }
}

impl Drop for PushSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_it_is_dropped() {
        let slots = PushSlots::new(2);
        let (first, _second) = (slots.take(), slots.take());
        assert!(first.is_some() && slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
    }
}
