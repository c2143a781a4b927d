//! A pattern for files of the workspace that are hidden inside, as a line of `.gitignore` writes it.

use std::fmt;

use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// A pattern of `--hide`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HideGlob {
    text: String,
    /// The parts between slashes.
    parts: Vec<String>,
    /// Whether the pattern starts at the root of the workspace; otherwise it matches at any depth.
    is_anchored: bool,
    /// Whether it matches directories only.
    is_directory: bool,
}

/// Longer patterns name a file by mistake.
const MOST_PARTS: usize = 64;

impl HideGlob {
    /// Whether the pattern matches a path below the root of the workspace, given by its names.
    pub fn matches(&self, names: &[&[u8]], is_directory: bool) -> bool {
        if self.is_directory && !is_directory {
            return false;
        }
        match (self.is_anchored, names.last()) {
            (false, Some(name)) => self.parts.first().is_some_and(|part| matches_name(part.as_bytes(), name)),
            (true, Some(_)) => matches_parts(&self.parts, names),
            (_, None) => false,
        }
    }

    /// Whether a path below this directory may match.
    pub fn may_match_below(&self, names: &[&[u8]]) -> bool {
        if !self.is_anchored {
            return true;
        }
        for (index, part) in self.parts.iter().enumerate() {
            match names.get(index) {
                _ if part == "**" => return true,
                None => return true,
                Some(name) if !matches_name(part.as_bytes(), name) => return false,
                Some(_) => {}
            }
        }
        false
    }
}

/// Matches names against parts, of which `**` stands for any number of names.
fn matches_parts(parts: &[String], names: &[&[u8]]) -> bool {
    // For each part, which counts of names the parts before it can match.
    let mut reachable = vec![false; names.len() + 1];
    reachable[0] = true;
    for part in parts {
        let mut next = vec![false; names.len() + 1];
        for (count, _) in reachable.iter().enumerate().filter(|(_, is_reachable)| **is_reachable) {
            if part == "**" {
                next.iter_mut().skip(count).for_each(|count| *count = true);
            } else if names.get(count).is_some_and(|name| matches_name(part.as_bytes(), name)) {
                next[count + 1] = true;
            }
        }
        reachable = next;
    }
    reachable[names.len()]
}

/// Matches one name: `*`, `?`, `[a-z]`, `[!a]` and `\` have the meaning of `.gitignore`.
pub fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to continue if the rest does not match: after the last star, with one byte more in it.
    let mut retry: Option<(usize, usize)> = None;
    while from < name.len() {
        if pattern.get(at) == Some(&b'*') {
            retry = Some((at + 1, from));
            at += 1;
            continue;
        }
        match matches_byte(&pattern[at..], name[from]) {
            Some(length) => (at, from) = (at + length, from + 1),
            None => match &mut retry {
                Some((after, start)) => {
                    *start += 1;
                    (at, from) = (*after, *start);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Returns the length of the part of the pattern that matches this byte.
fn matches_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match class(rest, byte) {
            Some((is_match, length)) => is_match.then_some(length + 1),
            // Without its end it is an ordinary byte.
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Reads a class after its `[`: whether it contains the byte, and its length with the `]`.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let is_negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let start = usize::from(is_negated);
    let mut at = start;
    let mut is_found = false;
    loop {
        match pattern.get(at)? {
            b']' if at > start => return Some((is_found != is_negated, at + 1)),
            low => {
                let high = match pattern.get(at + 1..at + 3) {
                    Some([b'-', high]) if *high != b']' => {
                        at += 2;
                        high
                    }
                    _ => low,
                };
                is_found |= (*low..=*high).contains(&byte);
                at += 1;
            }
        }
    }
}

impl fmt::Display for HideGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

read_as_text!(HideGlob: { "type": "string" });

impl OptionValue for HideGlob {
    fn to_toml(&self) -> Toml {
        Toml::String(self.text.clone())
    }
}

impl Value for HideGlob {
    const NAME: &'static str = "a pattern of files to hide";
    const FORM: &'static str = "a pattern as in `.gitignore`, such as `.env*` or `/config/*.key`";

    fn parse(text: &str) -> Result<Self, Reason> {
        if text.starts_with('!') {
            return Err("a pattern cannot be negated: name only what is hidden".into());
        }
        let is_directory = text.ends_with('/');
        let path = text.strip_suffix('/').unwrap_or(text);
        let is_anchored = path.contains('/');
        let parts: Vec<String> = path.strip_prefix('/').unwrap_or(path).split('/').map(str::to_owned).collect();
        let is_wrong = |part: &String| part.is_empty() || part == "." || part == ".." || part.contains('\0');
        if parts.iter().any(is_wrong) || parts.len() > MOST_PARTS {
            return Err(Reason::Form);
        }
        if parts.iter().all(|part| part.bytes().all(|byte| byte == b'*')) {
            return Err("it would hide everything".into());
        }
        if parts.first().is_some_and(|first| first == "~") {
            return Err("it is a path in your home directory, which is not inside".into());
        }
        Ok(HideGlob { text: text.to_owned(), parts, is_anchored, is_directory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let names: Vec<&[u8]> = path.trim_end_matches('/').split('/').map(str::as_bytes).collect();
        HideGlob::parse(pattern).is_ok_and(|glob| glob.matches(&names, path.ends_with('/')))
    }

    #[test]
    fn patterns_match_as_in_gitignore() {
        for (pattern, path, expected) in [
            (".env*", ".env", true),
            (".env*", "a/b/.env.local", true),
            (".env*", "a/x.env", false),
            ("/.env", ".env", true),
            ("/.env", "a/.env", false),
            ("a/.env", "a/.env", true),
            ("a/.env", "b/a/.env", false),
            ("a/*.key", "a/x.key", true),
            ("a/*.key", "a/b/x.key", false),
            ("a/**/x", "a/x", true),
            ("a/**/x", "a/b/c/x", true),
            ("**/x/y", "a/x/y", true),
            ("secrets/", "a/secrets/", true),
            ("secrets/", "a/secrets", false),
            ("[a-c]?.k", "b1.k", true),
            ("[!a-c].k", "b.k", false),
            ("[]]", "]", true),
            ("[x", "[x", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "aab-", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn what_hides_everything_or_lies_outside_is_refused() {
        for text in ["", "/", "*", "**", "*/**", "!x", "../x", "a/../b", "a//b", "./a", "~/x"] {
            assert!(HideGlob::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_directories_that_may_contain_a_match_are_entered() {
        let below = |pattern: &str, path: &str| {
            let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            HideGlob::parse(pattern).is_ok_and(|glob| glob.may_match_below(&names))
        };
        assert!(below(".env", "a/b") && below("a/*.key", "a") && below("a/**/x", "a/b/c"));
        assert!(!below("a/*.key", "b") && !below("a/*.key", "a/b") && !below("/.env", "a"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_matched_without_a_crash(pattern in ".{0,40}", path in "[a-z/.*]{0,30}") {
            matches(&pattern, &path);
        }

        #[test]
        fn a_plain_name_matches_itself_only(name in "[a-z.]{1,8}", other in "[a-z.]{1,8}") {
            prop_assume!(name != "." && name != "..");
            prop_assert_eq!(matches(&name, &format!("d/{other}")), name == other);
        }
    }
}
