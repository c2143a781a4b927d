//! The master of a guest's pseudo-terminal, with its screen and the input that the guest has not
//! read yet. No call blocks.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::termios::{Winsize, tcsetwinsize};

use super::screen::Screen;

/// The most input that waits for the guest, in bytes. Clients are not read while there is more.
const MAX_INPUT: usize = 64 * 1024;

pub struct GuestTerminal {
    master: OwnedFd,
    pub screen: Screen,
    size: (u16, u16),
    input: VecDeque<u8>,
    /// All processes of the guest have closed the terminal.
    pub is_hung_up: bool,
}

impl GuestTerminal {
    pub fn new(master: OwnedFd, rows: u16, cols: u16) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&master, true)?;
        let mut terminal = GuestTerminal {
            master,
            screen: Screen::new(rows, cols),
            size: (0, 0),
            input: VecDeque::new(),
            is_hung_up: false,
        };
        terminal.resize(rows, cols);
        Ok(terminal)
    }

    /// Sets the size; returns whether it has changed. The kernel signals the guest if it has.
    pub fn resize(&mut self, rows: u16, cols: u16) -> bool {
        let (rows, cols) = (rows.clamp(1, 1000), cols.clamp(1, 1000));
        let has_changed = self.size != (rows, cols);
        if has_changed {
            self.size = (rows, cols);
            self.screen.resize(rows, cols);
            let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
            // It fails only where the guest has closed the terminal.
            let _ = tcsetwinsize(&self.master, size);
        }
        has_changed
    }

    /// Returns the events to wait for.
    pub fn interest(&self) -> PollFlags {
        if self.input.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    pub fn takes_input(&self) -> bool {
        self.input.len() < MAX_INPUT
    }

    pub fn add_input(&mut self, input: &[u8]) {
        if !self.is_hung_up {
            self.input.extend(input);
        }
    }

    /// Adds the answers that a terminal would give to the guest's queries, if no client's terminal
    /// does.
    pub fn answer_queries(&mut self, has_terminal: bool) {
        let answers = self.screen.take_answers();
        if !has_terminal && self.takes_input() {
            self.add_input(&answers);
        }
    }

    /// Reads output of the guest; `None` if there is none now.
    pub fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        match rustix::io::read(&self.master, &mut *buffer) {
            Ok(length) if length > 0 => {
                let output = buffer.get(..length)?;
                self.screen.process(output);
                Some(output)
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            // Linux reports EIO, macOS the end of the file.
            _ => {
                self.is_hung_up = true;
                self.input.clear();
                None
            }
        }
    }

    /// Writes the input that the guest's terminal takes now.
    pub fn flush(&mut self) {
        while !self.input.is_empty() {
            match rustix::io::write(&self.master, self.input.as_slices().0) {
                Ok(length) => drop(self.input.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.input.clear(),
            }
        }
    }
}

impl AsFd for GuestTerminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}
