//! The cells of one screen, main or alternate. All positions are clamped: no operation panics,
//! whatever the guest asked for.

use std::ops::Range;

use super::cell::{Cell, Pen};

/// A row stores its cells up to the last one that was written, so that erasing and scrolling take a
/// time that does not depend on the width.
#[derive(Debug, Clone, Default)]
struct Row {
    cells: Vec<Cell>,
    /// The pen of the blank cells after `cells`.
    rest: Pen,
}

impl Row {
    fn extend_to(&mut self, len: usize) {
        if self.cells.len() < len {
            self.cells.resize(len, Cell::blank(self.rest));
        }
    }

    fn erase_from(&mut self, col: usize, pen: Pen) {
        self.cells.resize(col, Cell::blank(self.rest));
        self.rest = pen.erased();
    }
}

#[derive(Debug, Clone)]
pub struct Grid {
    rows: Vec<Row>,
    cols: usize,
}

impl Grid {
    pub fn new(rows: usize, cols: usize) -> Self {
        Grid { rows: vec![Row::default(); rows], cols }
    }

    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn cell(&self, row: usize, col: usize) -> Option<Cell> {
        let row = self.rows.get(row).filter(|_| col < self.cols)?;
        Some(row.cells.get(col).copied().unwrap_or_else(|| Cell::blank(row.rest)))
    }

    /// Returns the cells of a row without the blank ones at its end, if these have no colour.
    pub fn row(&self, row: usize) -> impl Iterator<Item = Cell> {
        let row = self.rows.get(row);
        let rest = row.filter(|row| row.rest != Pen::default()).map(|row| Cell::blank(row.rest));
        let stored = row.map(|row| row.cells.as_slice()).unwrap_or_default();
        let missing = self.cols.saturating_sub(stored.len());
        stored.iter().copied().chain(rest.into_iter().flat_map(move |blank| std::iter::repeat_n(blank, missing)))
    }

    pub fn cell_mut(&mut self, row: usize, col: usize) -> Option<&mut Cell> {
        let row = self.rows.get_mut(row).filter(|_| col < self.cols)?;
        row.extend_to(col + 1);
        row.cells.get_mut(col)
    }

    /// Changes the size. Where the screen gets lower, rows below the cursor go first, then rows from
    /// the top; returns how many rows went from the top.
    pub fn resize(&mut self, rows: usize, cols: usize, cursor_row: usize) -> usize {
        let from_top = (cursor_row + 1).saturating_sub(rows).min(self.rows.len());
        self.rows.drain(..from_top);
        self.rows.resize(rows, Row::default());
        for row in &mut self.rows {
            if row.rest != Pen::default() {
                row.extend_to(self.cols);
                row.rest = Pen::default();
            }
            row.cells.truncate(cols);
            if row.cells.len() == cols
                && let Some(last) = row.cells.last_mut().filter(|last| last.width == 2)
            {
                *last = Cell::blank(last.pen);
            }
        }
        self.cols = cols;
        from_top
    }

    /// Writes a character; a wide one also takes the cell to the right, which the caller knows to
    /// exist.
    pub fn put(&mut self, row: usize, col: usize, cell: Cell) {
        self.split_wide(row, col);
        self.split_wide(row, col + usize::from(cell.width));
        if let Some(target) = self.cell_mut(row, col) {
            *target = cell;
        }
        if cell.width == 2
            && let Some(right) = self.cell_mut(row, col + 1)
        {
            *right = Cell::new(' ', 0, cell.pen);
        }
    }

    /// Blanks a wide character whose right half is at `col`, before one of its halves is changed.
    fn split_wide(&mut self, row: usize, col: usize) {
        if self.cell(row, col).is_none_or(|cell| cell.width != 0) {
            return;
        }
        for half in [col.saturating_sub(1), col] {
            if let Some(cell) = self.cell_mut(row, half) {
                *cell = Cell::blank(cell.pen);
            }
        }
    }

    pub fn erase(&mut self, row: usize, cols: Range<usize>, pen: Pen) {
        let end = cols.end.min(self.cols);
        let start = cols.start.min(end);
        self.split_wide(row, start);
        self.split_wide(row, end);
        let Some(row) = self.rows.get_mut(row) else { return };
        if end == self.cols {
            row.erase_from(start, pen);
        } else {
            row.extend_to(end);
            row.cells.iter_mut().take(end).skip(start).for_each(|cell| *cell = Cell::blank(pen));
        }
    }

    pub fn erase_rows(&mut self, rows: Range<usize>, pen: Pen) {
        for row in self.rows.iter_mut().take(rows.end).skip(rows.start) {
            row.erase_from(0, pen);
        }
    }

    /// Moves the rows of a range up by `count`; blank ones follow at the bottom.
    pub fn scroll_up(&mut self, range: Range<usize>, count: usize, pen: Pen) {
        let end = range.end.min(self.rows.len());
        if let Some(rows) = self.rows.get_mut(range.start.min(end)..end) {
            let count = count.min(rows.len());
            rows.rotate_left(count);
            self.erase_rows(end - count..end, pen);
        }
    }

    /// Moves the rows of a range down by `count`; blank ones precede them at the top.
    pub fn scroll_down(&mut self, range: Range<usize>, count: usize, pen: Pen) {
        let end = range.end.min(self.rows.len());
        let start = range.start.min(end);
        if let Some(rows) = self.rows.get_mut(start..end) {
            let count = count.min(rows.len());
            rows.rotate_right(count);
            self.erase_rows(start..start + count, pen);
        }
    }

    /// Moves the cells from `col` on to the right; those that leave the row are lost.
    pub fn insert_cells(&mut self, row: usize, col: usize, count: usize, pen: Pen) {
        self.split_wide(row, col);
        let count = count.min(self.cols.saturating_sub(col));
        if let Some(cells) = self.cells_from(row, col) {
            cells.rotate_right(count);
            if let Some(last) = cells.last_mut().filter(|last| last.width == 2) {
                *last = Cell::blank(last.pen);
            }
            cells.iter_mut().take(count).for_each(|cell| *cell = Cell::blank(pen));
        }
    }

    /// Moves the cells after the deleted ones to the left; blank ones follow.
    pub fn delete_cells(&mut self, row: usize, col: usize, count: usize, pen: Pen) {
        let count = count.min(self.cols.saturating_sub(col));
        self.split_wide(row, col);
        self.split_wide(row, col + count);
        if let Some(cells) = self.cells_from(row, col) {
            cells.rotate_left(count);
            cells.iter_mut().rev().take(count).for_each(|cell| *cell = Cell::blank(pen));
        }
    }

    fn cells_from(&mut self, row: usize, col: usize) -> Option<&mut [Cell]> {
        let row = self.rows.get_mut(row)?;
        row.extend_to(self.cols);
        row.cells.get_mut(col..)
    }

    /// Returns the text without trailing blanks and blank rows.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            row.cells.iter().for_each(|cell| cell.write_text(&mut text));
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }
}
