//! The caller's terminal in raw mode, for `sandpen attach`. Dropping it restores the settings and the
//! modes, however the attachment ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, ttyname};

use super::screen::reset_sequence;
use crate::gate::terminal::drop_answers;
use crate::process::terminal_at_panic;

/// The time for the last bytes to a terminal that takes none.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// A terminal for input and output, which are usually the same one.
pub struct RawTerminal<'fd> {
    input: BorrowedFd<'fd>,
    /// The settings of the input; `None` if it is not a terminal.
    settings: Option<Termios>,
    /// A separate open file, which does not block. The flags of the caller's are shared with other
    /// processes.
    output: OwnedFd,
    /// Whether the next prompt needs a line below the screen.
    pub ends_below_screen: bool,
}

impl<'fd> RawTerminal<'fd> {
    /// Puts the input into raw mode, and scrolls what is on the screen out of the way.
    pub fn enter(input: BorrowedFd<'fd>, output: BorrowedFd<'fd>) -> io::Result<Self> {
        let settings = match tcgetattr(input) {
            Ok(settings) => Some(settings),
            Err(Errno::NOTTY | Errno::INVAL) => None,
            // The kernel answers `EIO` if the terminal has hung up.
            Err(errno) => return Err(errno.into()),
        };
        let terminal = RawTerminal { input, settings, output: open_nonblocking(output)?, ends_below_screen: true };
        terminal.make_raw()?;
        let (rows, _) = terminal.size();
        // The title is saved where the terminal can do that.
        let scrolled = format!("\x1b[22;2t\x1b[{rows};1H{}", "\n".repeat(rows.into()));
        terminal.write_last(scrolled.as_bytes());
        Ok(terminal)
    }

    /// Enters raw mode, also again after the process was stopped.
    pub fn make_raw(&self) -> io::Result<()> {
        if let Some(settings) = &self.settings {
            let mut raw = settings.clone();
            raw.make_raw();
            terminal_at_panic::restore_at_panic(self.input, settings, reset_sequence());
            tcsetattr(self.input, OptionalActions::Now, &raw)?;
        }
        Ok(())
    }

    pub fn is_input_terminal(&self) -> bool {
        self.settings.is_some()
    }

    pub fn input(&self) -> BorrowedFd<'fd> {
        self.input
    }

    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Takes the answers to queries of the guest, which would reach the shell.
    pub fn drop_answers(&self) {
        if self.is_input_terminal() {
            drop_answers(self.input, self.output.as_fd());
        }
    }

    /// Returns rows and columns.
    pub fn size(&self) -> (u16, u16) {
        terminal_size(self.output.as_fd())
    }

    /// Writes all bytes, unless the terminal takes none for some time or is gone.
    pub fn write_last(&self, mut bytes: &[u8]) {
        let limit = Instant::now() + LAST_WRITE_TIMEOUT;
        while !bytes.is_empty() {
            match rustix::io::write(&self.output, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = limit.saturating_duration_since(Instant::now());
                    let timeout = Timespec::try_from(left).ok();
                    let mut fds = [PollFd::new(&self.output, PollFlags::OUT)];
                    if left.is_zero() || poll(&mut fds, timeout.as_ref()) == Ok(0) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

impl Drop for RawTerminal<'_> {
    fn drop(&mut self) {
        let mut leave = reset_sequence();
        if self.ends_below_screen {
            leave.extend_from_slice(format!("\x1b[{};1H\r\n", self.size().0).as_bytes());
        }
        leave.extend_from_slice(b"\x1b[23;2t");
        self.write_last(&leave);
        if let Some(settings) = &self.settings {
            // Input that was meant for the guest must not reach the shell.
            let _ = tcsetattr(self.input, OptionalActions::Flush, settings);
            terminal_at_panic::forget();
        }
    }
}

/// Returns rows and columns of a terminal; the usual ones if it does not know them.
pub fn terminal_size(terminal: BorrowedFd<'_>) -> (u16, u16) {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => (24, 80),
    }
}

/// Opens a terminal again, as a file that does not block. Where that fails, the same file is used,
/// and a terminal that takes no output holds up the end.
fn open_nonblocking(terminal: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = ttyname(terminal, Vec::new()).and_then(|name| rustix::fs::open(name, flags, Mode::empty()));
    match opened {
        Ok(opened) => Ok(opened),
        Err(_) => Ok(rustix::io::fcntl_dupfd_cloexec(terminal, 0)?),
    }
}
