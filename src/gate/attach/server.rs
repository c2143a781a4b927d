//! Serves the terminal of a detached sandbox: a thread of the launcher reads the guest's output for
//! ever, keeps the screen, and connects clients of `sandpen attach` to it.

use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::guest_terminal::GuestTerminal;
use super::serve::Serve;

/// The file beside the socket that exists while a client is attached for input.
const ATTACHED_FILE: &str = "attached";

/// The thread that serves clients.
pub struct AttachServer {
    thread: Option<JoinHandle<String>>,
    exit_code: Sender<i32>,
    wake: UnixStream,
}

impl AttachServer {
    /// Starts to serve the terminal whose master is given. The listener's socket must be in
    /// `session`, a directory that belongs to the user. Until a client attaches, the terminal has the
    /// given size.
    pub fn start(master: OwnedFd, listener: UnixListener, session: &Path, rows: u16, cols: u16) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (wake, woken) = UnixStream::pair()?;
        let (exit_code, finished) = mpsc::channel();
        let presence = Presence { is_attached: Cell::new(false), file: session.join(ATTACHED_FILE) };
        let terminal = GuestTerminal::new(master, rows, cols)?;
        let serve = Serve::new(terminal, listener, woken, presence);
        let thread = thread::Builder::new().name("attach".into()).spawn(move || run(serve, &finished))?;
        Ok(AttachServer { thread: Some(thread), exit_code, wake })
    }

    /// Reads what the guest has written until now, sends it and the exit code to all clients, and
    /// returns the text of the last screen. The guest has ended.
    pub fn finish(mut self, exit_code: i32) -> String {
        // The thread ends only when it is told to, so that it receives this.
        let _ = self.exit_code.send(exit_code);
        self.join()
    }

    fn join(&mut self) -> String {
        let _ = (&self.wake).write_all(b"x");
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for AttachServer {
    /// Disconnects all clients.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.join();
        }
    }
}

/// Returns whether a client is attached for input to the sandbox with this session directory. The
/// answer is old where the launcher was killed.
pub fn is_attached(session: &Path) -> bool {
    session.join(ATTACHED_FILE).exists()
}

fn run(mut serve: Serve, finished: &Receiver<i32>) -> String {
    while serve.step() {}
    serve.end(finished.try_recv().ok())
}

/// Tells other processes whether a client is attached.
pub struct Presence {
    is_attached: Cell<bool>,
    file: PathBuf,
}

impl Presence {
    pub fn set(&self, is_attached: bool) {
        if self.is_attached.replace(is_attached) == is_attached {
            return;
        }
        // It is for display only: a failure must not end the session.
        let _ = if is_attached { fs::write(&self.file, "") } else { fs::remove_file(&self.file) };
    }
}
