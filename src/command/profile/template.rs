//! `profile init`: a file with every key explained, to be edited.

use std::fmt::Write;

use crate::command::profile::show::{assignment, value};
use crate::config::options::{OPTIONS, Present, about};
use crate::config::{Config, Origin};

/// The first line of the user's own file.
pub const OWN: &str = "Your configuration: it holds for every sandbox, below flags, variables and profiles.";

/// The first line of a profile.
pub fn profile_title(name: &str) -> String {
    format!("The profile `{name}`, for `sandpen run --profile {name}`.")
}

/// The file: what `config` sets is set, everything else is commented out.
pub fn text(config: &Config, schema: &str, title: &str) -> String {
    let mut text = format!(
        "#:schema {schema}\n# {title}\n# What is commented out shows the default, or an example. `sandpen profile show` tells what holds.\n"
    );
    for option in OPTIONS {
        let Some(key) = option.key else { continue };
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
        let _ = writeln!(text, "\n# {}", about(key));
        if !set.is_empty() {
            let _ = writeln!(text, "{}", set.join("\n"));
        } else if let Some(default) = option.default() {
            let _ = writeln!(text, "# Values: {}.\n# {key} = {default}", option.form);
        } else {
            let _ = writeln!(text, "# {key} = {}", option.example);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Language, Settings, read_file};

    fn read(text: &str) -> Settings {
        read_file(text, Language::Toml, "f", None, &Origin::Default).expect("a profile")
    }

    #[test]
    fn it_says_nothing_by_itself_and_every_example_can_be_used() {
        let text = text(&Config::default(), "s", "t");
        assert_eq!(read(&text), Settings::default());
        let keys = OPTIONS.iter().filter_map(|option| option.key);
        for key in keys {
            let example = text
                .lines()
                .find_map(|line| line.strip_prefix("# ").filter(|line| line.starts_with(&format!("{key} = "))));
            assert_ne!(read(example.unwrap_or_else(|| panic!("no example of {key}"))), Settings::default(), "{key}");
        }
    }
}
