//! The terminal of a guest that is about to start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::caller::{self, CallerTerminal};
use super::pty::Pty;
use super::relay::Relay;

/// When the relay reads from the caller's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// As long as sandpen is in the foreground.
    Always,
    /// From the moment at which the guest reads. In a pipeline (`sandpen run -- git log | less`)
    /// another program may need the keys.
    OnDemand,
}

/// A pseudo-terminal for a guest that has not started yet.
#[derive(Debug)]
pub struct GuestTerminal {
    caller: CallerTerminal,
    pty: Pty,
    input: Input,
}

impl GuestTerminal {
    /// Opens a pseudo-terminal with the size and the settings of the caller's terminal; `None` if
    /// sandpen has no terminal.
    pub fn open() -> io::Result<Option<Self>> {
        let Some(caller) = CallerTerminal::find() else { return Ok(None) };
        let input = if caller::is_interactive() { Input::Always } else { Input::OnDemand };
        // Until the guest reads, the caller's terminal processes the output.
        let pty = Pty::open(caller.settings(), caller.size(), input == Input::Always)?;
        Ok(Some(GuestTerminal { caller, pty, input }))
    }

    /// Returns the guest's side.
    pub fn slave(&self) -> BorrowedFd<'_> {
        self.pty.slave.as_fd()
    }

    /// Tells whether the guest's process group starts in the foreground of its terminal. If not, the
    /// kernel stops it with SIGTTIN or SIGTTOU when it needs the terminal, which is the demand that
    /// [`Relay::take_input`] answers.
    pub fn starts_in_foreground(&self) -> bool {
        self.input == Input::Always
    }

    /// Starts the relay. Another thread runs from now on.
    pub fn relay(self) -> io::Result<Relay> {
        let GuestTerminal { caller, pty, input } = self;
        Relay::start(caller, pty, input == Input::Always)
    }
}
