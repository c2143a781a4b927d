//! Serves connections in threads: started on demand, kept for a moment for the next connections, up
//! to a maximum.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::server::{MAX_CONNECTIONS, STACK_SIZE};

/// How long a thread waits for another connection before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

pub struct ThreadPool<S> {
    serve: S,
    state: Mutex<PoolState>,
    /// Signalled when a connection is queued.
    queued: Condvar,
    /// Signalled when a connection has ended.
    ended: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<TcpStream>,
    threads: usize,
    idle: usize,
}

impl<S: Fn(&TcpStream) + Send + Sync + 'static> ThreadPool<S> {
    pub fn new(serve: S) -> Self {
        ThreadPool { serve, state: Mutex::default(), queued: Condvar::new(), ended: Condvar::new() }
    }

    /// Blocks while the maximum of connections is being served.
    pub fn wait_for_capacity(&self) {
        let is_full = |state: &mut PoolState| state.threads - state.idle + state.queue.len() >= MAX_CONNECTIONS;
        drop(self.ended.wait_while(self.lock(), is_full));
    }

    /// Queues a connection, and starts a thread if all are busy.
    pub fn submit(self: &Arc<Self>, client: TcpStream) {
        let mut state = self.lock();
        state.queue.push_back(client);
        if state.queue.len() <= state.idle {
            self.queued.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let pool = self.clone();
        if thread::Builder::new().stack_size(STACK_SIZE).spawn(move || pool.serve_queue()).is_err() {
            // The guest sees a closed connection; the next one may get a thread.
            let mut state = self.lock();
            state.threads -= 1;
            state.queue.pop_back();
            drop(state);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn serve_queue(&self) {
        while let Some(client) = self.next() {
            (self.serve)(&client);
        }
    }

    /// Waits for the next connection; `None` if the thread has been idle for too long.
    fn next(&self) -> Option<TcpStream> {
        let mut state = self.lock();
        state.idle += 1;
        self.ended.notify_one();
        let is_empty = |state: &mut PoolState| state.queue.is_empty();
        let (mut state, _) =
            self.queued.wait_timeout_while(state, IDLE_TIMEOUT, is_empty).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        let client = state.queue.pop_front();
        if client.is_none() {
            state.threads -= 1;
        }
        client
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
