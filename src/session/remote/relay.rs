//! Relays the streams, the terminal and the signals of a command on another machine, until the helper says how
//! it ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::stdio::{stderr, stdin, stdout};

use super::connection::{Connection, LostLink};
use super::returns::Returns;
use crate::gate::terminal::CallerTerminal;
use crate::link::{LinkFrame, LinkWriter, Stream, Window};
use crate::process::status_file::CommandStatus;

const BUFFER: usize = 32 * 1024;

/// The end of a relayed command.
#[derive(Debug)]
pub enum RelayEnd {
    Status(CommandStatus),
    /// The first process of the guest has ended without a status.
    GuestLost,
    /// The keeper cannot go on.
    Failed(String),
    Lost(LostLink),
}

/// The caller's terminal in raw mode, while it is the guest's.
pub struct RawCaller {
    /// Dropping it restores the settings.
    _terminal: Option<CallerTerminal>,
}

impl RawCaller {
    pub fn enter(wanted: bool) -> Self {
        let mut terminal = if wanted { CallerTerminal::find() } else { None };
        if let Some(terminal) = terminal.as_mut().filter(|terminal| terminal.is_foreground()) {
            terminal.set_raw();
        }
        RawCaller { _terminal: terminal }
    }
}

/// Returns rows and columns of the caller's terminal.
pub fn terminal_size() -> (u16, u16) {
    let size = CallerTerminal::find().and_then(|terminal| terminal.size());
    let known = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    known.map_or((24, 80), |size| (size.ws_row, size.ws_col))
}

/// Returns the frame that passes a signal on: a new size for SIGWINCH.
pub fn signal_frame(signal: i32, has_terminal: bool) -> Option<LinkFrame> {
    match signal {
        libc::SIGWINCH if has_terminal => {
            let (rows, columns) = terminal_size();
            Some(LinkFrame::Resize { rows, columns })
        }
        libc::SIGWINCH => None,
        signal => Some(LinkFrame::Signal(signal)),
    }
}

/// Relays until the command has ended.
pub fn run(
    connection: &Connection,
    mut returns: Option<&mut Returns>,
    mut on_start: Option<&mut dyn FnMut()>,
) -> RelayEnd {
    let link = &connection.writer;
    let input = Arc::new(Window::default());
    send_input(input.clone(), link.clone());
    let (out, out_thread) = write_output(Stream::Stdout, link.clone());
    let (errors, errors_thread) = write_output(Stream::Stderr, link.clone());
    let end = loop {
        match connection.next() {
            Ok(LinkFrame::Output { stream: Stream::Stderr, bytes }) => drop(errors.send(bytes)),
            Ok(LinkFrame::Output { bytes, .. }) => drop(out.send(bytes)),
            Ok(LinkFrame::Credit { bytes, .. }) => input.add(bytes as usize),
            Ok(LinkFrame::Status(text)) => match CommandStatus::parse(&text) {
                Some(CommandStatus::Started) => {
                    if let Some(on_start) = on_start.take() {
                        on_start();
                    }
                }
                Some(status) => break RelayEnd::Status(status),
                None => break RelayEnd::Failed("the status of the command is not understood".into()),
            },
            Ok(LinkFrame::GuestLost) => break RelayEnd::GuestLost,
            Ok(LinkFrame::Failed(reason)) => break RelayEnd::Failed(reason),
            Ok(frame) => {
                if let Some(returns) = &mut returns {
                    returns.take(frame, link);
                }
            }
            Err(lost) => break RelayEnd::Lost(lost),
        }
    };
    input.close();
    drop((out, errors));
    // All output came before the status: it is written before sandpen ends.
    for thread in [out_thread, errors_thread] {
        let _ = thread.join();
    }
    end
}

/// Sends stdin in a thread, which ends with this process if nothing more comes.
fn send_input(window: Arc<Window>, link: LinkWriter) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; BUFFER];
        while let Some(most) = window.take(BUFFER) {
            let read = loop {
                match rustix::io::read(stdin(), buffer.get_mut(..most).unwrap_or_default()) {
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => wait_readable(),
                    read => break read,
                }
            };
            let count = read.unwrap_or(0);
            window.add(most - count.min(most));
            let frame = match count {
                0 => LinkFrame::InputEnd,
                count => LinkFrame::Input(buffer.get(..count).unwrap_or_default().to_vec()),
            };
            if link.send(&frame).is_err() || count == 0 {
                return;
            }
        }
    });
}

fn wait_readable() {
    let mut descriptors = [rustix::event::PollFd::from_borrowed_fd(stdin(), rustix::event::PollFlags::IN)];
    let _ = rustix::event::poll(&mut descriptors, None);
}

/// Writes output in a thread, and says when it is written. If nobody reads it any more, the command
/// gets SIGPIPE, as it would have without a sandbox.
fn write_output(stream: Stream, link: LinkWriter) -> (mpsc::Sender<Vec<u8>>, JoinHandle<()>) {
    let (sender, outputs) = mpsc::channel::<Vec<u8>>();
    let thread = std::thread::spawn(move || {
        let target = if stream == Stream::Stderr { stderr() } else { stdout() };
        let mut is_open = true;
        for bytes in outputs {
            if is_open && write_all(target, &bytes).is_err() {
                is_open = false;
                let _ = link.send(&LinkFrame::Signal(libc::SIGPIPE));
            }
            let bytes = u32::try_from(bytes.len()).unwrap_or_default();
            let _ = link.send(&LinkFrame::Credit { stream, bytes });
        }
    });
    (sender, thread)
}

fn write_all(target: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let flags = rustix::event::PollFlags::OUT;
                let mut descriptors = [rustix::event::PollFd::from_borrowed_fd(target.as_fd(), flags)];
                let _ = rustix::event::poll(&mut descriptors, None);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
