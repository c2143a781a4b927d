//! Replaces secret values in what a server sends, also where a value is divided over several reads.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::login::Login;
use super::binding::forms;

/// The values that must not reach the guest, each with a text of the same length.
pub struct Patterns {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The bytes with which a value starts, in both cases.
    first: [bool; 256],
    skips: Skips,
    longest: usize,
}

/// Tells how far a search may go on after two bytes, as Wu and Manber do: the shortest value has as many
/// bytes as the part of the text that ends with the two, so most text is never looked at.
struct Skips {
    /// The length of the shortest value.
    part: usize,
    /// By the hash of two bytes, in either case.
    distances: [u8; Skips::COUNT],
}

impl Skips {
    const COUNT: usize = 1 << 12;

    fn new<'a>(values: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let part = values.clone().map(<[u8]>::len).min().unwrap_or(0).min(usize::from(u8::MAX));
        let most = u8::try_from(part.saturating_sub(1)).unwrap_or(u8::MAX);
        let mut distances = [most; Self::COUNT];
        for value in values {
            for (distance, pair) in (0..most).zip(value.get(..part).unwrap_or_default().windows(2).rev()) {
                if let Some(known) = distances.get_mut(Self::hash(pair)) {
                    *known = distance.min(*known);
                }
            }
        }
        Skips { part, distances }
    }

    fn hash(pair: &[u8]) -> usize {
        let byte = |at: usize| pair.get(at).map_or(0, |byte| usize::from(byte.to_ascii_lowercase()));
        (byte(0) << 4 ^ byte(1)) % Self::COUNT
    }

    /// Returns the first place at or after `at` where a value may be, as far as whole parts follow.
    fn next(&self, text: &[u8], mut at: usize) -> usize {
        if self.part < 2 {
            return at;
        }
        while let Some(pair) = text.get(at + self.part - 2..at + self.part) {
            match self.distances.get(Self::hash(pair)) {
                Some(0) | None => break,
                Some(distance) => at += usize::from(*distance),
            }
        }
        at
    }
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patterns({})", self.pairs.len())
    }
}

impl Patterns {
    /// Makes the patterns. A replacement of another length is filled up or cut, because an answer
    /// tells its length before it is searched.
    pub fn new(pairs: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let skips = Skips::new(std::iter::empty());
        let mut patterns = Patterns { pairs: Vec::new(), first: [false; 256], skips, longest: 0 };
        for (value, mut replacement) in pairs {
            let Some(first) = value.first().copied() else { continue };
            if patterns.pairs.iter().any(|(known, _)| known.eq_ignore_ascii_case(&value)) {
                continue;
            }
            replacement.resize(value.len(), b'*');
            patterns.first[usize::from(first.to_ascii_lowercase())] = true;
            patterns.first[usize::from(first.to_ascii_uppercase())] = true;
            patterns.longest = patterns.longest.max(value.len());
            patterns.pairs.push((value, replacement));
        }
        // The longest match counts.
        patterns.pairs.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        patterns.skips = Skips::new(patterns.pairs.iter().map(|(value, _)| value.as_slice()));
        patterns
    }

    /// Replaces values in a text that is complete. Returns whether there were any.
    pub fn replace_all(&self, text: &mut [u8]) -> bool {
        self.replace(text).1
    }

    /// Replaces complete values, also where a server changed the case of letters. Returns where a value
    /// may begin whose rest is missing, and whether any was replaced.
    fn replace(&self, text: &mut [u8]) -> (usize, bool) {
        let (mut at, mut found) = (0, false);
        while at < text.len() {
            at = self.skips.next(text, at);
            if !self.first[usize::from(text[at])] {
                at += 1;
                continue;
            }
            let rest = &text[at..];
            match self.pairs.iter().find(|(value, _)| starts_with(rest, value)) {
                Some((value, replacement)) => {
                    let end = at + value.len();
                    text[at..end].copy_from_slice(replacement);
                    (at, found) = (end, true);
                }
                None if rest.len() < self.longest && self.pairs.iter().any(|(value, _)| starts_with(value, rest)) => {
                    return (at, found);
                }
                None => at += 1,
            }
        }
        (text.len(), found)
    }
}

fn starts_with(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|part| part.eq_ignore_ascii_case(start))
}

/// The values of a session. Those of logins change when they are refreshed.
#[derive(Debug, Default)]
pub struct SessionPatterns {
    keys: Vec<(Vec<u8>, Vec<u8>)>,
    logins: Vec<Arc<Login>>,
    /// The patterns, and the changes of each login when they were made.
    made: Mutex<Option<(Vec<u64>, Arc<Patterns>)>>,
}

impl SessionPatterns {
    pub fn new(keys: Vec<(Vec<u8>, Vec<u8>)>, logins: Vec<Arc<Login>>) -> Self {
        SessionPatterns { keys, logins, made: Mutex::default() }
    }

    /// Returns the present patterns.
    pub fn get(&self) -> Arc<Patterns> {
        let seen: Vec<_> = self.logins.iter().map(|login| login.seen()).collect();
        let changes: Vec<u64> = seen.iter().map(|(changes, _)| *changes).collect();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((known, patterns)) if *known == changes => patterns.clone(),
            _ => {
                let tokens = seen.iter().flat_map(|(_, pairs)| pairs).flat_map(|(value, other)| forms(value, other));
                let patterns = Arc::new(Patterns::new(self.keys.iter().cloned().chain(tokens)));
                *made = Some((changes, patterns.clone()));
                patterns
            }
        }
    }
}

/// Searches one stream.
#[derive(Debug)]
pub struct Redactor<'a> {
    patterns: &'a Patterns,
    /// The beginning of what may be a value.
    held: Vec<u8>,
    /// Whether a value was replaced.
    pub has_found: bool,
}

impl<'a> Redactor<'a> {
    pub fn new(patterns: &'a Patterns) -> Self {
        Redactor { patterns, held: Vec::new(), has_found: false }
    }

    pub fn patterns(&self) -> &'a Patterns {
        self.patterns
    }

    /// Adds what may be passed on. Bytes that may begin a value wait for the next ones.
    pub fn push(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.append(&mut self.held);
        out.extend_from_slice(data);
        let (safe, found) = self.patterns.replace(&mut out[start..]);
        self.has_found |= found;
        self.held = out.split_off(start + safe);
    }

    /// Adds the bytes that turned out not to begin a value, at the end of the stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use base64ct::{Base64, Base64UrlUnpadded, Encoding};
    use proptest::prelude::*;

    fn patterns() -> Patterns {
        let pair = |value: &str, other: &str| (value.as_bytes().to_vec(), other.as_bytes().to_vec());
        Patterns::new([pair("sk-secret-value", "sk-placeholders"), pair("sk-sk-other", "short"), pair("aab", "xyz")])
    }

    fn redacted(parts: &[&[u8]]) -> Vec<u8> {
        let patterns = patterns();
        let (mut redactor, mut out) = (Redactor::new(&patterns), Vec::new());
        for part in parts {
            redactor.push(part, &mut out);
        }
        redactor.finish(&mut out);
        out
    }

    #[test]
    fn values_are_found_wherever_they_are_divided() {
        let text = b"x sk-secret-value sk-sk-secret-value aaab sk-sk-other sk-secret-valu";
        let expected = b"x sk-placeholders sk-sk-placeholders axyz short****** sk-secret-valu".to_vec();
        assert_eq!(redacted(&[text]), expected);
        for at in 0..text.len() {
            assert_eq!(redacted(&[&text[..at], &text[at..]]), expected, "{at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(redacted(&bytes), expected);
        assert_eq!(redacted(&[b"SK-Secret-VALUE", b" AaB"]), b"sk-placeholders xyz");
    }

    #[test]
    fn a_value_is_found_in_the_encodings_of_servers() {
        let (value, other) = (Secret::new("1//Secret+Value/0123=x"), Secret::new("1//Other0+Thing/4567=x"));
        let patterns = Patterns::new(forms(&value, &other));
        let text = value.reveal().to_string_lossy().into_owned();
        let url: String = text.bytes().map(super::super::binding::percent).collect();
        let hexadecimal: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
        let escaped = [text.replace('/', "\\/"), text.to_ascii_uppercase(), text.clone()];
        for encoded in [url.to_ascii_lowercase(), url, hexadecimal].into_iter().chain(escaped) {
            let mut answer = format!("a {encoded} b").into_bytes();
            assert!(patterns.replace_all(&mut answer), "{encoded}");
            let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
            assert!(!["ecret", "0123", "6563726574"].iter().any(|part| answer.contains(part)), "{answer}");
        }
        // Wherever the value is in a longer text, and whatever follows.
        for before in ["", "x", "Bearer ", "x-access-token:", "\"key\":\""] {
            for after in ["", "\"", "\r\n"] {
                for encode in [Base64::encode_string, Base64UrlUnpadded::encode_string] {
                    let mut answer = encode(format!("{before}{text}{after}").as_bytes()).into_bytes();
                    assert!(patterns.replace_all(&mut answer), "{before}{after}");
                    let answer =
                        String::from_utf8_lossy(&answer).trim_end_matches('=').replace('+', "-").replace('/', "_");
                    let decoded = Base64UrlUnpadded::decode_vec(&answer).expect("Base64");
                    let decoded = String::from_utf8_lossy(&decoded).into_owned();
                    assert!(decoded.contains("/Other0+Thing/4567"), "{decoded}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_a_value_is_passed_on_at_once() {
        let patterns = patterns();
        let (mut redactor, mut out) = (Redactor::new(&patterns), Vec::new());
        redactor.push(b"data: sk-secret \n\n", &mut out);
        assert_eq!(out, b"data: sk-secret \n\n");
    }

    /// Compares with a search that looks everywhere.
    fn replaced_everywhere(patterns: &Patterns, text: &[u8]) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(byte) = text.get(at) {
            let found = patterns.pairs.iter().find(|(value, _)| starts_with(&text[at..], value));
            out.extend_from_slice(found.map_or(&[*byte], |(_, replacement)| replacement.as_slice()));
            at += found.map_or(1, |(value, _)| value.len());
        }
        out
    }

    proptest! {
        #[test]
        fn nothing_is_skipped(
            values in proptest::collection::vec("[abA]{2,6}", 1..4),
            text in "[abcA]{0,60}",
            at in 0_usize..60,
        ) {
            let pairs = values.iter().map(|value| (value.clone().into_bytes(), vec![b'x'; value.len()]));
            let patterns = Patterns::new(pairs);
            let (mut redactor, mut out) = (Redactor::new(&patterns), Vec::new());
            let (one, other) = text.as_bytes().split_at(at.min(text.len()));
            redactor.push(one, &mut out);
            redactor.push(other, &mut out);
            redactor.finish(&mut out);
            // A shorter value may be replaced where a longer one is divided.
            let is_in = |value: &String, other: &String| {
                value != other && other.to_lowercase().contains(&value.to_lowercase())
            };
            if !values.iter().any(|value| values.iter().any(|other| is_in(value, other))) {
                prop_assert_eq!(out, replaced_everywhere(&patterns, text.as_bytes()));
            }
        }

        #[test]
        fn other_text_is_unchanged(parts in proptest::collection::vec("[skaCret-]{0,6}", 0..12)) {
            let text = parts.concat();
            let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
            let values = ["sk-secret-value", "sk-sk-other", "aab"];
            let out = redacted(&parts);
            prop_assert_eq!(out.len(), text.len());
            let text = text.to_ascii_lowercase();
            let out = out.to_ascii_lowercase();
            if !values.iter().any(|value| text.contains(value)) {
                prop_assert_eq!(out, text.as_bytes());
            } else {
                let out = String::from_utf8(out).unwrap_or_default();
                prop_assert!(!values[..2].iter().any(|value| out.contains(value)));
            }
        }
    }
}
