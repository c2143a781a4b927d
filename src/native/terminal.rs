//! The launcher's side of the terminal: who is in its foreground, and how it looked before.
//!
//! The guest inherits the terminal: no relay, no second buffer, resizing and job control as ever,
//! not a microsecond per byte. What a terminal of its own would protect from is closed otherwise:
//! typing into the host's shell by the system call filter, signals to the launcher's group by a
//! group of its own.
//!
//! - standard input and output are the terminal, or there is none: a group of its own, in the
//!   foreground if the launcher is. The launcher passes signals on, and suspends when told so.
//! - in a pipeline: the launcher's group, because its other members want the terminal too
//!   (`sandpen run -- git log | less`). The terminal's signals reach all of them alike: the
//!   launcher must not pass those on, nor suspend when its guest does.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, Termios};

use crate::launch::native::step::Group;
use crate::native::sys;

/// The controlling terminal as it was before the guest.
#[derive(Debug)]
pub struct Terminal {
    tty: OwnedFd,
    modes: Termios,
    /// The streams share their status flags with the shell that started us.
    flags: [Option<OFlags>; 3],
}

impl Terminal {
    /// `None` without a controlling terminal.
    pub fn of_caller() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = rustix::fs::open(c"/dev/tty", flags, Mode::empty()).ok()?;
        let modes = rustix::termios::tcgetattr(&tty).ok()?;
        let flags = streams().map(|stream| rustix::fs::fcntl_getfl(stream).ok());
        Some(Self { tty, modes, flags })
    }

    /// The group that a guest of this launcher belongs in.
    pub fn group(terminal: Option<&Self>) -> Group {
        let [input, output, _] = streams();
        let alone = rustix::termios::isatty(input) && rustix::termios::isatty(output);
        if terminal.is_none() || alone { Group::Own } else { Group::Shared }
    }

    pub fn in_foreground(&self) -> bool {
        rustix::termios::tcgetpgrp(&self.tty) == Ok(rustix::process::getpgrp())
    }

    /// Takes the terminal back and puts it in order, after the guest's end. In the background
    /// there is nothing to take back.
    pub fn reclaim(&self, had_foreground: bool) {
        if had_foreground {
            self.give_to(rustix::process::getpgrp());
            let _ = rustix::termios::tcsetattr(&self.tty, OptionalActions::Drain, &self.modes);
        }
        for (stream, flags) in streams().into_iter().zip(self.flags) {
            if let Some(flags) = flags {
                let _ = rustix::fs::fcntl_setfl(stream, flags);
            }
        }
    }

    /// Stops the launcher as its guest was stopped, so that the shell notices; returns when the
    /// user resumes it, with the terminal handed to the guest again if that is in the foreground.
    /// The caller then sends SIGCONT.
    pub fn suspend(&self, guest: Option<Pid>) {
        let modes = rustix::termios::tcgetattr(&self.tty);
        // A guest stopped for reading in the background never had the terminal.
        let held = guest.is_some() && rustix::termios::tcgetpgrp(&self.tty).ok() == guest;
        self.reclaim(held);
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        if let Some(guest) = guest
            && self.in_foreground()
        {
            if held && let Ok(modes) = modes {
                let _ = rustix::termios::tcsetattr(&self.tty, OptionalActions::Drain, &modes);
            }
            self.give_to(guest);
        }
    }

    /// From the background this would stop us, were the signal not blocked.
    fn give_to(&self, group: Pid) {
        let mask = sys::block_signals();
        let _ = rustix::termios::tcsetpgrp(&self.tty, group);
        sys::restore_signals(&mask);
    }
}

fn streams() -> [std::os::fd::BorrowedFd<'static>; 3] {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
}
