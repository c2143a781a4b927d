//! The loop of the thread that serves a detached sandbox's terminal: it waits for the guest, for
//! clients and for the end.

use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{Connection, Role, is_same_user};
use super::frame::{ClientFrame, LauncherFrame, VERSION};
use super::guest_terminal::GuestTerminal;
use super::server::Presence;

const MAX_WATCHERS: usize = 16;
/// More connections than this are closed at once.
const MAX_CONNECTIONS: usize = 32;
/// The time that clients have to read the last output.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for reading the last output of a guest, of which a process may still be writing.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// The pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// How often the guest's output is read before clients are served again.
const READS_PER_STEP: usize = 8;

pub struct Serve {
    terminal: GuestTerminal,
    listener: UnixListener,
    /// Readable when the thread is to end.
    woken: UnixStream,
    presence: Presence,
    clients: Vec<Connection>,
    /// `Some` while no connections are accepted.
    accept_after: Option<Instant>,
    buffer: Vec<u8>,
}

/// The events that have happened.
struct Ready {
    end: bool,
    listener: bool,
    terminal: PollFlags,
    clients: Vec<PollFlags>,
}

impl Serve {
    pub fn new(terminal: GuestTerminal, listener: UnixListener, woken: UnixStream, presence: Presence) -> Self {
        let buffer = vec![0; 16 * 1024];
        Serve { terminal, listener, woken, presence, clients: Vec::new(), accept_after: None, buffer }
    }

    /// Waits for events and handles them; returns whether the thread goes on.
    pub fn step(&mut self) -> bool {
        let ready = self.wait();
        if ready.end {
            return false;
        }
        if ready.terminal.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            for _ in 0..READS_PER_STEP {
                if !self.read_guest() {
                    break;
                }
            }
        }
        for (index, events) in ready.clients.into_iter().enumerate() {
            self.serve_client(index, events);
        }
        if ready.listener {
            self.accept();
        }
        self.terminal.flush();
        for client in &mut self.clients {
            client.send_redraw(|| self.terminal.screen.redraw());
            client.flush();
        }
        self.clients.retain(|client| !client.is_over());
        self.presence.set(self.clients.iter().any(|client| client.role == Role::Writer));
        true
    }

    fn wait(&mut self) -> Ready {
        if self.accept_after.is_some_and(|time| time <= Instant::now()) {
            self.accept_after = None;
        }
        let timeout = self.accept_after.map(|time| time.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let accepts = if self.accept_after.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN), PollFd::new(&self.listener, accepts)];
        let takes_input = self.terminal.takes_input();
        fds.extend(self.clients.iter().map(|client| PollFd::new(client, client.interest(takes_input))));
        // A closed terminal would be ready for ever.
        if !self.terminal.is_hung_up {
            fds.push(PollFd::new(&self.terminal, self.terminal.interest()));
        }
        let happened: Vec<PollFlags> = match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => fds.iter().map(PollFd::revents).collect(),
            Err(_) => vec![PollFlags::empty(); fds.len()],
        };
        let at = |index: usize| happened.get(index).copied().unwrap_or(PollFlags::empty());
        Ready {
            end: !at(0).is_empty(),
            listener: at(1).contains(PollFlags::IN),
            clients: (0..self.clients.len()).map(|index| at(index + 2)).collect(),
            terminal: at(self.clients.len() + 2),
        }
    }

    /// Reads once; returns whether there may be more.
    fn read_guest(&mut self) -> bool {
        let Some(output) = self.terminal.read(&mut self.buffer) else { return false };
        for client in &mut self.clients {
            client.send_output(output);
        }
        let has_writer = self.clients.iter().any(|client| client.role == Role::Writer);
        self.terminal.answer_queries(has_writer);
        true
    }

    fn serve_client(&mut self, index: usize, events: PollFlags) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if !events.contains(PollFlags::IN) {
            client.is_broken |= events.intersects(PollFlags::HUP | PollFlags::ERR);
            return;
        }
        for frame in client.receive(&mut self.buffer) {
            self.handle(index, frame);
        }
    }

    fn handle(&mut self, index: usize, frame: ClientFrame) {
        let Some(role) = self.clients.get(index).map(|client| client.role) else { return };
        match (role, frame) {
            (Role::New, ClientFrame::Hello { version, rows, cols, read_only }) => {
                if version == VERSION {
                    self.welcome(index, (rows, cols), read_only);
                } else {
                    self.refuse(index, format!("the sandbox was started by another version of sandpen (attach protocol {VERSION}, not {version})"));
                }
            }
            (Role::Writer, ClientFrame::Input(input)) => self.terminal.add_input(&input),
            (Role::Writer, ClientFrame::Resize { rows, cols }) => {
                if self.terminal.resize(rows, cols) {
                    self.redraw_watchers();
                } else {
                    self.redraw(index);
                }
            }
            (Role::Watcher, ClientFrame::Resize { .. }) => self.redraw(index),
            (Role::Watcher, ClientFrame::Input(_)) | (Role::Leaving, _) => {}
            _ => {
                if let Some(client) = self.clients.get_mut(index) {
                    client.is_broken = true;
                }
            }
        }
    }

    fn welcome(&mut self, index: usize, (rows, cols): (u16, u16), read_only: bool) {
        if read_only && self.count(Role::Watcher) >= MAX_WATCHERS {
            self.refuse(index, format!("{MAX_WATCHERS} clients are watching already"));
            return;
        }
        if !read_only {
            for other in self.clients.iter_mut().filter(|other| other.role == Role::Writer) {
                other.close_with(&LauncherFrame::TakenOver);
            }
            if self.terminal.resize(rows, cols) {
                self.redraw_watchers();
            }
        }
        if let Some(client) = self.clients.get_mut(index) {
            client.role = if read_only { Role::Watcher } else { Role::Writer };
            client.send(&LauncherFrame::Welcome);
            client.flush();
            client.needs_redraw = true;
        }
    }

    fn refuse(&mut self, index: usize, reason: String) {
        if let Some(client) = self.clients.get_mut(index) {
            client.close_with(&LauncherFrame::Refused(reason));
        }
    }

    fn redraw(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.needs_redraw = true;
        }
    }

    fn redraw_watchers(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.role == Role::Watcher) {
            client.needs_redraw = true;
        }
    }

    fn count(&self, role: Role) -> usize {
        self.clients.iter().filter(|client| client.role == role).count()
    }

    fn accept(&mut self) {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => {
                self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                return;
            }
        };
        if !is_same_user(&stream) {
            return;
        }
        // A client that says nothing, or does not read its last frame, must not keep others out.
        if self.clients.len() >= MAX_CONNECTIONS
            && let Some(idle) = self.clients.iter().position(|client| !client.is_attached())
        {
            self.clients.remove(idle);
        }
        if self.clients.len() < MAX_CONNECTIONS {
            self.clients.extend(Connection::new(stream));
        }
    }

    /// Sends the last output and the exit code; returns the text of the last screen. Without an exit
    /// code, clients are only disconnected.
    pub fn end(mut self, exit_code: Option<i32>) -> String {
        let limit = Instant::now() + DRAIN_TIMEOUT;
        while Instant::now() < limit && self.read_guest() {}
        if let Some(exit_code) = exit_code {
            for client in &mut self.clients {
                client.finish(|| self.terminal.screen.redraw(), exit_code);
            }
            self.flush_clients();
        }
        self.presence.set(false);
        self.terminal.screen.text()
    }

    fn flush_clients(&mut self) {
        let limit = Instant::now() + END_TIMEOUT;
        loop {
            self.clients.iter_mut().for_each(Connection::flush);
            self.clients.retain(|client| !client.is_flushed());
            let left = limit.saturating_duration_since(Instant::now());
            if self.clients.is_empty() || left.is_zero() {
                return;
            }
            let mut fds: Vec<PollFd<'_>> =
                self.clients.iter().map(|client| PollFd::new(client, PollFlags::OUT)).collect();
            let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        }
    }
}
