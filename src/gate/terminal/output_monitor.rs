//! Follows a guest's output on its way to the caller's terminal: whether it contains queries that the
//! terminal answers, and what would still affect the terminal after the guest's end.

use std::time::{Duration, Instant};

use super::report_modes::ReportModes;

/// A query that is older has been answered.
const QUERY_LIFETIME: Duration = Duration::from_secs(5);
/// The most parameters of a control sequence that are looked at. Terminals take no more.
const MAX_PARAMETERS: usize = 256;
/// CAN, which cancels a sequence.
const CANCEL: u8 = 0x18;

/// Follows a stream of output.
#[derive(Debug, Default)]
pub struct OutputMonitor {
    state: State,
    /// The byte before.
    previous: u8,
    /// The numbers of the control sequence.
    parameters: Vec<u16>,
    last_query: Option<Instant>,
    /// Whether a string has started of which not every terminal has seen the end: some take the
    /// terminator of one byte for text.
    is_string_open: bool,
    reports: ReportModes,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    /// In a control sequence, with the first of its parameter bytes if that is no digit, and its last
    /// intermediate byte.
    Control {
        marker: u8,
        intermediate: u8,
    },
    /// In an operating system command.
    Command,
    /// In another string, such as a device control string.
    OtherString,
}

const CONTROL: State = State::Control { marker: 0, intermediate: 0 };

impl OutputMonitor {
    /// Looks at output that the terminal gets next.
    pub fn look_at(&mut self, output: &[u8]) {
        let mut rest = output;
        while !rest.is_empty() {
            if self.state == State::Text {
                let is_special = |byte: &u8| matches!(byte, 0x05 | 0x1b | 0x90 | 0x98 | 0x9b | 0x9d..=0x9f);
                let start = rest.iter().position(is_special);
                let (text, sequence) = rest.split_at(start.unwrap_or(rest.len()));
                self.previous = text.last().copied().unwrap_or(self.previous);
                rest = sequence;
            }
            let Some((byte, after)) = rest.split_first() else { return };
            if self.step(*byte) {
                self.last_query = Some(Instant::now());
            }
            (self.previous, rest) = (*byte, after);
        }
    }

    /// Tells whether an answer may still come, and forgets it.
    pub fn take_recent_query(&mut self) -> bool {
        self.last_query.take().is_some_and(|time| time.elapsed() < QUERY_LIFETIME)
    }

    /// Returns what cancels a sequence that the guest has not ended, which would take what the shell
    /// prints next, and turns off the reports that it has left on, which the shell would read.
    pub fn closing(&self) -> Vec<u8> {
        let is_unfinished = self.state != State::Text || self.is_string_open;
        let mut closing = if is_unfinished { vec![CANCEL] } else { Vec::new() };
        self.reports.write_off(&mut closing);
        closing
    }

    /// Returns what turns the reports on again for a guest that goes on.
    #[cfg(target_os = "linux")]
    pub fn reopening(&self) -> Vec<u8> {
        let mut reopening = Vec::new();
        self.reports.write_on(&mut reopening);
        reopening
    }

    /// Takes a byte; returns whether it ends a query.
    fn step(&mut self, byte: u8) -> bool {
        // Within a character of UTF-8, these bytes are no control characters.
        let is_text = byte >= 0x80 && self.previous >= 0x80 && self.previous != 0xc2;
        let (state, is_query) = match (self.state, byte) {
            (state @ (State::Text | State::Command | State::OtherString), _) if is_text => (state, false),
            (state, 0x05) => (state, true),
            (_, 0x1b) => (State::Escape, false),
            (_, CANCEL | 0x1a) => (State::Text, false),
            (State::Text, 0x9b) | (State::Escape, b'[') => {
                self.parameters.clear();
                (CONTROL, false)
            }
            (State::Text, 0x9d) | (State::Escape, b']') => (State::Command, false),
            // Device control strings and application commands are mostly queries.
            (State::Text, 0x90 | 0x9f) | (State::Escape, b'P' | b'_') => (State::OtherString, true),
            (State::Text, 0x98 | 0x9e) | (State::Escape, b'X' | b'^') => (State::OtherString, false),
            (State::Escape, b'Z') => (State::Text, true),
            (State::Escape, 0..=0x2f) => (State::Escape, false),
            (State::Text | State::Escape, _) => (State::Text, false),
            (State::Command, b'?') => (State::Command, true),
            (State::Command, 0x07) | (State::Command | State::OtherString, 0x9c) => (State::Text, false),
            (state @ (State::Command | State::OtherString), _) => (state, false),
            (State::Control { marker, intermediate }, 0x40..=0x7e) => {
                self.reports.follow(marker, &self.parameters, byte);
                (State::Text, self.is_query(marker, intermediate, byte))
            }
            (State::Control { marker, intermediate }, _) => (self.parameter(marker, intermediate, byte), false),
        };
        match (state, byte) {
            (State::Command | State::OtherString, _) => self.is_string_open = true,
            (_, 0x1b | CANCEL | 0x1a) => self.is_string_open = false,
            (_, 0x07) if self.state == State::Command => self.is_string_open = false,
            _ => {}
        }
        self.state = state;
        is_query
    }

    fn parameter(&mut self, marker: u8, intermediate: u8, byte: u8) -> State {
        match byte {
            b'0'..=b'9' => {
                if self.parameters.is_empty() {
                    self.parameters.push(0);
                }
                if let Some(number) = self.parameters.last_mut() {
                    *number = number.saturating_mul(10).saturating_add((byte - b'0').into());
                }
            }
            b':' | b';' if self.parameters.len() < MAX_PARAMETERS => {
                if self.parameters.is_empty() {
                    self.parameters.push(0);
                }
                self.parameters.push(0);
            }
            b'<'..=b'?' => return State::Control { marker: byte, intermediate },
            0x20..=0x2f => return State::Control { marker, intermediate: byte },
            _ => {}
        }
        State::Control { marker, intermediate }
    }

    /// Tells whether terminals answer a control sequence with this last byte.
    fn is_query(&self, marker: u8, intermediate: u8, last: u8) -> bool {
        match last {
            b'c' | b'n' | b'x' => true,
            b't' => self.parameters.first().is_some_and(|number| (11..=21).contains(number)),
            b'p' => intermediate == b'$',
            b'q' => marker == b'>',
            b'u' | b'S' => marker == b'?',
            b'w' | b'y' | b'|' | b'}' => intermediate != 0,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(output: &[u8]) -> bool {
        // In one piece and byte by byte.
        let mut whole = OutputMonitor::default();
        whole.look_at(output);
        let mut parts = OutputMonitor::default();
        output.chunks(1).for_each(|part| parts.look_at(part));
        let found = whole.take_recent_query();
        assert_eq!(found, parts.take_recent_query(), "{output:?}");
        found
    }

    #[test]
    fn queries_are_found() {
        let queries: [&[u8]; 20] = [
            b"\x1b[6n",
            b"\x1b[?6n",
            b"text\x1b[c",
            b"\x1b[>0c",
            b"\x1b[=c",
            b"\x1b[21t",
            b"\x1b[18;1t",
            b"\x1b]11;?\x07",
            b"\x1b]52;c;?\x1b\\",
            b"\x1bP$qm\x1b\\",
            b"\x1bP+q544e\x1b\\",
            b"\x1b[?1049$p",
            b"\x1b[>q",
            b"\x1b[?u",
            b"\x1bZ",
            b"\x05",
            b"\x9b6n",
            b"\xc2\x9b6n",
            b"\x1b[6\r\nn",
            b"\x1b_Gi=1,a=q\x1b\\",
        ];
        for query in queries {
            assert!(finds(query), "{query:?}");
        }
    }

    #[test]
    fn usual_output_has_none() {
        let outputs: [&[u8]; 9] = [
            b"plain text\r\n",
            b"\x1b[1;31mred\x1b[0m\x1b[2J\x1b[H\x1b[?1049h\x1b[?25l",
            b"\x1b]0;a title\x07",
            b"\x1b[2 q",
            b"\x1b[22;0t\x1b[23;0t",
            b"\x1b[8;30;100t",
            "grün – 汉字 🙂".as_bytes(),
            b"\x1b(B\x1b=\x1b7\x1b8\x1bM",
            b"\x1b[6\x18n",
        ];
        for output in outputs {
            assert!(!finds(output), "{output:?}");
        }
    }

    fn closing(output: &[u8]) -> String {
        let mut whole = OutputMonitor::default();
        whole.look_at(output);
        let mut parts = OutputMonitor::default();
        output.chunks(1).for_each(|part| parts.look_at(part));
        assert_eq!(whole.closing(), parts.closing(), "{output:?}");
        String::from_utf8_lossy(&whole.closing()).into_owned()
    }

    #[test]
    fn what_is_unfinished_is_cancelled() {
        let unfinished: [&[u8]; 14] = [
            b"\x1b",
            b"\x1b[",
            b"\x1b[12;3",
            b"\x1b(",
            b"\x1b]52;c;c3Rv",
            b"\x1b]0;title \xe2\x9c\x93",
            b"\x1bP$q",
            b"\x1bPq#0;2;0;0;0",
            b"\x1b_Gf=24;",
            b"\x1bX",
            b"\x1b^",
            b"\x9d52;c;",
            // Not every terminal knows these ends.
            b"\x1b]52;c;AAAA\xc2\x9c",
            b"\x1bPq\x07",
        ];
        for output in unfinished {
            assert_eq!(closing(output), "\x18", "{output:?}");
        }
        let finished: [&[u8]; 8] = [
            b"text",
            "\u{2713} gr\u{fc}n".as_bytes(),
            b"\x1b[1m",
            b"\x1b]0;title\x07",
            b"\x1b]52;c;AAAA\x1b\\",
            b"\x1bPq\x1b\\",
            b"\x1bPq\x18",
            b"\x1b[?1049h\x1b[?25l",
        ];
        for output in finished {
            assert_eq!(closing(output), "", "{output:?}");
        }
    }

    #[test]
    fn reports_that_are_left_on_are_turned_off() {
        let off = "\x1b[?1003l\x1b[?1004l";
        assert_eq!(closing(b"\x1b[?1000;1003h\x1b[?1006h\x1b[?1004h\x1b[?1000l\x1b[?2004h\x1b[?2004l"), off);
        assert_eq!(closing(b"\x1b[?1004h\x1b]0;"), "\x18\x1b[?1004l");
        // Others of this number are not private.
        assert_eq!(closing(b"\x1b[1000h\x1b[>1000h\x1b[?1000$p"), "");
        let many = format!("\x1b[?{}1000h", "1;".repeat(100_000));
        assert_eq!(closing(many.as_bytes()), "", "terminals take no more parameters");
    }
}
