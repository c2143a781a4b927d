//! `profile show`: every value with its origin, as TOML that sandpen reads back, or as JSON.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value as Json;
use toml::Value as Toml;

use crate::config::{Config, Item, OPTIONS, Origin, Present};
use crate::ui::escape::{escape, escape_json};

/// Longer lines do not count for the column of the origins.
const MAX_COLUMN: usize = 36;

/// Shows the values as TOML, with their origins as comments.
pub fn toml(config: &Config, title: &str) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    for option in OPTIONS {
        let Some(key) = option.key.map(|key| key.name) else { continue };
        match (option.read)(config) {
            Present::One(None) => lines.push((format!("# {key}"), "not set".to_owned())),
            Present::One(Some(item)) => lines.push((assignment(key, &item), item.origin.to_string())),
            Present::Many(items) if items.iter().any(|item| item.name.is_some()) => {
                lines.extend(items.iter().map(|item| (assignment(key, item), origin(item))));
            }
            Present::Many(items) if items.is_empty() => lines.push((format!("# {key}"), "none".to_owned())),
            Present::Many(items) => {
                lines.push((format!("{key} = ["), String::new()));
                lines.extend(items.iter().map(|item| (format!("  {},", value(item)), item.origin.to_string())));
                lines.push(("]".to_owned(), String::new()));
            }
        }
    }
    let lengths = lines.iter().map(|(line, _)| line.chars().count());
    let column = lengths.filter(|length| *length <= MAX_COLUMN).max().unwrap_or(0);
    let mut text = format!("# The values that `{title}` starts with in this directory, and their origins.\n");
    for (line, origin) in lines {
        let gap = column.saturating_sub(line.chars().count()) + 2;
        let comment = if origin.is_empty() { String::new() } else { format!("{:gap$}# {origin}", "") };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", escape(&format!("{line}{comment}")));
    }
    text
}

fn origin(item: &Item) -> String {
    match item.value {
        Some(_) => item.origin.to_string(),
        None => format!("a secret; {}", item.origin),
    }
}

/// Returns the line of a file that sets a value; a comment if it must not be shown.
pub fn assignment(key: &str, item: &Item) -> String {
    let key = match &item.name {
        Some(name) if name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)) => {
            format!("{key}.{name}")
        }
        Some(name) => format!("{key}.{}", quoted(name)),
        None => key.to_owned(),
    };
    match &item.value {
        Some(_) => format!("{key} = {}", value(item)),
        None => format!("# {key}"),
    }
}

/// Returns a value on one line.
pub fn value(item: &Item) -> String {
    fn inline(value: &Toml) -> String {
        match value {
            Toml::String(text) => quoted(text),
            Toml::Array(values) => format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", ")),
            Toml::Table(table) => {
                let pairs = table.iter().map(|(key, value)| format!("{key} = {}", inline(value)));
                format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
            }
            other => other.to_string(),
        }
    }
    item.value.as_ref().map_or_else(String::new, inline)
}

/// Quotes a string as JSON does, which TOML reads as well: on one line, without control characters.
fn quoted(text: &str) -> String {
    escape_json(&Json::from(text).to_string()).into_owned()
}

/// Shows the values as JSON.
pub fn json(config: &Config) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct JsonValue {
        key: String,
        value: Option<Json>,
        from: Origin,
    }
    let mut values = Vec::new();
    for option in OPTIONS {
        let Some(key) = option.key.map(|key| key.name) else { continue };
        let items = match (option.read)(config) {
            Present::One(None) => vec![Item { name: None, value: None, secret: None, origin: Origin::Default }],
            present => present.items(),
        };
        for item in items {
            let key = item.name.map_or_else(|| key.to_owned(), |name| format!("{key}.{name}"));
            let value = item.value.and_then(|value| serde_json::to_value(value).ok());
            values.push(JsonValue { key, value, from: item.origin });
        }
    }
    let text = serde_json::to_string_pretty(&serde_json::json!({ "schema": 1, "values": values }))?;
    Ok(escape_json(&text).into_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{Language, parse_file};

    fn config(text: &str) -> Config {
        let settings = parse_file(text, Language::Toml, "f", None, &Origin::Profile("p".into())).expect("a profile");
        Config::new(settings).expect("a configuration")
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(image in "[a-z]{1,9}(:[a-z0-9]{1,5})?", path in "\\PC{1,20}", value in any::<String>(),
                                      name in "[A-Z][!-<>-~]{0,8}", cpus in 1u32..9999, port in 1u16..) {
            prop_assume!(!value.contains('\0') && !path.contains(['~', '\0']));
            let mut table = toml::Table::new();
            table.insert("image".into(), image.into());
            table.insert("includeDirs".into(), Toml::Array(vec![Toml::String(path)]));
            table.insert("env".into(), Toml::Table([(name, Toml::String(value))].into_iter().collect()));
            table.insert("ports".into(), Toml::Array(vec![Toml::Integer(port.into())]));
            table.insert("resources".into(), Toml::Table([("cpus".into(), Toml::Float(f64::from(cpus) / 1000.0))].into_iter().collect()));
            let before = config(&table.to_string());
            let after = config(&toml(&before, "x"));
            for option in OPTIONS {
                let values = |config: &Config| (option.read)(config).items().into_iter().filter_map(|item| item.value).collect::<Vec<_>>();
                prop_assert_eq!(values(&before), values(&after));
            }
        }
    }
}
