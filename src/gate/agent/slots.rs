//! Limits the number of connections. If there is none left, the connection that has been idle for the
//! longest time is closed, so that a guest which holds connections open only takes from itself.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most connections at a time.
pub const MAX_CONNECTIONS: usize = 32;
/// A connection that is idle for less time is not closed for another: ssh waits for its server between
/// two requests.
const MIN_IDLE: Duration = Duration::from_secs(2);
/// How often a waiting connection looks for a free slot.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Slots {
    table: Arc<(Mutex<Table>, Condvar)>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    stream: UnixStream,
    /// `None` while a request is being answered.
    idle_since: Option<Instant>,
}

/// The place of one connection. Dropping it makes the place free.
#[derive(Debug)]
pub struct Slot {
    number: u64,
    table: Arc<(Mutex<Table>, Condvar)>,
}

impl Slots {
    /// Waits for a free place; `None` if the connection cannot be used.
    pub fn take(&self, stream: &UnixStream) -> Option<Slot> {
        let stream = stream.try_clone().ok()?;
        let (table, freed) = &*self.table;
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        while table.entries.len() >= MAX_CONNECTIONS {
            let idle = table.entries.iter().filter_map(|entry| Some((entry.idle_since?, entry)));
            if let Some((since, entry)) = idle.min_by_key(|(since, _)| *since)
                && since.elapsed() >= MIN_IDLE
            {
                let _ = entry.stream.shutdown(Shutdown::Both);
            }
            table = freed.wait_timeout(table, RETRY_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        let number = table.next;
        table.next += 1;
        table.entries.push(Entry { number, stream, idle_since: Some(Instant::now()) });
        Some(Slot { number, table: self.table.clone() })
    }
}

impl Slot {
    /// Notes that the connection waits for the guest, or that it works for it.
    pub fn set_idle(&self, is_idle: bool) {
        let mut table = self.table.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = table.entries.iter_mut().find(|entry| entry.number == self.number) {
            entry.idle_since = is_idle.then(Instant::now);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.table.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.entries.retain(|entry| entry.number != self.number);
        self.table.1.notify_one();
    }
}
