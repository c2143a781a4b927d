//! Escapes text of repositories, agents and engines so that it cannot send control sequences to the
//! terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Tells whether a character controls the terminal or the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Replaces every control and direction character with a visible escape such as `\u{1b}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            c if is_control(c) => {
                // Writing to a String cannot fail.
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// A longer word in a message is shortened.
const MAX_WORD: usize = 200;
/// A longer message is shortened.
const MAX_MESSAGE: usize = 4000;

/// Shortens a message, and each word in it, so that a value of many kilobytes does not hide what is
/// wrong with it.
pub fn shorten(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_WORD {
        return Cow::Borrowed(text);
    }
    let words: Vec<Cow<'_, str>> = text.split(' ').map(|word| cut(word, MAX_WORD)).collect();
    let text = words.join(" ");
    Cow::Owned(cut(&text, MAX_MESSAGE).into_owned())
}

/// Replaces the middle of a text that is longer than `most` characters.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    let (start, end) = (most * 3 / 4, most / 8);
    let kept: String = text.chars().take(start).chain("…".chars()).chain(text.chars().skip(count - end)).collect();
    Cow::Owned(kept)
}

/// Escapes the characters that `serde_json` leaves raw (DEL, C1, direction marks), as JSON permits.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let raw = |c: char| is_control(c) && c != '\n';
    if !json.chars().any(raw) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if raw(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attack_10_terminal_escapes_become_text() {
        assert_eq!(escape("a\u{1b}[31mb\u{9b}c\u{202e}\n"), "a\\u{1b}[31mb\\u{9b}c\\u{202e}\\n");
        assert_eq!(escape("plain ü"), "plain ü");
    }

    #[test]
    fn a_long_value_is_shortened_and_the_rest_stays() {
        let long = "x".repeat(10_000);
        let message = format!("flag --image: `{long}` is not an image");
        let shown = shorten(&message);
        assert!(
            shown.len() < 300 && shown.starts_with("flag --image: `xxx") && shown.ends_with("xxx` is not an image")
        );
        assert!(shorten(&"many words ".repeat(5_000)).len() < 4_100);
        assert_eq!(shorten("a short one"), "a short one");
        assert!(shorten(&"ü".repeat(9_000)).contains('…'));
    }

    proptest! {
        #[test]
        fn no_control_character_remains(text in any::<String>()) {
            prop_assert!(!escape(&text).chars().any(is_control));
        }

        #[test]
        fn json_stays_the_same_value(text in any::<String>()) {
            let json = serde_json::to_string(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
            let back: String = serde_json::from_str(&escape_json(&json)).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(back, text);
        }
    }
}
