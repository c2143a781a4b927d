//! `profile init`: a file with every key explained, to be edited.

use std::fmt::Write;

use super::show::{assignment, value};
use crate::config::{Config, OPTIONS, Origin, Present};

/// The first line of the user's configuration file.
pub const CONFIG_TITLE: &str = "Your configuration for all sandboxes. Flags, variables and profiles override it.";

/// Returns the first line of a profile.
pub fn profile_title(name: &str) -> String {
    format!("The profile `{name}`, for `sandpen run --profile {name}`.")
}

/// Returns the text of a file that sets what `config` sets. All other keys are commented out.
pub fn text(config: &Config, schema: &str, title: &str) -> String {
    let mut text = format!(
        "#:schema {schema}\n# {title}\n# A commented line shows the default or an example. `sandpen profile show` shows the values in effect.\n"
    );
    for option in OPTIONS {
        let Some((key, example)) = option.key.map(|key| (key.name, key.example)) else { continue };
        let is_set = |origin: &Origin| *origin != Origin::Default;
        let set = match (option.read)(config) {
            Present::One(Some(item)) if is_set(&item.origin) => vec![assignment(key, &item)],
            Present::Many(items) if items.iter().any(|item| item.name.is_some()) => {
                let line =
                    |item| (assignment(key, item), if item.value.is_some() { "" } else { ": a secret, not copied" });
                items.iter().map(line).map(|(line, note)| line + note).collect()
            }
            Present::Many(items) if !items.is_empty() => {
                vec![format!("{key} = [{}]", items.iter().map(value).collect::<Vec<_>>().join(", "))]
            }
            _ => Vec::new(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n# {}", option.description);
        if !set.is_empty() {
            let _ = writeln!(text, "{}", set.join("\n"));
        } else if let Some(default) = option.default() {
            let _ = writeln!(text, "# Values: {}.\n# {key} = {default}", option.form);
        } else {
            let _ = writeln!(text, "# {key} = {example}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Language, Settings, parse_file};

    fn read(text: &str) -> Settings {
        parse_file(text, Language::Toml, "f", None, &Origin::Default).expect("a profile")
    }

    #[test]
    fn it_sets_nothing_and_every_example_can_be_used() {
        let text = text(&Config::default(), "s", "t");
        assert_eq!(read(&text), Settings::default());
        let keys = OPTIONS.iter().filter_map(|option| option.key);
        for key in keys.map(|key| key.name) {
            let example = text
                .lines()
                .find_map(|line| line.strip_prefix("# ").filter(|line| line.starts_with(&format!("{key} = "))));
            assert_ne!(read(example.unwrap_or_else(|| panic!("no example of {key}"))), Settings::default(), "{key}");
        }
    }
}
