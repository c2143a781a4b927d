//! The screen of a detached guest's terminal. It is kept up to date by the guest's output, and can
//! be drawn on any terminal later.
//!
//! The guest decides on every byte, so memory and time are bounded, and no byte ends the launcher:
//! the release build aborts on a panic.

mod cell;
mod emulator;
mod grid;
mod modes;
mod redraw;
mod sgr;
mod state;
#[cfg(test)]
mod tests;
mod unfinished;

use state::State;
use unfinished::Unfinished;

/// The largest number of rows and of columns.
const MAX_SIZE: u16 = 1000;

/// The state of a terminal that got the guest's output.
pub struct Screen {
    parser: vte::Parser,
    state: State,
    unfinished: Unfinished,
}

impl Screen {
    /// Makes an empty screen. A size that is not between 1 and 1000 is brought there.
    pub fn new(rows: u16, cols: u16) -> Self {
        Screen {
            parser: vte::Parser::new(),
            state: State::new(clamp(rows), clamp(cols)),
            unfinished: Unfinished::default(),
        }
    }

    /// Takes output of the guest.
    pub fn process(&mut self, output: &[u8]) {
        self.parser.advance(&mut self.state, output);
        self.unfinished.process(output);
    }

    /// Changes the size, as a terminal does that does not wrap lines anew.
    pub fn resize(&mut self, rows: u16, cols: u16) {
        let (rows, cols) = (clamp(rows), clamp(cols));
        if (rows, cols) != (self.state.rows(), self.state.cols()) {
            self.state.resize(rows, cols);
        }
    }

    /// Returns what brings a terminal of this size, in whatever state, to the state of this screen.
    pub fn redraw(&self) -> Vec<u8> {
        let mut out = String::new();
        redraw::write(&self.state, &mut out);
        let mut out = out.into_bytes();
        out.extend_from_slice(self.unfinished.bytes());
        out
    }

    /// Returns the text on the screen, without trailing blanks and blank lines.
    pub fn text(&self) -> String {
        self.state.grids[usize::from(self.state.is_alternate)].text()
    }

    /// Takes the answers to the guest's queries since the last call, for a guest without a terminal
    /// that answers.
    pub fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.state.answers)
    }
}

/// Returns what brings a terminal back to the main screen with the usual modes, after it has shown
/// the guest's output.
pub fn reset_sequence() -> Vec<u8> {
    let mut out = String::new();
    redraw::write_reset(&mut out);
    out.into_bytes()
}

fn clamp(size: u16) -> usize {
    usize::from(size.clamp(1, MAX_SIZE))
}
