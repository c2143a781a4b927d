//! Applies the guest's control sequences to the [`State`]. Sequences that do not change what a
//! terminal shows, or how it reports keys, are skipped: clipboard, palette, pictures, hyperlinks.

use vte::{Params, Perform};

use super::sgr;
use super::state::{Cursor, State};

/// The answers that are kept until the server takes them, in bytes.
const MAX_ANSWERS: usize = 256;
/// A guest's query for the kind of terminal is answered with "VT220 with colours".
const DEVICE_ATTRIBUTES: &str = "\x1b[?62;22c";

impl Perform for State {
    fn print(&mut self, c: char) {
        let draws_lines = self.cursor.draws_lines[usize::from(self.cursor.is_shifted_out)];
        match c {
            c if c.is_control() => {}
            '_'..='~' if draws_lines => self.write_character(line_drawing(c)),
            c => self.write_character(c),
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            0x08 => self.move_to_col(self.cursor.col.saturating_sub(1)),
            b'\t' => self.tab(1),
            0x0a..=0x0c | 0x84 => self.line_feed(),
            b'\r' => self.move_to_col(0),
            0x0e => self.cursor.is_shifted_out = true,
            0x0f => self.cursor.is_shifted_out = false,
            0x85 => self.next_line(),
            0x88 => self.set_tab_stop(true),
            0x8d => self.reverse_line_feed(),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], _ignore: bool, byte: u8) {
        match (intermediates, byte) {
            ([], b'7') => self.save_cursor(),
            ([], b'8') => self.restore_cursor(),
            ([], b'=') => self.has_application_keypad = true,
            ([], b'>') => self.has_application_keypad = false,
            ([], b'D') => self.line_feed(),
            ([], b'E') => self.next_line(),
            ([], b'H') => self.set_tab_stop(true),
            ([], b'M') => self.reverse_line_feed(),
            ([], b'c') => self.reset(),
            ([b'('], set) => self.cursor.draws_lines[0] = set == b'0',
            ([b')'], set) => self.cursor.draws_lines[1] = set == b'0',
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if ignore {
            return;
        }
        match (intermediates, action) {
            ([], 'm') => sgr::apply(&mut self.cursor.pen, params),
            ([], _) => self.control(params, action),
            ([b'?'], 'h' | 'l') => {
                for param in params {
                    self.set_private_mode(param.first().copied().unwrap_or_default(), action == 'h');
                }
            }
            ([b'!'], 'p') => self.soft_reset(),
            ([b' '], 'q') => self.cursor_shape = small(params, 0).min(6),
            ([b'>'], 'u') => self.push_keyboard(small(params, 0)),
            ([b'<'], 'u') => {
                let left = self.keyboard().len().saturating_sub(count(params));
                self.keyboard().truncate(left);
            }
            ([b'='], 'u') => self.change_keyboard(small(params, 0), number(params, 1)),
            ([b'>'], 'm') if number(params, 0) == 4 => self.modify_other_keys = small(params, 1),
            _ => {}
        }
    }

    fn osc_dispatch(&mut self, params: &[&[u8]], _bell_terminated: bool) {
        if let [b"0" | b"2", title @ ..] = params {
            self.set_title(&String::from_utf8_lossy(&title.join(&b';')));
        }
    }
}

impl State {
    fn control(&mut self, params: &Params, action: char) {
        let Cursor { row, col, pen, .. } = self.cursor;
        let (rows, cols, count) = (self.rows(), self.cols(), count(params));
        match action {
            '@' => self.grid().insert_cells(row, col, count, pen),
            'A' => self.move_up(count),
            'B' | 'e' => self.move_down(count),
            'C' | 'a' => self.move_to_col(col.saturating_add(count)),
            'D' => self.move_to_col(col.saturating_sub(count)),
            'E' => {
                self.move_down(count);
                self.move_to_col(0);
            }
            'F' => {
                self.move_up(count);
                self.move_to_col(0);
            }
            'G' | '`' => self.move_to_col(count - 1),
            'H' | 'f' => self.move_to(count - 1, number(params, 1).max(1) - 1),
            'd' => self.move_to(count - 1, col),
            'I' => self.tab(count),
            'Z' => self.back_tab(count),
            'J' => self.erase_display(number(params, 0)),
            'K' => match number(params, 0) {
                0 => self.grid().erase(row, col..cols, pen),
                1 => self.grid().erase(row, 0..col + 1, pen),
                2 => self.grid().erase(row, 0..cols, pen),
                _ => {}
            },
            'X' => self.grid().erase(row, col..col.saturating_add(count), pen),
            'P' => self.grid().delete_cells(row, col, count, pen),
            'L' | 'M' if self.region.contains(&row) => {
                let region = row..self.region.end;
                if action == 'L' {
                    self.grid().scroll_down(region, count, pen);
                } else {
                    self.grid().scroll_up(region, count, pen);
                }
                self.move_to_col(0);
            }
            'S' => {
                let region = self.region.clone();
                self.grid().scroll_up(region, count, pen);
            }
            'T' if params.len() <= 1 => {
                let region = self.region.clone();
                self.grid().scroll_down(region, count, pen);
            }
            'b' => self.repeat_character(count),
            'r' => {
                let end = if number(params, 1) == 0 { rows } else { number(params, 1).min(rows) };
                if count < end {
                    self.region = count - 1..end;
                    self.move_to(0, 0);
                }
            }
            'g' => match number(params, 0) {
                0 => self.set_tab_stop(false),
                3 => self.tab_stops = Some(Vec::new()),
                _ => {}
            },
            'h' | 'l' if number(params, 0) == 4 => self.inserts = action == 'h',
            's' => self.save_cursor(),
            'u' => self.restore_cursor(),
            'c' if number(params, 0) == 0 => self.answer(DEVICE_ATTRIBUTES),
            'n' => match number(params, 0) {
                5 => self.answer("\x1b[0n"),
                6 => {
                    let first = if self.cursor.is_origin_relative { self.region.start } else { 0 };
                    self.answer(&format!("\x1b[{};{}R", row.saturating_sub(first) + 1, col + 1));
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn next_line(&mut self) {
        self.line_feed();
        self.move_to_col(0);
    }

    fn erase_display(&mut self, part: usize) {
        let Cursor { row, col, pen, .. } = self.cursor;
        let (rows, cols) = (self.rows(), self.cols());
        match part {
            0 => {
                self.grid().erase(row, col..cols, pen);
                self.grid().erase_rows(row + 1..rows, pen);
            }
            1 => {
                self.grid().erase(row, 0..col + 1, pen);
                self.grid().erase_rows(0..row, pen);
            }
            2 => self.grid().erase_rows(0..rows, pen),
            _ => {}
        }
    }

    fn set_private_mode(&mut self, mode: u16, is_on: bool) {
        match mode {
            6 => {
                self.cursor.is_origin_relative = is_on;
                self.move_to(0, 0);
            }
            47 => self.show_alternate(is_on),
            66 => self.has_application_keypad = is_on,
            1047 => {
                if self.is_alternate && !is_on {
                    self.clear_alternate();
                }
                self.show_alternate(is_on);
            }
            1048 if is_on => self.save_cursor(),
            1048 => self.restore_cursor(),
            1049 if is_on => {
                self.save_cursor();
                self.clear_alternate();
                self.show_alternate(true);
            }
            1049 => {
                self.show_alternate(false);
                self.restore_cursor();
            }
            mode => self.modes.set(mode, is_on),
        }
        if mode == 7 && !is_on {
            self.cursor.is_wrap_pending = false;
        }
    }

    fn change_keyboard(&mut self, flags: u8, how: usize) {
        let old = self.keyboard().pop().unwrap_or_default();
        let flags = match how {
            2 => old | flags,
            3 => old & !flags,
            _ => flags,
        };
        self.push_keyboard(flags);
    }

    fn reset(&mut self) {
        let title = self.title.take();
        *self = State { title, ..State::new(self.rows(), self.cols()) };
    }

    fn soft_reset(&mut self) {
        let Cursor { row, col, .. } = self.cursor;
        self.cursor = Cursor { row, col, ..Cursor::default() };
        self.save_cursor();
        self.region = 0..self.rows();
        self.inserts = false;
        self.has_application_keypad = false;
        self.modes.set(1, false);
        self.modes.set(7, true);
        self.modes.set(25, true);
    }

    fn answer(&mut self, answer: &str) {
        if self.answers.len() + answer.len() <= MAX_ANSWERS {
            self.answers.extend_from_slice(answer.as_bytes());
        }
    }
}

/// Returns a parameter; 0 if it is missing.
fn number(params: &Params, index: usize) -> usize {
    params.iter().nth(index).and_then(|param| param.first()).map_or(0, |number| usize::from(*number))
}

/// Returns the first parameter, which is 1 if it is missing or 0.
fn count(params: &Params) -> usize {
    number(params, 0).max(1)
}

fn small(params: &Params, index: usize) -> u8 {
    u8::try_from(number(params, index)).unwrap_or_default()
}

/// Returns the Unicode character for a line drawing character of DEC terminals.
fn line_drawing(c: char) -> char {
    const LINES: &str = "\u{a0}◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";
    let index = u32::from(c).saturating_sub(u32::from('_')) as usize;
    LINES.chars().nth(index).unwrap_or(c)
}
