//! Lists the six built-in profiles, and reads the profile that a set of options selects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::judge::Profile;
use crate::support::Fixture;

pub const PROFILES: [&str; 6] = [
    "permissive-open",
    "permissive-closed",
    "permissive-proxied",
    "restrictive-open",
    "restrictive-closed",
    "restrictive-proxied",
];

/// Returns the further options that a profile needs: a filtered network needs a list of hosts.
pub fn host_options(profile: &str) -> &'static [&'static str] {
    if profile.ends_with("-proxied") { &["--allow-host", "example.org"] } else { &[] }
}

/// Adds the options that the selected profile needs.
#[track_caller]
pub fn explain(fixture: &Fixture, options: &[&str]) -> Value {
    let hosts = options.iter().map(|option| host_options(option)).find(|options| !options.is_empty()).unwrap_or(&[]);
    fixture.explain(&[hosts, options].concat())
}

/// Reads the profile that these options select.
#[track_caller]
pub fn profile(fixture: &Fixture, options: &[&str]) -> Profile {
    let json = explain(fixture, options);
    Profile::read(&text(&json), parameters(&json))
}

/// Returns the rules, as `explain` shows them.
pub fn text(json: &Value) -> String {
    let steps = json["steps"].as_array().expect("steps");
    steps.iter().map(|line| line.as_str().expect("a line").to_owned() + "\n").collect()
}

/// Returns the parameters, each an argument of `-D`.
pub fn parameters(json: &Value) -> BTreeMap<String, String> {
    let argv: Vec<&str> = json["argv"].as_array().expect("argv").iter().filter_map(Value::as_str).collect();
    let end = argv.iter().position(|word| *word == "--").expect("--");
    let definitions = argv[..end].windows(2).filter(|pair| pair[0] == "-D").map(|pair| pair[1]);
    let pairs = definitions.map(|definition| definition.split_once('=').expect("NAME=VALUE"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
