//! Writes the sequences that bring a terminal, whatever its state, to the state of a screen. They
//! are made from the state alone: nothing that the guest wrote is repeated except characters and
//! the title.

use std::fmt::Write;

use super::cell::{Cell, Pen};
use super::grid::Grid;
use super::modes;
use super::state::{Cursor, State};

/// Appends the sequences that bring a terminal to the main screen, with every mode as after a reset.
/// The text on the screen stays.
pub fn write_reset(out: &mut String) {
    // The terminator ends a sequence that was cut off.
    out.push_str("\x1b\\");
    write_keyboard_reset(out);
    // On the main screen `CSI ? 1049 l` moves the cursor to where it was saved.
    out.push_str("\x1b7\x1b[?1049l");
    write_keyboard_reset(out);
    modes::write_reset(out);
    // Origin mode and the scroll region, which both move the cursor.
    out.push_str("\x1b7\x1b[?6l\x1b[r\x1b8");
    // Insert mode, keypad, character sets, pen and cursor shape.
    out.push_str("\x1b[4l\x1b>\x1b(B\x1b)B\x0f\x1b[0m\x1b[0 q");
}

fn write_keyboard_reset(out: &mut String) {
    out.push_str("\x1b[=0;1u\x1b[>4;0m");
}

pub fn write(state: &State, out: &mut String) {
    write_reset(out);
    out.push_str("\x1b[?25l\x1b[?7h\x1b[?6l\x1b[H\x1b[2J");
    if let Some(title) = &state.title {
        let _ = write!(out, "\x1b]2;{title}\x07");
    }
    write_region(state, out);
    let [main, alternate] = &state.grids;
    write_grid(main, out);
    write_keyboard(&state.keyboard[0], out);
    if state.is_alternate {
        write_cursor(state, main, &state.saved[0], out);
        out.push_str("\x1b[?1049h\x1b[?6l\x1b[?7h\x1b[0m\x1b(B\x1b)B\x0f\x1b[H\x1b[2J");
        write_grid(alternate, out);
        write_keyboard(&state.keyboard[1], out);
    }
    write_tab_stops(state, out);
    // Some terminals have a region for each screen.
    write_region(state, out);
    let (grid, saved) = if state.is_alternate { (alternate, &state.saved[1]) } else { (main, &state.saved[0]) };
    write_cursor(state, grid, saved, out);
    out.push_str("\x1b7");
    write_cursor(state, grid, &state.cursor, out);
    if state.inserts {
        out.push_str("\x1b[4h");
    }
    if state.has_application_keypad {
        out.push_str("\x1b=");
    }
    if state.modify_other_keys > 0 {
        let _ = write!(out, "\x1b[>4;{}m", state.modify_other_keys);
    }
    if state.cursor_shape > 0 {
        let _ = write!(out, "\x1b[{} q", state.cursor_shape);
    }
    if state.modes.is_set(25) {
        out.push_str("\x1b[?25h");
    }
    state.modes.write(out);
}

/// Appends all cells. Expects a cleared screen.
fn write_grid(grid: &Grid, out: &mut String) {
    let mut pen = Pen::default();
    for row in 0..grid.row_count() {
        let cells: Vec<Cell> = grid.row(row).collect();
        let Some(last) = cells.iter().rposition(|cell| !cell.is_blank()) else { continue };
        let _ = write!(out, "\x1b[{}H", row + 1);
        for (col, cell) in cells.iter().enumerate().take(last + 1).filter(|(_, cell)| cell.width > 0) {
            if cell.pen != pen {
                cell.pen.write(out);
                pen = cell.pen;
            }
            cell.write_text(out);
            // Terminals disagree about the width of some characters.
            if !cell.is_plain() {
                let _ = write!(out, "\x1b[{}G", col + usize::from(cell.width) + 1);
            }
        }
    }
    Pen::default().write(out);
}

/// Appends the cursor with everything that `ESC 7` saves. Autowrap is as in the state afterwards, or on
/// if the cursor was saved with it.
fn write_cursor(state: &State, grid: &Grid, cursor: &Cursor, out: &mut String) {
    let autowraps = state.modes.is_set(7) || cursor.is_wrap_pending;
    out.push_str(if autowraps { "\x1b[?7h" } else { "\x1b[?7l" });
    out.push_str(if cursor.is_origin_relative { "\x1b[?6h" } else { "\x1b[?6l" });
    let first = if cursor.is_origin_relative { state.region.start } else { 0 };
    let row = cursor.row.saturating_sub(first) + 1;
    out.push_str("\x1b(B\x0f");
    let _ = write!(out, "\x1b[{row};{}H", cursor.col + 1);
    if cursor.is_wrap_pending {
        write_last_column(grid, cursor, out);
    }
    cursor.pen.write(out);
    out.push_str(if cursor.draws_lines[0] { "\x1b(0" } else { "\x1b(B" });
    out.push_str(if cursor.draws_lines[1] { "\x1b)0" } else { "\x1b)B" });
    out.push(if cursor.is_shifted_out { '\x0e' } else { '\x0f' });
}

/// Appends the character in the last column again. Only that brings a terminal to the state in which
/// the next character goes to the next row.
fn write_last_column(grid: &Grid, cursor: &Cursor, out: &mut String) {
    let Some(mut cell) = grid.cell(cursor.row, cursor.col) else { return };
    if cell.width == 0
        && let Some(left) = cursor.col.checked_sub(1).and_then(|left| grid.cell(cursor.row, left))
    {
        out.push('\x08');
        cell = left;
    }
    cell.pen.write(out);
    cell.write_text(out);
}

fn write_region(state: &State, out: &mut String) {
    let _ = write!(out, "\x1b[{};{}r", state.region.start + 1, state.region.end);
}

fn write_keyboard(stack: &[u8], out: &mut String) {
    for flags in stack {
        let _ = write!(out, "\x1b[>{flags}u");
    }
}

fn write_tab_stops(state: &State, out: &mut String) {
    if let Some(stops) = &state.tab_stops {
        out.push_str("\x1b[3g");
        for stop in stops.iter().filter(|stop| **stop < state.cols()) {
            let _ = write!(out, "\x1b[{}G\x1bH", stop + 1);
        }
    }
}
