//! Parses words in the form in which Git quotes them for a shell: `'it'\''s'`. Reads no files.

/// Splits words that are separated by spaces. Returns `None` if one of them is not quoted.
pub fn words(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(' ');
    while !rest.is_empty() {
        let (word, after) = first(rest)?;
        found.push(word);
        rest = match after.strip_prefix(' ') {
            Some(after) => after.trim_start_matches(' '),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(found)
}

/// Parses a single word.
pub fn word(text: &str) -> Option<String> {
    first(text).and_then(|(word, rest)| rest.is_empty().then_some(word))
}

/// Parses the word at the beginning. Only `'` and `!` appear outside of quotes, after a backslash.
fn first(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text.strip_prefix('\'')?;
    loop {
        let (part, after) = rest.split_once('\'')?;
        if part.contains('\n') {
            return None;
        }
        word.push_str(part);
        let Some(escaped) = after.strip_prefix('\\') else { return Some((word, after)) };
        let character = escaped.chars().next().filter(|c| matches!(c, '\'' | '!'))?;
        word.push(character);
        rest = escaped[1..].strip_prefix('\'')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        for (text, expected) in [
            ("", vec![]),
            (" 'a' 'b c'", vec!["a", "b c"]),
            ("'it'\\''s' ''", vec!["it's", ""]),
            ("'a'\\!'$(b)`c`'", vec!["a!$(b)`c`"]),
        ] {
            assert_eq!(words(text), Some(expected.into_iter().map(str::to_owned).collect()), "{text}");
        }
    }

    #[test]
    fn anything_outside_of_quotes_is_refused() {
        for text in [
            "a",
            "'a",
            "'a'b",
            "'a''b'",
            "'a'\\b'c'",
            "'a'\\'",
            "'a'\\''",
            "'a';b",
            "$(a)",
            "'a' $(b)",
            "'a\nb'",
            "'a'\\é",
        ] {
            assert_eq!(words(text), None, "{text}");
            assert_eq!(word(text), None, "{text}");
        }
        assert_eq!(word("'a' 'b'"), None);
    }
}
