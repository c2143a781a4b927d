//! The last bytes of the guest's output that are the start of a control sequence or of a character.
//! A redraw ends with them, so that the terminal understands the bytes that follow.

/// The longest start that is kept, in bytes.
const MAX_START: usize = 4096;
/// Replaces the start of a longer string: terminals skip a string of an unknown kind.
const UNKNOWN_STRING: &[u8] = b"\x1b]9999;";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    None,
    /// After ESC and its intermediate bytes.
    Escape,
    Csi,
    /// A string up to BEL, or ESC of the terminator.
    Osc,
    /// Another string, up to ESC of the terminator.
    OtherString,
    /// A character of which so many bytes are missing.
    Utf8(u8),
}

#[derive(Debug, Default)]
pub struct Unfinished {
    kind: Kind,
    start: Vec<u8>,
}

impl Unfinished {
    pub fn bytes(&self) -> &[u8] {
        &self.start
    }

    pub fn process(&mut self, bytes: &[u8]) {
        // ESC ends what came before, so that nothing before the last one matters.
        let from = match bytes.iter().rposition(|byte| *byte == 0x1b) {
            Some(escape) => {
                self.set(Kind::None);
                escape
            }
            // Only the last bytes of text can be unfinished.
            None if self.kind == Kind::None => bytes.len().saturating_sub(3),
            None => 0,
        };
        for byte in bytes.get(from..).into_iter().flatten() {
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        let next = match (self.kind, byte) {
            (_, 0x1b) => Kind::Escape,
            (Kind::None | Kind::Utf8(_), 0xc2..=0xdf) => Kind::Utf8(1),
            (Kind::None | Kind::Utf8(_), 0xe0..=0xef) => Kind::Utf8(2),
            (Kind::None | Kind::Utf8(_), 0xf0..=0xf4) => Kind::Utf8(3),
            (Kind::Utf8(missing @ 2..), 0x80..=0xbf) => Kind::Utf8(missing - 1),
            (Kind::None | Kind::Utf8(_), _) | (_, 0x18 | 0x1a) => Kind::None,
            (Kind::Escape, b'[') if self.start.len() == 1 => Kind::Csi,
            (Kind::Escape, b']') if self.start.len() == 1 => Kind::Osc,
            (Kind::Escape, b'P' | b'X' | b'^' | b'_') if self.start.len() == 1 => Kind::OtherString,
            (Kind::Escape, 0x30..=0x7e) | (Kind::Csi, 0x40..=0x7e) | (Kind::Osc, 0x07) => Kind::None,
            (kind, _) => kind,
        };
        let starts = byte == 0x1b || matches!(byte, 0xc2..) && matches!(next, Kind::Utf8(_));
        if starts || next == Kind::None {
            self.set(next);
        }
        self.kind = next;
        // In the middle of a sequence, a terminal executes control characters, whose effect the
        // screen shows already, and ignores others.
        let is_part = byte == 0x1b || (0x20..0x7f).contains(&byte) || !matches!(next, Kind::Escape | Kind::Csi);
        if next != Kind::None && is_part {
            self.push(byte);
        }
        let is_invalid =
            |start| std::str::from_utf8(start).is_err_and(|error: std::str::Utf8Error| error.error_len().is_some());
        if matches!(next, Kind::Utf8(_)) && is_invalid(&self.start) {
            self.set(Kind::None);
        }
    }

    fn set(&mut self, kind: Kind) {
        self.kind = kind;
        self.start.clear();
    }

    fn push(&mut self, byte: u8) {
        if self.start.len() < MAX_START {
            self.start.push(byte);
        } else if matches!(self.kind, Kind::Osc | Kind::OtherString) {
            self.start = UNKNOWN_STRING.to_vec();
            self.kind = Kind::Osc;
        }
    }
}
