//! Compares whole messages of sandpen. The engine only records how it is called.

mod bytes;
mod commands;
mod contract;
mod directories;
mod docker;
mod engines;
mod explain;
mod files;
mod flags;
mod fuzz;
mod hidden;
mod nested;
mod network;
mod noise;
mod odd_values;
mod precedence;
mod presets;
mod profiles;
mod streams;
mod suggestions;
mod trust;
mod unbuilt;
mod variables;

use serde_json::Value;

/// Returns the entry of a list in the JSON whose `key` is `value`.
#[track_caller]
fn entry<'a>(json: &'a Value, list: &str, key: &str, value: &str) -> &'a Value {
    let entries = json[list].as_array().expect("a list");
    entries.iter().find(|entry| entry[key] == value).unwrap_or_else(|| panic!("no {key} {value} in {list}: {json:#}"))
}
