//! Threads that serve connections: made when they are needed, kept for a moment for the next ones, so many at most.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::server::{MOST, STACK};

/// How long a thread waits for another connection before it ends.
const IDLE: Duration = Duration::from_secs(2);

/// The threads and what waits for them.
pub struct ThreadPool<S> {
    serve: S,
    state: Mutex<State>,
    /// There is a connection to serve.
    work: Condvar,
    /// A connection has ended.
    room: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<TcpStream>,
    threads: usize,
    idle: usize,
}

impl<S: Fn(&TcpStream) + Send + Sync + 'static> ThreadPool<S> {
    /// Nobody yet.
    pub fn new(serve: S) -> Self {
        ThreadPool { serve, state: Mutex::default(), work: Condvar::new(), room: Condvar::new() }
    }

    /// Waits until another connection may be taken.
    pub fn wait_for_room(&self) {
        let is_full = |state: &mut State| state.threads - state.idle + state.waiting.len() >= MOST;
        drop(self.room.wait_while(self.lock(), is_full));
    }

    /// Hands a connection to a thread, a new one if all are busy.
    pub fn give(self: &Arc<Self>, client: TcpStream) {
        let mut state = self.lock();
        state.waiting.push_back(client);
        if state.waiting.len() <= state.idle {
            self.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let thread_pool = self.clone();
        if thread::Builder::new().stack_size(STACK).spawn(move || thread_pool.work()).is_err() {
            // The guest sees a closed connection; the next one may find a thread.
            let mut state = self.lock();
            state.threads -= 1;
            state.waiting.pop_back();
            drop(state);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn work(&self) {
        while let Some(client) = self.next() {
            (self.serve)(&client);
        }
    }

    /// The next connection, unless none comes for a while.
    fn next(&self) -> Option<TcpStream> {
        let mut state = self.lock();
        state.idle += 1;
        self.room.notify_one();
        let has_none = |state: &mut State| state.waiting.is_empty();
        let (mut state, _) =
            self.work.wait_timeout_while(state, IDLE, has_none).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        let client = state.waiting.pop_front();
        if client.is_none() {
            state.threads -= 1;
        }
        client
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
