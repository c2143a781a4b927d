//! Reads TOML or JSON into data. What is wrong is said with file, place, key, value and form, in words of the file, not of Rust.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::value::Mismatch;
use crate::error::{Error, Result};
use crate::ui::suggest::nearest;

/// Which language a file is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl Language {
    /// By the file's name.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "json") { Language::Json } else { Language::Toml }
    }
}

/// Reads a whole text; `name` is how messages call it.
pub fn read<T: DeserializeOwned>(text: &str, language: Language, name: &str) -> Result<T> {
    match language {
        Language::Toml => toml::Deserializer::parse(text)
            .map_err(|error| (String::new(), error))
            .and_then(|reader| {
                serde_path_to_error::deserialize(reader).map_err(|error| (key(error.path()), error.into_inner()))
            })
            .map_err(|(key, error)| {
                let place = position(text, error.span().map_or(0, |span| span.start));
                invalid(name, place, &key, error.message())
            }),
        Language::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            serde_path_to_error::deserialize(&mut reader)
                .map_err(|error| (key(error.path()), error.into_inner()))
                .and_then(|data| reader.end().map(|()| data).map_err(|error| (String::new(), error)))
                .map_err(|(key, error)| {
                    let message = error.to_string();
                    // serde_json appends the position, which is said in front here.
                    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
                    invalid(name, (error.line(), error.column()), &key, message)
                })
        }
    }
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

/// `resources.memory`; empty at the top of the file.
fn key(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    if path == "." { String::new() } else { path }
}

fn invalid(name: &str, (line, column): (usize, usize), key: &str, message: &str) -> Error {
    let place = format!("{name}:{line}:{column}");
    let mismatch = message.parse().unwrap_or_else(|()| in_words(message));
    match key {
        // An unknown key names itself.
        "" => mismatch.error(place),
        _ if message.starts_with("unknown field") => mismatch.error(place),
        key => mismatch.error(format!("{place}: key `{key}`")),
    }
}

/// serde words what it finds in a few fixed ways, the expected form last.
fn in_words(message: &str) -> Mismatch {
    let (found, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
    let quoted = |text: &str| text.split_once('`').and_then(|(_, rest)| Some(rest.rsplit_once('`')?.0.to_owned()));
    let plain = |message: &str| Mismatch { message: message.to_owned(), reason: String::new(), form: String::new() };
    match found.split_once(' ') {
        Some(("unknown", _)) => {
            let wrong = quoted(found).unwrap_or_default();
            let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            let message = plain(&format!("unknown key `{wrong}`"));
            match nearest(&wrong, known.iter().copied()) {
                Some(near) => Mismatch { reason: format!("did you mean `{near}`?"), ..message },
                None => Mismatch { form: format!("one of `{}`", known.join("`, `")), ..message },
            }
        }
        Some(("missing", field)) => plain(&format!("the key `{}` is missing", quoted(field).unwrap_or_default())),
        Some(("duplicate", field)) => plain(&format!("the key `{}` is there twice", quoted(field).unwrap_or_default())),
        Some(("invalid", found)) if !expected.is_empty() => {
            let found = found.split_once(": ").map_or(found, |(_, found)| found);
            let found = match (quoted(found), found.strip_prefix("string ")) {
                (_, Some(text)) => format!("`{text}`"),
                (Some(value), None) => format!("`{value}`"),
                (None, None) => found.replace("sequence", "a list").replace("map", "a table"),
            };
            Mismatch { form: form(expected), ..plain(&format!("{found} is the wrong kind of value")) }
        }
        _ => plain(&message.trim().replace("EOF while parsing", "the file ends within")),
    }
}

fn form(expected: &str) -> String {
    match expected {
        "a boolean" => "`true` or `false`".into(),
        "a sequence" => "a list: [ … ]".into(),
        "a map" => "a table: { … }".into(),
        "path string" | "a formatted path" => "a path as a string".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn refused<T: DeserializeOwned>(text: &str, language: Language) -> Option<(String, Vec<String>)> {
        let error = read::<T>(text, language, "f").err()?;
        Some((error.to_string(), error.hints().to_vec()))
    }

    #[test]
    fn rusts_words_are_not_the_users() {
        for (text, message, hint) in [
            ("a = 1", "f:1:5: key `a`: `1` is the wrong kind of value", "expected `true` or `false`"),
            ("a = \"b`c\"", "f:1:5: key `a`: `\"b`c\"` is the wrong kind of value", "expected `true` or `false`"),
            ("\na = [1]", "f:2:5: key `a`: a list is the wrong kind of value", "expected `true` or `false`"),
        ] {
            let said = refused::<BTreeMap<String, bool>>(text, Language::Toml);
            assert_eq!(said, Some((message.to_owned(), vec![hint.to_owned()])));
        }
        let said = refused::<BTreeMap<String, Vec<bool>>>("{\"a\":\n 1}", Language::Json);
        let message = "f:2:2: key `a`: `1` is the wrong kind of value".to_owned();
        assert_eq!(said, Some((message, vec!["expected a list: [ … ]".to_owned()])));
    }

    #[test]
    fn a_text_that_is_cut_off_says_so() {
        let said = refused::<BTreeMap<String, bool>>("{\"a\": ", Language::Json);
        assert_eq!(said, Some(("f:1:6: key `a`: the file ends within a value".to_owned(), Vec::new())));
    }
}
