//! The keys that detach `sandpen attach` from a sandbox: a sequence such as `ctrl-],d`.

use std::fmt;
use std::str::FromStr;

/// A sequence of keys, each one byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachKeys(Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a sequence of keys such as `ctrl-],d`")]
pub struct DetachKeysError(String);

impl Default for DetachKeys {
    /// Returns Ctrl-] followed by `d`.
    fn default() -> Self {
        DetachKeys(vec![0x1d, b'd'])
    }
}

/// Parses keys with commas between them, as `docker attach --detach-keys` does: a letter or another
/// ASCII character, or `ctrl-` and one of `a` to `z`, `@`, `[`, `\`, `]`, `^`, `_`.
impl FromStr for DetachKeys {
    type Err = DetachKeysError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let keys: Option<Vec<u8>> = text.split(',').map(parse_key).collect();
        keys.map(DetachKeys).ok_or_else(|| DetachKeysError(text.to_owned()))
    }
}

fn parse_key(key: &str) -> Option<u8> {
    match (key.as_bytes(), key.strip_prefix("ctrl-").map(str::as_bytes)) {
        ([byte @ 0x21..0x7f], _) => Some(*byte),
        (_, Some([byte])) if byte.is_ascii_alphabetic() || b"@[\\]^_".contains(byte) => {
            Some(byte.to_ascii_uppercase() & 0x1f)
        }
        _ => None,
    }
}

impl fmt::Display for DetachKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match key {
                0..0x20 => write!(f, "{separator}ctrl-{}", char::from(key | 0x40).to_ascii_lowercase())?,
                key => write!(f, "{separator}{}", char::from(*key))?,
            }
        }
        Ok(())
    }
}

/// Finds the detach keys in what is typed.
#[derive(Debug)]
pub struct DetachFilter {
    keys: DetachKeys,
    /// How many of the keys were typed and not passed on.
    held: usize,
}

impl DetachFilter {
    pub fn new(keys: DetachKeys) -> Self {
        DetachFilter { keys, held: 0 }
    }

    /// Appends to `passed` what the guest gets of the typed bytes; returns whether the keys were
    /// complete. What follows them is dropped. The first key typed twice is passed once.
    pub fn filter(&mut self, typed: &[u8], passed: &mut Vec<u8>) -> bool {
        for byte in typed {
            let DetachKeys(keys) = &self.keys;
            if keys.get(self.held) == Some(byte) {
                self.held += 1;
                if self.held == keys.len() {
                    self.held = 0;
                    return true;
                }
                continue;
            }
            let is_first_twice = self.held == 1 && keys.first() == Some(byte);
            passed.extend(keys.iter().take(self.held));
            self.held = 0;
            if is_first_twice {
                continue;
            }
            if keys.first() == Some(byte) {
                self.held = 1;
            } else {
                passed.push(*byte);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Types bytes, in pieces of one byte; returns what is passed and whether it detaches.
    fn typed(keys: &str, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut filter = DetachFilter::new(keys.parse().expect("keys"));
        let mut passed = Vec::new();
        let detaches = bytes.iter().any(|byte| filter.filter(&[*byte], &mut passed));
        (passed, detaches)
    }

    #[test]
    fn the_default_is_control_bracket_and_d() {
        assert_eq!("ctrl-],d".parse(), Ok(DetachKeys::default()));
        assert_eq!(DetachKeys::default().to_string(), "ctrl-],d");
        assert_eq!(typed("ctrl-],d", b"ls\r\x1dd"), (b"ls\r".to_vec(), true));
    }

    #[test]
    fn the_first_key_twice_sends_one() {
        assert_eq!(typed("ctrl-],d", b"a\x1d\x1db"), (b"a\x1db".to_vec(), false));
        assert_eq!(typed("ctrl-],d", b"\x1d\x1dd"), (b"\x1dd".to_vec(), false));
        assert_eq!(typed("ctrl-],d", b"\x1d\x1d\x1dd"), (b"\x1d".to_vec(), true));
    }

    #[test]
    fn another_key_after_the_first_sends_both() {
        assert_eq!(typed("ctrl-],d", b"\x1dx\x1bOA"), (b"\x1dx\x1bOA".to_vec(), false));
    }

    #[test]
    fn longer_sequences_and_the_same_key_twice() {
        assert_eq!(typed("ctrl-p,ctrl-q", b"a\x10\x11"), (b"a".to_vec(), true));
        assert_eq!(typed("a,b,c", b"ababc"), (b"ab".to_vec(), true));
        assert_eq!(typed("ctrl-a,ctrl-a,d", b"\x01\x01d"), (b"".to_vec(), true));
        assert_eq!(typed("ctrl-\\", b"x\x1c"), (b"x".to_vec(), true));
    }

    #[test]
    fn malformed_keys_are_refused() {
        for keys in ["", "ctrl-", "ctrl-1", "ctrl-ab", "ab", "a,,b", "ü", "a b", "ctrl-],"] {
            assert_eq!(keys.parse::<DetachKeys>(), Err(DetachKeysError(keys.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn input_without_the_first_key_passes_unchanged(bytes in vec(any::<u8>().prop_filter("the key", |b| *b != 0x1d), 0..100)) {
            prop_assert_eq!(typed("ctrl-],d", &bytes), (bytes, false));
        }

        #[test]
        fn what_is_shown_parses_to_the_same(keys in vec((0..0x20_u8).prop_filter("printable", |b| *b < 0x20), 1..4)) {
            let keys = DetachKeys(keys);
            prop_assert_eq!(keys.to_string().parse(), Ok(keys));
        }
    }
}
