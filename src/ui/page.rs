//! Lays out a page of sections, each a table of three columns: name, value, reason. Reasons are wrapped
//! to the page's width; values are not, because users copy them.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::escape::escape;
use super::view::{TextRole, View};

/// A narrower column of reasons is moved below the values.
const MIN_REASON_WIDTH: usize = 28;

#[derive(Debug, Clone, Default)]
struct Row {
    name: String,
    value: String,
    reason: String,
    kind: RowKind,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RowKind {
    /// Three columns; the reason is wrapped.
    #[default]
    Table,
    /// Three columns, of which none is wrapped: users search and copy the text.
    Entry,
    /// A name, and wrapped text in the place of both other columns.
    Prose,
    /// One text that is not wrapped.
    Line,
}

#[derive(Debug)]
struct Section {
    title: String,
    note: String,
    role: TextRole,
    rows: Vec<Row>,
}

/// A page to which sections and rows are added. It escapes all text.
#[derive(Debug)]
pub struct Page {
    view: View,
    sections: Vec<Section>,
    has_common_columns: bool,
}

impl Page {
    pub fn new(view: View) -> Self {
        Page { view, sections: Vec::new(), has_common_columns: false }
    }

    /// Makes a page whose columns have the same width in all sections.
    pub fn with_common_columns(view: View) -> Self {
        Page { has_common_columns: true, ..Page::new(view) }
    }

    pub fn view(&self) -> View {
        self.view
    }

    /// Begins a section. A section without rows is not printed.
    pub fn section(&mut self, title: &str) {
        let title = escape(title).into_owned();
        self.sections.push(Section { title, note: String::new(), role: TextRole::Title, rows: Vec::new() });
    }

    /// Sets the text behind the section's title.
    pub fn note(&mut self, note: &str) {
        self.current().note = escape(note).into_owned();
    }

    /// Colours the section's title as a warning.
    pub fn warn(&mut self) {
        self.current().role = TextRole::Warning;
    }

    pub fn row(&mut self, name: &str, value: &str, reason: &str) {
        self.push(RowKind::Table, name, value, reason);
    }

    /// Adds a row whose text is not wrapped.
    pub fn entry(&mut self, name: &str, value: &str, text: &str) {
        self.push(RowKind::Entry, name, value, text);
    }

    /// Adds a row of a name and wrapped text.
    pub fn prose(&mut self, name: &str, text: &str) {
        self.push(RowKind::Prose, name, "", text);
    }

    /// Adds a line that is not wrapped.
    pub fn line(&mut self, line: &str) {
        self.push(RowKind::Line, line, "", "");
    }

    fn push(&mut self, kind: RowKind, name: &str, value: &str, reason: &str) {
        let [name, value, reason] = [name, value, reason].map(|text| escape(text).into_owned());
        self.current().rows.push(Row { name, value, reason, kind });
    }

    fn current(&mut self) -> &mut Section {
        if self.sections.is_empty() {
            self.section("");
        }
        let last = self.sections.len() - 1;
        &mut self.sections[last]
    }

    pub fn finish(self) -> String {
        let mut text = String::new();
        let common = self
            .has_common_columns
            .then(|| Layout::of(self.sections.iter().flat_map(|section| &section.rows), self.view.width));
        for section in self.sections.iter().filter(|section| !section.rows.is_empty()) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let note = if section.note.is_empty() { String::new() } else { format!(" – {}", section.note) };
            let title = self.view.paint(section.role, &section.title);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{gap}{title}{}", self.view.paint(TextRole::Reason, &note));
            let own = Layout::of(&section.rows, self.view.width);
            for row in &section.rows {
                common.as_ref().unwrap_or(&own).write(row, self.view, &mut text);
            }
        }
        text
    }
}

/// The widths of the columns.
struct Layout {
    names: usize,
    values: usize,
    /// `None` puts reasons below the values.
    reasons: Option<usize>,
    width: usize,
}

impl Layout {
    fn of<'a>(rows: impl IntoIterator<Item = &'a Row>, width: usize) -> Self {
        let rows: Vec<&Row> = rows.into_iter().filter(|row| row.kind != RowKind::Line).collect();
        // A longer cell does not widen its column; what follows it moves to the next line.
        let longest = |column: fn(&Row) -> &String, limit: usize| {
            let lengths = rows.iter().map(|row| columns(column(row)));
            lengths.filter(|length| *length <= limit).max().unwrap_or(0)
        };
        let names = longest(|row| &row.name, width / 3);
        let values = longest(|row| &row.value, width.saturating_sub(names) / 2);
        let reasons = width.checked_sub(names + values + 6).filter(|rest| *rest >= MIN_REASON_WIDTH);
        Layout { names, values, reasons, width }
    }

    fn write(&self, row: &Row, view: View, text: &mut String) {
        if row.kind == RowKind::Line {
            let _ = writeln!(text, "  {}", row.name);
            return;
        }
        let (names, values) = (self.names, self.values);
        let gap = names.saturating_sub(columns(&row.name));
        let mut line = format!("  {}{:gap$}", view.paint(TextRole::Name, &row.name), "");
        let mut end = 2 + columns(&row.name).max(names);
        if !row.value.is_empty() {
            let _ = write!(line, "  {}", row.value);
            end += 2 + columns(&row.value);
        }
        let below = 2 + names + 2;
        if row.kind == RowKind::Entry {
            let gap = (below + values + 2).saturating_sub(end).max(2);
            let _ = writeln!(text, "{line}{:gap$}{}", "", row.reason);
            return;
        }
        let (start, room) = match (row.kind, self.reasons) {
            (RowKind::Table, Some(room)) => (below + values + 2, room),
            _ => (below, self.width.saturating_sub(below).max(MIN_REASON_WIDTH)),
        };
        let paint = |part: String| if row.kind == RowKind::Prose { part } else { view.paint(TextRole::Reason, &part) };
        let mut parts = wrapped(&row.reason, room).into_iter();
        // After a value that leaves no room, the reason starts on the next line.
        if let Some(gap) = start.checked_sub(end).filter(|gap| *gap >= 2)
            && let Some(first) = parts.next()
        {
            let _ = write!(line, "{:gap$}{}", "", paint(first));
        }
        let _ = writeln!(text, "{}", line.trim_end());
        for part in parts {
            let _ = writeln!(text, "{:start$}{}", "", paint(part));
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
    fn reasons_are_wrapped_in_their_column_and_follow_long_values_on_the_next_line() {
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
