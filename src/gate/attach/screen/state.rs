//! The state of a terminal: two grids, the cursor and everything else that a redraw restores.
//! [`super::emulator`] changes it as the guest's bytes demand.

use std::ops::Range;

use unicode_width::UnicodeWidthChar;

use super::cell::{Cell, Pen};
use super::grid::Grid;
use super::modes::Modes;

/// The number of keyboard modes that a guest may push, as in the terminals that have them.
const MAX_KEYBOARD_STACK: usize = 8;
/// The longest title that is kept, in characters.
const MAX_TITLE: usize = 256;

/// The part of the state that `ESC 7` saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    pub row: usize,
    pub col: usize,
    pub pen: Pen,
    /// The last column was written: the next character goes to the next row.
    pub is_wrap_pending: bool,
    /// Whether G0 and G1 are the set of line drawing characters.
    pub draws_lines: [bool; 2],
    pub is_shifted_out: bool,
    pub is_origin_relative: bool,
}

#[derive(Debug, Clone)]
pub struct State {
    /// The main and the alternate grid.
    pub grids: [Grid; 2],
    pub is_alternate: bool,
    pub cursor: Cursor,
    /// The saved cursors of the main and the alternate screen.
    pub saved: [Cursor; 2],
    /// The rows that scroll.
    pub region: Range<usize>,
    pub modes: Modes,
    pub inserts: bool,
    pub has_application_keypad: bool,
    /// `None` while there is a stop every 8 columns.
    pub tab_stops: Option<Vec<usize>>,
    /// The parameter of `CSI n SP q`.
    pub cursor_shape: u8,
    /// The keyboard modes (`CSI > n u`) that were pushed on the main and the alternate screen.
    pub keyboard: [Vec<u8>; 2],
    /// The parameter of `CSI > 4 ; n m`.
    pub modify_other_keys: u8,
    pub title: Option<String>,
    /// The last character that was written, for `CSI n b`.
    pub last_character: Option<char>,
    /// Answers to the guest's queries.
    pub answers: Vec<u8>,
}

impl State {
    pub fn new(rows: usize, cols: usize) -> Self {
        State {
            grids: [Grid::new(rows, cols), Grid::new(rows, cols)],
            is_alternate: false,
            cursor: Cursor::default(),
            saved: [Cursor::default(); 2],
            region: 0..rows,
            modes: Modes::default(),
            inserts: false,
            has_application_keypad: false,
            tab_stops: None,
            cursor_shape: 0,
            keyboard: [Vec::new(), Vec::new()],
            modify_other_keys: 0,
            title: None,
            last_character: None,
            answers: Vec::new(),
        }
    }

    pub fn rows(&self) -> usize {
        self.grids[0].row_count()
    }

    pub fn cols(&self) -> usize {
        self.grids[0].cols()
    }

    pub fn grid(&mut self) -> &mut Grid {
        &mut self.grids[usize::from(self.is_alternate)]
    }

    pub fn resize(&mut self, rows: usize, cols: usize) {
        for (index, grid) in self.grids.iter_mut().enumerate() {
            let is_shown = index == usize::from(self.is_alternate);
            let cursor = if is_shown { &mut self.cursor } else { &mut self.saved[index] };
            let gone = grid.resize(rows, cols, cursor.row);
            cursor.row = cursor.row.saturating_sub(gone);
        }
        for cursor in self.saved.iter_mut().chain([&mut self.cursor]) {
            cursor.row = cursor.row.min(rows - 1);
            cursor.col = cursor.col.min(cols - 1);
            cursor.is_wrap_pending = false;
        }
        self.region = 0..rows;
        if let Some(stops) = &mut self.tab_stops {
            stops.retain(|stop| *stop < cols);
        }
    }

    pub fn write_character(&mut self, character: char) {
        let width = if character.is_ascii() { 1 } else { character.width().unwrap_or_default() };
        if width == 0 {
            self.add_mark(character);
            return;
        }
        let (cols, autowraps) = (self.cols(), self.modes.is_set(7));
        if width > cols {
            return;
        }
        if (self.cursor.is_wrap_pending || self.cursor.col + width > cols) && autowraps {
            self.cursor.col = 0;
            self.line_feed();
        }
        self.cursor.col = self.cursor.col.min(cols - width);
        let Cursor { row, col, pen, .. } = self.cursor;
        if self.inserts {
            self.grid().insert_cells(row, col, width, pen);
        }
        self.grid().put(row, col, Cell::new(character, if width == 2 { 2 } else { 1 }, pen));
        self.cursor.is_wrap_pending = autowraps && col + width >= cols;
        self.cursor.col = (col + width).min(cols - 1);
        self.last_character = Some(character);
    }

    /// Writes the last character again. No more than a row of them is written, so that a short
    /// sequence takes a short time.
    pub fn repeat_character(&mut self, count: usize) {
        let Some(character) = self.last_character else { return };
        let count = count.min(self.cols());
        if std::mem::take(&mut self.inserts) {
            let Cursor { row, col, pen, .. } = self.cursor;
            self.grid().insert_cells(row, col, count, pen);
            (0..count).for_each(|_| self.write_character(character));
            self.inserts = true;
        } else {
            (0..count).for_each(|_| self.write_character(character));
        }
    }

    fn add_mark(&mut self, mark: char) {
        let row = self.cursor.row;
        let after = self.cursor.col + usize::from(self.cursor.is_wrap_pending);
        let Some(mut col) = after.checked_sub(1) else { return };
        if self.grid().cell(row, col).is_some_and(|cell| cell.width == 0) {
            col = col.saturating_sub(1);
        }
        if let Some(cell) = self.grid().cell_mut(row, col) {
            cell.add_mark(mark);
        }
    }

    pub fn line_feed(&mut self) {
        self.cursor.is_wrap_pending = false;
        if self.cursor.row + 1 == self.region.end {
            let (region, pen) = (self.region.clone(), self.cursor.pen);
            self.grid().scroll_up(region, 1, pen);
        } else {
            self.cursor.row = (self.cursor.row + 1).min(self.rows() - 1);
        }
    }

    pub fn reverse_line_feed(&mut self) {
        self.cursor.is_wrap_pending = false;
        if self.cursor.row == self.region.start {
            let (region, pen) = (self.region.clone(), self.cursor.pen);
            self.grid().scroll_down(region, 1, pen);
        } else {
            self.cursor.row = self.cursor.row.saturating_sub(1);
        }
    }

    /// Moves the cursor to an absolute position; with origin mode, the row counts from the region's
    /// first and stays within the region.
    pub fn move_to(&mut self, row: usize, col: usize) {
        let rows = if self.cursor.is_origin_relative { self.region.clone() } else { 0..self.rows() };
        self.cursor.row = rows.start.saturating_add(row).min(rows.end - 1);
        self.cursor.col = col.min(self.cols() - 1);
        self.cursor.is_wrap_pending = false;
    }

    pub fn move_up(&mut self, count: usize) {
        let limit = if self.cursor.row >= self.region.start { self.region.start } else { 0 };
        self.cursor.row = self.cursor.row.saturating_sub(count).max(limit);
        self.cursor.is_wrap_pending = false;
    }

    pub fn move_down(&mut self, count: usize) {
        let limit = if self.cursor.row < self.region.end { self.region.end } else { self.rows() };
        self.cursor.row = (self.cursor.row + count).min(limit - 1);
        self.cursor.is_wrap_pending = false;
    }

    pub fn move_to_col(&mut self, col: usize) {
        self.cursor.col = col.min(self.cols() - 1);
        self.cursor.is_wrap_pending = false;
    }

    pub fn tab(&mut self, count: usize) {
        let col = self.cursor.col;
        let target = match &self.tab_stops {
            None => (col / 8).saturating_add(count).saturating_mul(8),
            Some(stops) => {
                let next = stops.partition_point(|stop| *stop <= col);
                stops.get(next + count - 1).copied().unwrap_or(usize::MAX)
            }
        };
        self.move_to_col(target);
    }

    pub fn back_tab(&mut self, count: usize) {
        let col = self.cursor.col;
        let target = match &self.tab_stops {
            None => col.div_ceil(8).saturating_sub(count) * 8,
            Some(stops) => {
                let before = stops.partition_point(|stop| *stop < col);
                before.checked_sub(count).and_then(|index| stops.get(index).copied()).unwrap_or_default()
            }
        };
        self.move_to_col(target);
    }

    pub fn set_tab_stop(&mut self, is_set: bool) {
        let (col, cols) = (self.cursor.col, self.cols());
        let stops = self.tab_stops.get_or_insert_with(|| (8..cols).step_by(8).collect());
        stops.retain(|stop| *stop != col);
        if is_set {
            stops.push(col);
            stops.sort_unstable();
        }
    }

    pub fn save_cursor(&mut self) {
        self.saved[usize::from(self.is_alternate)] = self.cursor;
    }

    pub fn restore_cursor(&mut self) {
        self.cursor = self.saved[usize::from(self.is_alternate)];
        self.cursor.is_wrap_pending &= self.modes.is_set(7);
    }

    pub fn show_alternate(&mut self, is_alternate: bool) {
        self.is_alternate = is_alternate;
        self.cursor.is_wrap_pending = false;
    }

    pub fn clear_alternate(&mut self) {
        let (rows, pen) = (self.rows(), self.cursor.pen);
        self.grids[1].erase_rows(0..rows, pen);
    }

    pub fn keyboard(&mut self) -> &mut Vec<u8> {
        &mut self.keyboard[usize::from(self.is_alternate)]
    }

    pub fn push_keyboard(&mut self, flags: u8) {
        let stack = self.keyboard();
        if stack.len() == MAX_KEYBOARD_STACK {
            stack.remove(0);
        }
        stack.push(flags);
    }

    pub fn set_title(&mut self, title: &str) {
        self.title = Some(title.chars().filter(|c| !c.is_control()).take(MAX_TITLE).collect());
    }
}
