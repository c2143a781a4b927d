//! The terminal from which sandpen was started: put into raw mode while its keys are the guest's,
//! restored whenever they are not.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{getpgrp, getsid};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    OptionalActions, Termios, Winsize, isatty, tcgetattr, tcgetpgrp, tcgetsid, tcgetwinsize, tcsetattr, ttyname,
};

use crate::process::terminal_at_panic;

#[derive(Debug)]
pub struct CallerTerminal {
    /// A descriptor of its own, which does not block. The flags of the streams are shared with the
    /// shell, and stay as they are.
    tty: OwnedFd,
    settings: Termios,
    is_raw: bool,
}

/// Tells whether sandpen has the terminal for itself, rather than as a member of a pipeline.
#[cfg(target_os = "linux")]
pub fn is_interactive() -> bool {
    isatty(stdin()) && isatty(stdout())
}

impl CallerTerminal {
    /// Finds the terminal of the streams, or else the controlling terminal; `None` if there is none.
    pub fn find() -> Option<Self> {
        let stream = [stdin(), stdout(), stderr()].into_iter().find(|stream| isatty(stream));
        let tty = match stream {
            Some(stream) if !is_controlling(stream) => reopen(stream),
            // This does not need the permission to open the terminal's file, which a user who came
            // by `su` has not.
            _ => open(c"/dev/tty").or_else(|| reopen(stream?)),
        }?;
        let settings = tcgetattr(&tty).ok()?;
        Some(CallerTerminal { tty, settings, is_raw: false })
    }

    /// Returns the settings at the start.
    #[cfg(target_os = "linux")]
    pub fn settings(&self) -> &Termios {
        &self.settings
    }

    pub fn size(&self) -> Option<Winsize> {
        tcgetwinsize(&self.tty).ok()
    }

    /// Tells whether sandpen's process group may read from the terminal and change its settings. A
    /// terminal that is not the controlling one has no foreground.
    pub fn is_foreground(&self) -> bool {
        tcgetpgrp(&self.tty).map_or(true, |group| group == getpgrp())
    }

    /// Makes every key a byte, without an echo. Remembers the settings that the shell has set since.
    pub fn set_raw(&mut self) {
        if self.is_raw {
            return;
        }
        if let Ok(settings) = tcgetattr(&self.tty) {
            self.settings = settings;
        }
        let mut raw = self.settings.clone();
        raw.make_raw();
        self.is_raw = tcsetattr(&self.tty, OptionalActions::Now, &raw).is_ok();
        terminal_at_panic::restore_at_panic(self.tty.as_fd(), &self.settings, Vec::new());
    }

    /// Restores the settings, and drops what was typed and not read: it was meant for the guest.
    pub fn restore(&mut self) {
        terminal_at_panic::forget();
        // The kernel stops a process that changes the settings from the background, whose terminal
        // has been set by another program anyway.
        if std::mem::take(&mut self.is_raw) && self.is_foreground() {
            let _ = tcsetattr(&self.tty, OptionalActions::Flush, &self.settings);
        }
    }

    /// Tells whether the terminal is in raw mode for the guest.
    #[cfg(target_os = "linux")]
    pub fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// Forgets raw mode: another program has the terminal and has made its own settings.
    #[cfg(target_os = "linux")]
    pub fn forget(&mut self) {
        terminal_at_panic::forget();
        self.is_raw = false;
    }
}

impl AsFd for CallerTerminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tty.as_fd()
    }
}

impl Drop for CallerTerminal {
    fn drop(&mut self) {
        self.restore();
    }
}

fn is_controlling(stream: BorrowedFd<'_>) -> bool {
    matches!((tcgetsid(stream), getsid(None)), (Ok(of_terminal), Ok(own)) if of_terminal == own)
}

fn open(path: &std::ffi::CStr) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Opens the terminal of a stream again, or duplicates the stream if that is not permitted.
fn reopen(stream: BorrowedFd<'_>) -> Option<OwnedFd> {
    let opened = ttyname(stream, Vec::new()).ok().and_then(|name| open(&name));
    opened.or_else(|| stream.try_clone_to_owned().ok())
}
