//! Decides width, colour and detail of a page. Colour is never the only carrier of
//! information.

use anstyle::{AnsiColor, Style};

use crate::host::Host;

/// The width for files and pipes, which is the same on every machine.
const WIDTH: usize = 100;
/// Three columns need at least this width.
const MIN_WIDTH: usize = 60;
/// Longer lines are hard to follow.
const MAX_WIDTH: usize = 160;

/// The width, colour and detail of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The number of columns at which text is wrapped.
    pub width: usize,
    /// Whether stdout is a terminal.
    pub is_terminal: bool,
    /// Whether text is coloured with ANSI sequences.
    pub colour: bool,
    /// Whether every entry is listed with its origin, instead of being summarized or cut.
    pub detailed: bool,
}

impl Default for View {
    /// Returns plain text of 100 columns, without details.
    fn default() -> Self {
        View { width: WIDTH, is_terminal: false, colour: false, detailed: false }
    }
}

impl View {
    /// Adapts to stdout: the width is that of the terminal or, without one, `COLUMNS`. Honours
    /// <https://no-color.org>.
    pub fn of(host: &Host, detailed: bool) -> Self {
        let columns = host.env.text("COLUMNS").and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
        let width = host.terminal.width.map_or(columns, |width| usize::from(width).min(MAX_WIDTH)).max(MIN_WIDTH);
        let is_terminal = host.terminal.stdout;
        let no_colour = host.env.text("NO_COLOR").is_some() || host.env.text("TERM") == Some("dumb");
        View { width, is_terminal, colour: is_terminal && !no_colour, detailed }
    }

    pub(super) fn paint(self, role: TextRole, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let style = role.style();
        format!("{style}{text}{style:#}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRole {
    Title,
    Name,
    Reason,
    Warning,
}

impl TextRole {
    fn style(self) -> Style {
        match self {
            TextRole::Title => Style::new().bold(),
            TextRole::Name => AnsiColor::Cyan.on_default(),
            TextRole::Reason => Style::new().dimmed(),
            TextRole::Warning => AnsiColor::Yellow.on_default().bold(),
        }
    }
}
