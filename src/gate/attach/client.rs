//! `sandpen attach`: shows the screen of a detached sandbox on the caller's terminal and passes keys
//! to it, until the user detaches or the sandbox ends.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};
use rustix::termios::isatty;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::detach_keys::{DetachFilter, DetachKeys};
use super::frame::{ClientFrame, Decoder, Frame, LauncherFrame, VERSION};
use super::raw_terminal::{RawTerminal, terminal_size};
use crate::error::{Diagnostic, Kind};
use crate::gate::terminal::OutputMonitor;
use crate::process::socket_path;

/// The time for a launcher to answer.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// No more is read from either side while so many bytes wait for the other, in bytes.
const MAX_WAITING: usize = 64 * 1024;
/// Ctrl-C detaches a client that only watches.
const CONTROL_C: u8 = 0x03;

/// How to attach.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// Only shows the screen.
    pub read_only: bool,
    /// The keys that detach.
    pub detach_keys: DetachKeys,
}

/// Why an attachment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachEnd {
    /// The user detached, or the terminal was closed.
    Detached,
    /// The sandbox ended with this exit code.
    Ended(i32),
    /// Another client took over.
    TakenOver,
    /// The launcher was killed.
    Lost,
    /// A signal asked this process to end.
    Signal(i32),
}

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("cannot connect to the sandbox at `{}`", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("cannot attach: {reason}")]
    Refused { reason: String },
    #[error("the launcher of the sandbox does not answer")]
    NoAnswer { source: io::Error },
    #[error("stdin and stdout must be a terminal")]
    NoTerminal,
    #[error("cannot use the terminal")]
    Terminal { source: io::Error },
}

impl Diagnostic for AttachError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Connect { .. } => vec!["list sandboxes with `sandpen ps --all`".to_owned()],
            Self::NoTerminal => vec!["to watch without input, use `--read-only`".to_owned()],
            _ => Vec::new(),
        }
    }
}

/// Attaches the terminal on stdin and stdout to the sandbox whose launcher listens at `socket`.
pub fn attach(socket: &Path, options: AttachOptions) -> Result<AttachEnd, AttachError> {
    let connected = socket_path::connect(socket);
    let stream = connected.map_err(|source| AttachError::Connect { path: socket.to_owned(), source })?;
    attach_stream(stream, stdin(), stdout(), options)
}

pub(super) fn attach_stream(
    mut stream: UnixStream,
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    options: AttachOptions,
) -> Result<AttachEnd, AttachError> {
    if !isatty(output) || !isatty(input) && !options.read_only {
        return Err(AttachError::NoTerminal);
    }
    let (rows, cols) = terminal_size(output);
    let mut to_launcher = Vec::new();
    ClientFrame::Hello { version: VERSION, rows, cols, read_only: options.read_only }.encode(&mut to_launcher);
    let mut decoder = Decoder::default();
    let answer = greet(&mut stream, &to_launcher, &mut decoder);
    match answer.map_err(|source| AttachError::NoAnswer { source })? {
        LauncherFrame::Welcome => {}
        LauncherFrame::Refused(reason) => return Err(AttachError::Refused { reason }),
        _ => return Ok(AttachEnd::Lost),
    }
    // Before the terminal is in raw mode, so that no signal leaves it there.
    let terminal_error = |source| AttachError::Terminal { source };
    let signals = Signals::start().map_err(terminal_error)?;
    let terminal = match RawTerminal::enter(input, output) {
        Ok(terminal) => terminal,
        // It has hung up since the hello.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => return Ok(AttachEnd::Detached),
        Err(error) => return Err(terminal_error(error)),
    };
    stream.set_nonblocking(true).map_err(terminal_error)?;
    let mut relay = Relay {
        stream,
        decoder,
        terminal,
        signals,
        filter: DetachFilter::new(options.detach_keys),
        monitor: OutputMonitor::default(),
        read_only: options.read_only,
        is_input_open: true,
        to_launcher: Vec::new(),
        to_terminal: Vec::new(),
        buffer: vec![0; 16 * 1024],
    };
    let end = relay.run();
    let shown = std::mem::take(&mut relay.to_terminal);
    relay.terminal.write_last(&shown);
    relay.terminal.write_last(&relay.monitor.closing());
    if relay.monitor.take_recent_query() {
        relay.terminal.drop_answers();
    }
    relay.terminal.ends_below_screen = !matches!(end, AttachEnd::Ended(_));
    Ok(end)
}

/// Sends the hello and waits for the first frame.
pub(super) fn greet(
    stream: &mut UnixStream,
    hello: &[u8],
    decoder: &mut Decoder<LauncherFrame>,
) -> io::Result<LauncherFrame> {
    stream.set_read_timeout(Some(WELCOME_TIMEOUT))?;
    stream.write_all(hello)?;
    let mut buffer = [0; 4096];
    loop {
        if let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            return Ok(frame);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => decoder.push(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    fn start() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let caught = [SIGWINCH, SIGCONT, SIGTERM, SIGHUP, SIGINT, SIGQUIT];
        SignalDelivery::with_pipe(read, write, SignalOnly, caught).map(Signals)
    }
}

struct Relay<'fd> {
    stream: UnixStream,
    decoder: Decoder<LauncherFrame>,
    terminal: RawTerminal<'fd>,
    signals: Signals,
    filter: DetachFilter,
    monitor: OutputMonitor,
    read_only: bool,
    is_input_open: bool,
    /// Encoded frames.
    to_launcher: Vec<u8>,
    to_terminal: Vec<u8>,
    buffer: Vec<u8>,
}

/// The events that have happened.
struct Ready {
    signals: bool,
    output: PollFlags,
    input: bool,
    stream: bool,
}

impl Relay<'_> {
    fn run(&mut self) -> AttachEnd {
        loop {
            // The first frames may have come together with the welcome.
            if let Some(end) = self.take_frames() {
                return end;
            }
            let ready = self.wait();
            let end = (if ready.signals { self.handle_signals() } else { None })
                .or_else(|| self.flush_terminal(ready.output))
                .or_else(|| if ready.input { self.read_input() } else { None })
                .or_else(|| self.exchange(ready.stream));
            if let Some(end) = end {
                return end;
            }
        }
    }

    fn wait(&self) -> Ready {
        let mut fds = vec![PollFd::new(self.signals.0.get_read(), PollFlags::IN)];
        let output = self.terminal.output();
        let wanted = if self.to_terminal.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        fds.push(PollFd::new(&output, wanted));
        let takes_input = self.is_input_open && self.to_launcher.len() < MAX_WAITING;
        let takes_output = self.to_terminal.len() < MAX_WAITING;
        let input = self.terminal.input();
        if takes_input {
            fds.push(PollFd::new(&input, PollFlags::IN));
        }
        if takes_output {
            let wanted = if self.to_launcher.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            fds.push(PollFd::new(&self.stream, wanted));
        }
        let happened: Vec<PollFlags> = match poll(&mut fds, None) {
            Ok(_) => fds.iter().map(PollFd::revents).collect(),
            Err(_) => Vec::new(),
        };
        let at = |index: usize| happened.get(index).copied().unwrap_or(PollFlags::empty());
        Ready {
            signals: !at(0).is_empty(),
            output: at(1),
            input: takes_input && !at(2).is_empty(),
            stream: takes_output && !at(2 + usize::from(takes_input)).is_empty(),
        }
    }

    fn handle_signals(&mut self) -> Option<AttachEnd> {
        let arrived: Vec<i32> = self.signals.0.pending().collect();
        for signal in arrived {
            match signal {
                SIGWINCH => self.send_size(),
                SIGCONT => {
                    // A shell may have changed the terminal meanwhile. The launcher answers the old
                    // size with a redraw.
                    let _ = self.terminal.make_raw();
                    self.send_size();
                }
                SIGHUP => return Some(AttachEnd::Detached),
                signal => return Some(AttachEnd::Signal(signal)),
            }
        }
        None
    }

    fn send_size(&mut self) {
        let (rows, cols) = self.terminal.size();
        ClientFrame::Resize { rows, cols }.encode(&mut self.to_launcher);
    }

    fn flush_terminal(&mut self, events: PollFlags) -> Option<AttachEnd> {
        if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Some(AttachEnd::Detached);
        }
        if !events.contains(PollFlags::OUT) {
            return None;
        }
        match rustix::io::write(self.terminal.output(), &self.to_terminal) {
            Ok(written) => drop(self.to_terminal.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Some(AttachEnd::Detached),
        }
        None
    }

    fn read_input(&mut self) -> Option<AttachEnd> {
        let typed = match rustix::io::read(self.terminal.input(), &mut *self.buffer) {
            Ok(length) if length > 0 => self.buffer.get(..length).unwrap_or_default(),
            Err(Errno::AGAIN | Errno::INTR) => return None,
            _ if self.terminal.is_input_terminal() => return Some(AttachEnd::Detached),
            _ => {
                self.is_input_open = false;
                return None;
            }
        };
        let mut passed = Vec::new();
        let detaches = self.filter.filter(typed, &mut passed);
        let detaches = detaches || self.read_only && typed.contains(&CONTROL_C);
        if !self.read_only && !passed.is_empty() {
            ClientFrame::Input(passed).encode(&mut self.to_launcher);
        }
        if detaches {
            // What was typed before is still the guest's.
            self.send_to_launcher();
            return Some(AttachEnd::Detached);
        }
        None
    }

    /// Sends what waits for the launcher, and receives if there is something.
    fn exchange(&mut self, is_ready: bool) -> Option<AttachEnd> {
        self.send_to_launcher();
        if !is_ready {
            return None;
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Some(AttachEnd::Lost),
            Ok(length) => {
                self.decoder.push(self.buffer.get(..length).unwrap_or_default());
                None
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => Some(AttachEnd::Lost),
        }
    }

    fn send_to_launcher(&mut self) {
        while !self.to_launcher.is_empty() {
            match self.stream.write(&self.to_launcher) {
                Ok(written) => drop(self.to_launcher.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A launcher that is gone shows when its end of file is read, after its last frames.
                Err(_) => return,
            }
        }
    }

    fn take_frames(&mut self) -> Option<AttachEnd> {
        loop {
            match self.decoder.next_frame() {
                Ok(None) => return None,
                Ok(Some(LauncherFrame::Output(output))) => {
                    self.monitor.look_at(&output);
                    self.to_terminal.extend_from_slice(&output);
                }
                Ok(Some(LauncherFrame::Ended { exit_code })) => return Some(AttachEnd::Ended(exit_code)),
                Ok(Some(LauncherFrame::TakenOver)) => return Some(AttachEnd::TakenOver),
                Ok(Some(LauncherFrame::Welcome | LauncherFrame::Refused(_))) | Err(_) => return Some(AttachEnd::Lost),
            }
        }
    }
}
