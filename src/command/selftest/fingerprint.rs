//! Recognises a value without having it: the self-test must look for values inside the sandbox, where
//! none may be. Decides nothing about which values those are.

use serde::{Deserialize, Serialize};

/// A shorter value could be guessed from its fingerprint.
pub const MIN_LENGTH: usize = 24;

/// The length of a value and a hash of it that can be moved along a text byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    length: usize,
    base: u64,
    hash: u64,
}

impl Fingerprint {
    /// Returns the fingerprint of a value; `None` if it is too short. The base is random and odd, so that
    /// a value has another fingerprint in each self-test.
    pub fn of(value: &[u8], base: u64) -> Option<Self> {
        let base = base | 1;
        (value.len() >= MIN_LENGTH).then(|| Fingerprint { length: value.len(), base, hash: hash(value, base) })
    }

    pub fn is_in(&self, text: &[u8]) -> bool {
        if self.length < MIN_LENGTH || text.len() < self.length {
            return false;
        }
        let leaving = (1..self.length).fold(1_u64, |power, _| power.wrapping_mul(self.base));
        let mut moved = hash(&text[..self.length], self.base);
        for (old, new) in text.iter().zip(&text[self.length..]) {
            if moved == self.hash {
                return true;
            }
            let rest = moved.wrapping_sub(leaving.wrapping_mul(digit(*old)));
            moved = rest.wrapping_mul(self.base).wrapping_add(digit(*new));
        }
        moved == self.hash
    }
}

fn hash(value: &[u8], base: u64) -> u64 {
    value.iter().fold(0, |hash: u64, byte| hash.wrapping_mul(base).wrapping_add(digit(*byte)))
}

/// Spreads a byte over all bits, because the low bits of a product depend on low bits only.
fn digit(byte: u8) -> u64 {
    (u64::from(byte) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALUE: &[u8] = b"sk-0123456789abcdefghijkl";

    #[test]
    fn a_value_is_found_wherever_it_is() {
        let fingerprint = Fingerprint::of(VALUE, 0x1234_5678_9abc).expect("long enough");
        for (before, after) in [("", ""), ("x", ""), ("", "x"), ("sk-0123", "jkl"), ("xyz", "sk-")] {
            let text = [before.as_bytes(), VALUE, after.as_bytes()].concat();
            assert!(fingerprint.is_in(&text), "{before} {after}");
            assert!(!fingerprint.is_in(&text[..VALUE.len() - 1]));
        }
        assert_eq!(Fingerprint::of(&VALUE[..MIN_LENGTH - 1], 7), None);
        assert_ne!(Fingerprint::of(VALUE, 7), Fingerprint::of(VALUE, 9));
    }

    proptest! {
        #[test]
        fn it_is_found_exactly_where_a_search_finds_it(text in "[a-c]{0,80}", at in 0..50_usize, base: u64) {
            let text = text.into_bytes();
            let part = text.get(at..at + MIN_LENGTH).map_or_else(|| vec![b'a'; MIN_LENGTH], <[u8]>::to_vec);
            let fingerprint = Fingerprint::of(&part, base).expect("long enough");
            prop_assert_eq!(fingerprint.is_in(&text), text.windows(MIN_LENGTH).any(|window| window == part));
        }
    }
}
