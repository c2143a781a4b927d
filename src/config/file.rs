//! Configuration files and profiles: TOML, and JSON as llxprt writes it. Unknown keys are errors.

use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::error::ConfigError;
use super::layer::FileContext;
use super::node::{Node, Problem};
use super::options::{OPTIONS, Settings};
use super::sourced::Origin;
use super::syntax::{self, Language};

/// A key that names a schema for editors; it has no effect.
const SCHEMA_KEY: &str = "$schema";
/// The tables that keys with a dot are in, and their forms and descriptions.
const TABLES: [(&str, &str, &str); 2] = [
    ("resources", "a table such as { cpus = 2, memory = \"4g\" }", "Limits."),
    ("kubernetes", "a table such as { namespace = \"agents\" }", "Options of the engine `kubernetes`."),
];

/// Reads a file's text. `name` is the file's name in messages; relative paths in it start at
/// `base`.
pub fn parse(
    text: &str,
    language: Language,
    name: &str,
    base: Option<&Path>,
    origin: &Origin,
) -> Result<Settings, ConfigError> {
    let file = FileContext { origin, base };
    let mut settings = Settings::default();
    let read = syntax::parse(text, language).and_then(|root| read_table(&root, "", file, &mut settings));
    read.map_err(|problem| ConfigError::in_file(name, text, problem))?;
    Ok(settings)
}

/// Reads the keys of a table; `prefix` is empty at the top, else the table's name and a dot.
fn read_table(table: &Node<'_>, prefix: &str, file: FileContext<'_>, settings: &mut Settings) -> Result<(), Problem> {
    let table_of = |key: &str| TABLES.iter().find(|(name, ..)| *name == key);
    let expected = table_of(prefix.trim_end_matches('.')).map_or("a table of options", |(_, form, _)| form);
    for entry in table.entries(expected)? {
        let key = format!("{prefix}{}", entry.key);
        if prefix.is_empty() && key == SCHEMA_KEY {
            continue;
        }
        let read = if prefix.is_empty() && table_of(&key).is_some() {
            read_table(&entry.node, &format!("{key}."), file, settings).map(|()| true)
        } else {
            settings.read_key(&key, &entry.node, file)
        };
        if !read.map_err(|problem| problem.below_key(&entry.key))? {
            return Err(entry.unknown(known_keys(prefix)));
        }
    }
    Ok(())
}

/// Lists the keys of the table with this prefix.
fn known_keys(prefix: &str) -> Vec<&'static str> {
    let keys = OPTIONS.iter().filter_map(|option| option.key?.name.strip_prefix(prefix));
    let mut known: Vec<&'static str> = Vec::new();
    for key in keys.map(|key| key.split_once('.').map_or(key, |(table, _)| table)) {
        if !known.contains(&key) {
            known.push(key);
        }
    }
    known
}

/// Returns the JSON schema of a file, for editors.
pub fn schema() -> Json {
    let mut top = Map::new();
    for option in OPTIONS {
        let Some(key) = option.key else { continue };
        let mut schema = json!({ "description": option.description });
        merge(&mut schema, (key.schema)());
        if let Some(default) = option.default().and_then(|default| serde_json::to_value(default).ok()) {
            schema["default"] = default;
        }
        match key.name.split_once('.') {
            Some((table, key)) => {
                let description = TABLES.iter().find(|(name, ..)| *name == table).map_or("", |(.., text)| text);
                let table = top.entry(table).or_insert_with(|| {
                    json!({ "description": description, "type": "object", "properties": {}, "additionalProperties": false })
                });
                table["properties"][key] = schema;
            }
            None => {
                top.insert(key.name.to_owned(), schema);
            }
        }
    }
    top.insert(
        SCHEMA_KEY.to_owned(),
        json!({ "description": "The place of this schema, for editors; without effect.", "type": ["string", "null"] }),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sandpen's configuration and profiles",
        "type": "object",
        "properties": top,
        "additionalProperties": false,
    })
}

/// Adds the members of one object to another.
pub fn merge(object: &mut Json, members: Json) {
    if let (Json::Object(object), Json::Object(members)) = (object, members) {
        object.extend(members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn read(text: &str, language: Language) -> Result<Settings, Error> {
        parse(text, language, "f", None, &Origin::Profile("p".into())).map_err(Into::into)
    }

    fn refused(text: &str, language: Language) -> (String, Vec<String>) {
        let error = read(text, language).expect_err(text);
        (error.to_string(), error.hints().to_vec())
    }

    #[test]
    fn llxprt_profiles_load_unchanged() {
        let text = r#"{"engine":"podman","image":"x:1","resources":{"cpus":2,"memory":"4g","pids":256},"network":"on",
            "sshAgent":"auto","mounts":[{"from":"~/a","to":"/a","mode":"rw"}],"env":{"A":"b"}}"#;
        let settings = read(text, Language::Json);
        let settings = settings.as_ref();
        assert_eq!(settings.map(|s| s.cpus.as_ref().map(|c| c.value.to_string())), Ok(Some("2".into())));
        assert_eq!(settings.map(|s| s.mounts.len() + s.env.len()), Ok(2));
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_place_and_the_nearest_known_key() {
        for (text, language, place, near) in [
            ("engine = \"docker\"\nnetwrok = \"on\"\n", Language::Toml, "f:2:1: unknown key `netwrok`", "network"),
            ("{\"sshagent\": \"on\"}", Language::Json, "f:1:2: unknown key `sshagent`", "sshAgent"),
            ("resource.cpus = 1", Language::Toml, "f:1:1: unknown key `resource`", "resources"),
            ("resources.memroy = 1", Language::Toml, "f:1:11: unknown key `memroy`", "memory"),
            ("mounts = [{ form = 1 }]", Language::Toml, "f:1:13: unknown key `form`", "from"),
        ] {
            assert_eq!(refused(text, language), (place.to_owned(), vec![format!("did you mean `{near}`?")]));
        }
        let (_, hints) = refused("resources.xyzzy = 1", Language::Toml);
        assert_eq!(hints, ["expected one of `cpus`, `memory`, `pids`"]);
        let (message, hints) = refused("guard = \"strict\"", Language::Toml);
        assert_eq!(message, "f:1:1: unknown key `guard`");
        assert_eq!(hints, ["`guard` is gone: use `git = \"private\"` (the default) or `git = \"shared\"`"]);
    }

    #[test]
    fn a_wrong_value_is_reported_with_its_key_and_the_expected_form() {
        for (text, message) in [
            ("resources.memory = \"lots\"", "f:1:20: key `resources.memory`: `lots` is not an amount of memory"),
            ("ports = [0]", "f:1:10: key `ports[0]`: `0` is not a port"),
            ("network = \"maybe\"", "f:1:11: key `network`: `maybe` is not a network policy"),
            ("strict = 1", "f:1:10: key `strict`: `1` has the wrong type"),
            ("ports = 80", "f:1:9: key `ports`: `80` has the wrong type"),
            ("strict = \"b`c\"", "f:1:10: key `strict`: `\"b`c\"` has the wrong type"),
            ("\nstrict = [1]", "f:2:10: key `strict`: a list has the wrong type"),
            ("mounts = [{ from = \"/a\", mode = \"x\" }]", "f:1:33: key `mounts[0].mode`: `x` is not a mode"),
        ] {
            let (said, hints) = refused(text, Language::Toml);
            assert_eq!((said.as_str(), hints.len()), (message, 1), "{hints:?}");
        }
    }
}
