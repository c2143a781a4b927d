//! Parses TOML and JSON into a tree of [`Node`]s with positions.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::node::{Content, Entry, Node, Problem, ProblemKind};

/// The language of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Toml,
    Json,
}

impl Language {
    /// Tells the language by the file's extension.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "json") { Language::Json } else { Language::Toml }
    }
}

/// Parses a whole file.
pub fn parse(text: &str, language: Language) -> Result<Node<'_>, Problem> {
    match language {
        Language::Toml => {
            let table = DeTable::parse(text).map_err(|error| {
                let span = error.span().unwrap_or(0..0);
                // The parser names neither the key nor the value that it means.
                let place = text.get(span.clone()).filter(|place| !place.trim().is_empty() && !place.contains('\n'));
                let message = error.message().trim();
                let message = place.map_or_else(|| message.to_owned(), |place| format!("{message}: `{place}`"));
                Problem::at(span.start, ProblemKind::Syntax(message))
            })?;
            Ok(Node { offset: table.span().start, content: toml_table(table.into_inner()) })
        }
        Language::Json => {
            let raw: &RawValue = serde_json::from_str(text).map_err(|error| json_syntax(text, &error))?;
            json_node(text, raw, 0)
        }
    }
}

/// Returns the line and the column of a byte, both counted from 1.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

fn toml_table(table: DeTable<'_>) -> Content<'_> {
    let entries = table.into_iter().map(|(key, value)| Entry {
        offset: key.span().start,
        key: key.into_inner(),
        node: toml_node(value),
    });
    Content::Table(entries.collect())
}

fn toml_node(value: Spanned<DeValue<'_>>) -> Node<'_> {
    let offset = value.span().start;
    let content = match value.into_inner() {
        DeValue::String(text) => Content::Text(text),
        DeValue::Integer(number) => Content::Number(integer(&number)),
        DeValue::Float(number) => Content::Number(float(number.as_str())),
        DeValue::Boolean(value) => Content::Boolean(value),
        DeValue::Datetime(date) => Content::Date(date.to_string()),
        DeValue::Array(values) => Content::List(values.into_iter().map(toml_node).collect()),
        DeValue::Table(table) => toml_table(table),
    };
    Node { offset, content }
}

fn integer(number: &DeInteger<'_>) -> String {
    let decimal = i64::from_str_radix(number.as_str(), number.radix());
    decimal.map_or_else(|_| number.to_string(), |decimal| decimal.to_string())
}

/// Writes `0.50` as `0.5` and `1e3` as `1000`, which is how the options parse numbers.
fn float(text: &str) -> String {
    text.parse::<f64>().map_or_else(|_| text.to_owned(), |number| number.to_string())
}

/// No key holds values that are nested deeper; what is below is not looked at.
const MAX_DEPTH: usize = 8;

fn json_syntax(text: &str, error: &serde_json::Error) -> Problem {
    let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let offset = (line_start + error.column().saturating_sub(1)).min(text.len());
    Problem::at(offset, ProblemKind::Syntax(error.to_string()))
}

/// `raw` is a part of `text`, which tells its position.
fn json_node<'a>(text: &'a str, raw: &'a RawValue, depth: usize) -> Result<Node<'a>, Problem> {
    let offset = offset_in(text, raw.get());
    let invalid = |error: serde_json::Error| Problem::at(offset, ProblemKind::Syntax(error.to_string()));
    let is_too_deep = depth >= MAX_DEPTH;
    let content = match raw.get().as_bytes().first() {
        Some(b'[') if is_too_deep => Content::List(Vec::new()),
        Some(b'{') if is_too_deep => Content::Table(Vec::new()),
        Some(b'[') => {
            let values: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(invalid)?;
            let nodes = values.into_iter().map(|value| json_node(text, value, depth + 1));
            Content::List(nodes.collect::<Result<_, _>>()?)
        }
        Some(b'{') => {
            let members: JsonMembers<'a> = serde_json::from_str(raw.get()).map_err(invalid)?;
            let mut entries: Vec<Entry<'a>> = Vec::new();
            for (key, value) in members.0 {
                let node = json_node(text, value, depth + 1)?;
                let offset = match &key {
                    Cow::Borrowed(key) => offset_in(text, key).saturating_sub(1),
                    // A key with an escape is a copy; its value is the nearest known position.
                    Cow::Owned(_) => node.offset,
                };
                if entries.iter().any(|entry| entry.key == key) {
                    return Err(Problem::at(offset, ProblemKind::DuplicateKey(key.into_owned())));
                }
                entries.push(Entry { key, offset, node });
            }
            Content::Table(entries)
        }
        _ => match serde_json::from_str(raw.get()).map_err(invalid)? {
            Json::Bool(value) => Content::Boolean(value),
            Json::Number(number) if number.is_f64() => Content::Number(float(&number.to_string())),
            Json::Number(number) => Content::Number(number.to_string()),
            Json::String(text) => Content::Text(text.into()),
            _ => Content::Null,
        },
    };
    Ok(Node { offset, content })
}

fn offset_in(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// The members of an object in the order of the file.
struct JsonMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for JsonMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = JsonMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((JsonKey(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(JsonMembers(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A key that borrows from the text where it can, unlike `Cow` itself.
struct JsonKey<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for JsonKey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl<'de> Visitor<'de> for Key {
            type Value = JsonKey<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(JsonKey(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(JsonKey(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(text: &str, language: Language) -> Option<(usize, usize)> {
        parse(text, language).err().map(|problem| position(text, problem.offset))
    }

    #[test]
    fn a_syntax_error_has_its_position() {
        assert_eq!(problem("a = 1\nb = ", Language::Toml), Some((2, 5)));
        assert_eq!(problem("{\"a\":\n ", Language::Json), Some((2, 1)));
        assert_eq!(problem("{\"a\": 1,\n \"a\": 2}", Language::Json), Some((2, 2)));
    }

    #[test]
    fn every_node_has_its_position() {
        for (text, language) in [("a = [ 1 ]", Language::Toml), ("{  \"a\": [1]}", Language::Json)] {
            let file = parse(text, language).expect("valid");
            let Content::Table(entries) = &file.content else { panic!("{file:?}") };
            let Content::List(nodes) = &entries[0].node.content else { panic!("{file:?}") };
            let offsets = [entries[0].offset, entries[0].node.offset, nodes[0].offset];
            let found = offsets.map(|offset| text[offset..].chars().next().unwrap_or_default());
            assert!(found == ['a', '[', '1'] || found == ['"', '[', '1'], "{text}: {found:?}");
        }
    }

    #[test]
    fn deep_nesting_ends() {
        let text = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&text, Language::Json).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            for language in [Language::Toml, Language::Json] {
                if let Err(problem) = parse(&text, language) {
                    let _ = position(&text, problem.offset);
                }
            }
        }
    }
}
