//! The private modes of a terminal (`CSI ? n h`) that a redraw restores.

use std::fmt::Write;

/// Each mode with its state after a reset. Modes that are not here either change nothing that a
/// redraw shows, or must not be repeated: synchronised output (2026) would hold back the screen.
const MODES: [(u16, bool); 20] = [
    (1, false),    // application cursor keys
    (5, false),    // inverse screen
    (7, true),     // autowrap
    (9, false),    // mouse: press
    (12, false),   // blinking cursor
    (25, true),    // cursor is visible
    (45, false),   // reverse wraparound
    (1000, false), // mouse: press and release
    (1002, false), // mouse: motion with a button held
    (1003, false), // mouse: all motion
    (1004, false), // focus events
    (1005, false), // mouse positions as UTF-8
    (1006, false), // mouse positions as numbers
    (1007, false), // wheel as arrow keys
    (1015, false), // mouse positions as numbers, urxvt
    (1016, false), // mouse positions in pixels
    (1036, true),  // Meta sends Escape
    (2004, false), // bracketed paste
    (2031, false), // events when the colour scheme changes
    (2048, false), // events when the size changes
];
/// Of the modes in one group only the last one that was set counts.
const EXCLUSIVE: [&[u16]; 2] = [&[9, 1000, 1002, 1003], &[1005, 1006, 1015, 1016]];
/// The state of these after a reset depends on the user's settings, so they are left alone unless the
/// guest changes them.
const USER_CHOICE: [u16; 3] = [12, 1007, 1036];

/// The state of each mode; `None` if the guest has not changed it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Modes([Option<bool>; MODES.len()]);

impl Modes {
    pub fn set(&mut self, mode: u16, is_on: bool) {
        if is_on && let Some(group) = EXCLUSIVE.iter().find(|group| group.contains(&mode)) {
            group.iter().for_each(|other| self.put(*other, false));
        }
        self.put(mode, is_on);
    }

    fn put(&mut self, mode: u16, is_on: bool) {
        for (state, (number, _)) in self.0.iter_mut().zip(MODES) {
            if number == mode {
                *state = Some(is_on);
            }
        }
    }

    pub fn is_set(&self, mode: u16) -> bool {
        let mut modes = self.0.iter().zip(MODES);
        modes.any(|(state, (number, default))| number == mode && state.unwrap_or(default))
    }

    /// Appends the sequences that set every mode, for a terminal that got those of [`write_reset`].
    pub fn write(&self, out: &mut String) {
        for (state, (number, default)) in self.0.iter().zip(MODES) {
            if let Some(state) = state.filter(|state| *state != default || USER_CHOICE.contains(&number)) {
                let _ = write!(out, "\x1b[?{number}{}", if state { 'h' } else { 'l' });
            }
        }
    }
}

/// Appends the sequences that bring every mode to its state after a reset.
pub fn write_reset(out: &mut String) {
    for (number, default) in MODES.into_iter().filter(|(number, _)| !USER_CHOICE.contains(number)) {
        let _ = write!(out, "\x1b[?{number}{}", if default { 'h' } else { 'l' });
    }
    out.push_str("\x1b[?2026l");
}
