//! How a page is shown: for whom, how wide, with how much detail. Colour is an extra; nothing is said by it alone.

use anstyle::{AnsiColor, Style};

use crate::host::Host;

/// The width of a page that nobody watches: files, pipes and tests see the same text everywhere.
const WIDTH: usize = 100;
/// Narrower than this, columns would be of no use.
const NARROWEST: usize = 60;
/// Wider than this, the eye loses its line.
const WIDEST: usize = 160;

/// How a page is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// How wide it is.
    pub width: usize,
    /// Whether a person sees it at once.
    pub is_terminal: bool,
    /// Whether it has colours.
    pub colour: bool,
    /// Whether every entry is shown by itself, with its origin, and nothing summed up or cut off.
    pub detailed: bool,
}

impl Default for View {
    /// Plain text of the usual width.
    fn default() -> Self {
        View { width: WIDTH, is_terminal: false, colour: false, detailed: false }
    }
}

impl View {
    /// As stdout wants it: a terminal tells its width, and `COLUMNS` that of a page for no terminal. See also
    /// <https://no-color.org>.
    pub fn of(host: &Host, detailed: bool) -> Self {
        let told = host.env.text("COLUMNS").and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
        let width = host.terminal.width.map_or(told, |width| usize::from(width).min(WIDEST)).max(NARROWEST);
        let is_terminal = host.terminal.stdout;
        let wants_none = host.env.text("NO_COLOR").is_some() || host.env.text("TERM") == Some("dumb");
        View { width, is_terminal, colour: is_terminal && !wants_none, detailed }
    }

    /// Text in a style, if there are any.
    pub(super) fn paint(self, ink: Ink, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let style = ink.style();
        format!("{style}{text}{style:#}")
    }
}

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// A heading.
    Title,
    /// What an entry is called.
    Name,
    /// Why it is there.
    Reason,
    /// Something that is less than was asked for.
    Warning,
}

impl Ink {
    fn style(self) -> Style {
        match self {
            Ink::Title => Style::new().bold(),
            Ink::Name => AnsiColor::Cyan.on_default(),
            Ink::Reason => Style::new().dimmed(),
            Ink::Warning => AnsiColor::Yellow.on_default().bold(),
        }
    }
}
