//! Finds sequences in a guest's output that a terminal answers, and takes the answers, so that none
//! of them is typed into the host's shell after the guest's end.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::process::signals::poll_until;

/// A terminal that has not answered after this time does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// A query that is older has been answered.
const QUERY_LIFETIME: Duration = Duration::from_secs(5);
/// Asks for the terminal's status. Terminals answer in order, so all other answers come before.
const STATUS_QUERY: &[u8] = b"\x1b[5n";
const STATUS_ANSWER: &[u8] = b"\x1b[0n";

/// Looks for queries in a stream of output.
#[derive(Debug, Default)]
pub struct QueryDetector {
    state: State,
    /// The byte before.
    previous: u8,
    last_query: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    /// In a control sequence, with the first of its parameter bytes, its first number, and its last
    /// intermediate byte.
    Control {
        marker: u8,
        number: Option<u16>,
        intermediate: u8,
    },
    /// In an operating system command.
    Command,
}

const CONTROL: State = State::Control { marker: 0, number: None, intermediate: 0 };

impl QueryDetector {
    /// Looks at output that the terminal gets next.
    pub fn look_at(&mut self, output: &[u8]) {
        let mut rest = output;
        while !rest.is_empty() {
            if self.state == State::Text {
                let start = rest.iter().position(|byte| matches!(byte, 0x05 | 0x1b | 0x90 | 0x9b | 0x9d | 0x9f));
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
    pub fn take_recent(&mut self) -> bool {
        self.last_query.take().is_some_and(|time| time.elapsed() < QUERY_LIFETIME)
    }

    /// Takes a byte; returns whether it ends a query.
    fn step(&mut self, byte: u8) -> bool {
        // Within a character of UTF-8, these bytes are no control characters.
        let is_text = byte >= 0x80 && self.previous >= 0x80 && self.previous != 0xc2;
        let (state, is_query) = match (self.state, byte) {
            (State::Text, _) if is_text => (State::Text, false),
            (state, 0x05) => (state, true),
            (_, 0x1b) => (State::Escape, false),
            (_, 0x18 | 0x1a) => (State::Text, false),
            (State::Text, 0x9b) | (State::Escape, b'[') => (CONTROL, false),
            (State::Text, 0x9d) | (State::Escape, b']') => (State::Command, false),
            // Device control strings and application commands are mostly queries.
            (State::Text, 0x90 | 0x9f) | (State::Escape, b'P' | b'_' | b'Z') => (State::Text, true),
            (State::Escape, 0..=0x2f) => (State::Escape, false),
            (State::Text | State::Escape, _) => (State::Text, false),
            (State::Command, b'?') => (State::Command, true),
            (State::Command, 0x07 | 0x9c) => (State::Text, false),
            (State::Command, _) => (State::Command, false),
            (State::Control { marker, number, intermediate }, 0x40..=0x7e) => {
                (State::Text, is_query(marker, number, intermediate, byte))
            }
            (State::Control { marker, number, intermediate }, _) => {
                (self.parameter(marker, number, intermediate, byte), false)
            }
        };
        self.state = state;
        is_query
    }

    fn parameter(&self, marker: u8, number: Option<u16>, intermediate: u8, byte: u8) -> State {
        match byte {
            b'0'..=b'9' if number.is_none() || marker & 0x80 == 0 => {
                let number = number.unwrap_or(0).saturating_mul(10).saturating_add((byte - b'0').into());
                State::Control { marker, number: Some(number), intermediate }
            }
            // The marker's highest bit tells that the first number is over.
            b':' | b';' => State::Control { marker: marker | 0x80, number, intermediate },
            b'<'..=b'?' => State::Control { marker: byte, number, intermediate },
            0x20..=0x2f => State::Control { marker, number, intermediate: byte },
            _ => State::Control { marker, number, intermediate },
        }
    }
}

/// Tells whether terminals answer a control sequence with this last byte.
fn is_query(marker: u8, number: Option<u16>, intermediate: u8, last: u8) -> bool {
    match last {
        b'c' | b'n' | b'x' => true,
        b't' => number.is_some_and(|number| (11..=21).contains(&number)),
        b'p' => intermediate == b'$',
        b'q' => marker & 0x7f == b'>',
        b'u' | b'S' => marker & 0x7f == b'?',
        b'w' | b'y' | b'|' | b'}' => intermediate != 0,
        _ => false,
    }
}

/// Reads and drops all answers of a terminal in raw mode, and what was typed meanwhile.
pub fn drop_answers(input: BorrowedFd<'_>, output: BorrowedFd<'_>) {
    if rustix::io::write(output, STATUS_QUERY) != Ok(STATUS_QUERY.len()) {
        return;
    }
    let limit = Instant::now() + ANSWER_TIMEOUT;
    let mut end = Vec::new();
    while !end.ends_with(STATUS_ANSWER) && Instant::now() < limit {
        let mut descriptors = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        poll_until(&mut descriptors, Some(limit));
        if descriptors[0].revents().is_empty() {
            continue;
        }
        let mut byte = [0];
        let Ok(1..) = rustix::io::read(input, &mut byte) else { return };
        end.extend_from_slice(&byte);
        let surplus = end.len().saturating_sub(STATUS_ANSWER.len());
        end.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(output: &[u8]) -> bool {
        // In one piece and byte by byte.
        let mut whole = QueryDetector::default();
        whole.look_at(output);
        let mut parts = QueryDetector::default();
        output.chunks(1).for_each(|part| parts.look_at(part));
        let found = whole.take_recent();
        assert_eq!(found, parts.take_recent(), "{output:?}");
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
}
