//! A page of sections, each a table of three columns: name, value, reason. Reasons are broken to the page's width; values, which
//! people copy, never are.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use crate::ui::escape::escape;
use crate::ui::view::{Ink, View};

/// Columns for reasons that are narrower than this are not worth having.
const NARROW: usize = 28;

/// One line of a section.
#[derive(Debug, Clone, Default)]
struct Row {
    name: String,
    value: String,
    reason: String,
    kind: Kind,
}

/// What a line looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// Three columns.
    #[default]
    Table,
    /// A name, and words in the place of both other columns.
    Prose,
    /// One text, never broken.
    Line,
}

/// A page in the making. Everything in it is escaped when it is added.
#[derive(Debug)]
pub struct Page {
    view: View,
    text: String,
    title: String,
    note: String,
    ink: Ink,
    rows: Vec<Row>,
}

impl Page {
    /// An empty page.
    pub fn new(view: View) -> Self {
        Page { view, text: String::new(), title: String::new(), note: String::new(), ink: Ink::Title, rows: Vec::new() }
    }

    /// How it is shown.
    pub fn view(&self) -> View {
        self.view
    }

    /// Begins a section; one without rows is left out.
    pub fn section(&mut self, title: &str) {
        self.flush();
        self.title = escape(title).into_owned();
        self.note.clear();
        self.ink = Ink::Title;
    }

    /// What the section's title does not say.
    pub fn note(&mut self, note: &str) {
        self.note = escape(note).into_owned();
    }

    /// The section is a warning.
    pub fn warn(&mut self) {
        self.ink = Ink::Warning;
    }

    /// A line.
    pub fn row(&mut self, name: &str, value: &str, reason: &str) {
        let [name, value, reason] = [name, value, reason].map(|text| escape(text).into_owned());
        self.rows.push(Row { name, value, reason, kind: Kind::Table });
    }

    /// A name, and what there is to say.
    pub fn prose(&mut self, name: &str, words: &str) {
        let [name, reason] = [name, words].map(|text| escape(text).into_owned());
        self.rows.push(Row { name, reason, value: String::new(), kind: Kind::Prose });
    }

    /// A line that may be as long as it likes.
    pub fn line(&mut self, line: &str) {
        self.rows.push(Row { name: escape(line).into_owned(), kind: Kind::Line, ..Row::default() });
    }

    fn flush(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return;
        }
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let note = if self.note.is_empty() { String::new() } else { format!(" – {}", self.note) };
        let (title, note) = (self.view.paint(self.ink, &self.title), self.view.paint(Ink::Reason, &note));
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{gap}{title}{note}");
        let layout = Layout::of(&rows, self.view.width);
        for row in rows {
            layout.write(&row, self.view, &mut self.text);
        }
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        self.flush();
        self.text
    }
}

/// Where a section's columns are.
struct Layout {
    names: usize,
    values: usize,
    /// How wide reasons are; `None` puts them below the values.
    reasons: Option<usize>,
    width: usize,
}

impl Layout {
    fn of(rows: &[Row], width: usize) -> Self {
        let longest = |column: fn(&Row) -> &String, most: usize| {
            rows.iter()
                .filter(|row| row.kind != Kind::Line)
                .map(|row| columns(column(row)))
                .filter(|length| *length <= most)
                .max()
                .unwrap_or(0)
        };
        let names = longest(|row| &row.name, width / 3);
        let values = longest(|row| &row.value, width.saturating_sub(names) / 2);
        let reasons = width.checked_sub(names + values + 6).filter(|rest| *rest >= NARROW);
        Layout { names, values, reasons, width }
    }

    fn write(&self, row: &Row, view: View, text: &mut String) {
        if row.kind == Kind::Line {
            let _ = writeln!(text, "  {}", row.name);
            return;
        }
        let (names, values) = (self.names, self.values);
        let gap = names.saturating_sub(columns(&row.name));
        let mut line = format!("  {}{:gap$}", view.paint(Ink::Name, &row.name), "");
        let mut at = 2 + columns(&row.name).max(names);
        if !row.value.is_empty() {
            let _ = write!(line, "  {}", row.value);
            at += 2 + columns(&row.value);
        }
        let below = 2 + names + 2;
        let (start, room) = match (row.kind, self.reasons) {
            (Kind::Table, Some(room)) => (below + values + 2, room),
            _ => (below, self.width.saturating_sub(below).max(NARROW)),
        };
        let mut lines = wrapped(&row.reason, room).into_iter();
        // A value that leaves no room has the line for itself.
        if let Some(gap) = start.checked_sub(at).filter(|gap| *gap >= 2)
            && let Some(first) = lines.next()
        {
            let first = if row.kind == Kind::Prose { first } else { view.paint(Ink::Reason, &first) };
            let _ = write!(line, "{:gap$}{first}", "");
        }
        let _ = writeln!(text, "{}", line.trim_end());
        for rest in lines {
            let rest = if row.kind == Kind::Prose { rest } else { view.paint(Ink::Reason, &rest) };
            let _ = writeln!(text, "{:start$}{rest}", "");
        }
    }
}

/// Returns how many columns of a terminal the text takes.
fn columns(text: &str) -> usize {
    text.width()
}

/// Breaks a text between words into lines of at most `room` columns.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(width: usize) -> String {
        let mut page = Page::new(View { width, ..View::default() });
        page.section("Empty");
        page.section("Files");
        page.row("rw", "/home/me/project", "the working directory, which has a reason of more than one line here");
        page.row("ro", &format!("/{}", "x".repeat(60)), "it is long");
        page.finish()
    }

    #[test]
    fn reasons_are_broken_below_themselves_and_long_values_have_a_line_of_their_own() {
        let x = "x".repeat(60);
        assert_eq!(
            page(80),
            format!(
                "Files\n  rw  /home/me/project  the working directory, which has a reason of more than\n                        one line here\n  ro  /{x}\n                        it is long\n"
            )
        );
    }

    #[test]
    fn on_a_narrow_page_reasons_are_below_values() {
        let text = page(46);
        assert!(
            text.contains("  rw  /home/me/project\n      the working directory, which has a\n      reason of more"),
            "{text}"
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut page = Page::new(View { width: 80, ..View::default() });
        page.section("Files");
        page.row("ro", "/home/我/文件", "Chinese");
        page.row("ro", "/home/me/🎉", "an emoji");
        page.row("ro", "/home/me/e\u{301}", "a combining accent");
        let lines: Vec<String> = page.finish().lines().map(str::to_owned).collect();
        let start = |line: &str, reason: &str| columns(line.split(reason).next().unwrap_or_default());
        let starts = [start(&lines[1], "Chinese"), start(&lines[2], "an emoji"), start(&lines[3], "a combining")];
        assert_eq!(starts, [21, 21, 21], "{lines:#?}");
    }

    proptest! {
        #[test]
        fn no_reason_leaves_the_page(width in 60usize..160, name in "[a-z]{1,12}", value in "[a-z/]{0,90}", reason in "([a-z]{1,12} ){0,30}") {
            let mut page = Page::new(View { width, ..View::default() });
            page.section("T");
            page.row(&name, &value, &reason);
            for line in page.finish().lines() {
                prop_assert!(columns(line) <= width || line.contains(&value), "{line}");
            }
        }
    }
}
