//! The table of options in the documentation, and the long help of flags.

use std::fmt::Write;

use clap::Command;

use crate::config::{OPTIONS, OptionSpec};

/// Returns the table of `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = String::from("| flag | variables | key in files | description |\n|---|---|---|---|\n");
    for option in OPTIONS {
        let flag = option.flag.map_or("–".to_owned(), |flag| format!("`{}`", flag.name));
        let key = option.key.map_or("–".to_owned(), |key| format!("`{}`", key.name));
        let variables = variables(option).unwrap_or("–".to_owned());
        let description = format!("{} {}", option.description, values(option));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {flag} | {variables} | {key} | {} |", description.trim().replace('|', "\\|"));
    }
    text
}

fn variables(option: &OptionSpec) -> Option<String> {
    let variables = option.variables?;
    let names: Vec<String> = variables.names.iter().map(|name| format!("`{name}`")).collect();
    let note = if variables.note.is_empty() { String::new() } else { format!(" ({})", variables.note) };
    Some(format!("{}{note}", names.join(", ")))
}

fn values(option: &OptionSpec) -> String {
    let default = option.default().map(|value| format!("`{}`", value.to_string().trim_matches('"')));
    match (option.form, default) {
        ("", _) => String::new(),
        (form, Some(default)) => format!("Values: {form} ({default})."),
        (form, None) => format!("Values: {form}."),
    }
}

/// Adds the descriptions of the table to all flags, for `--help` and the manual.
pub fn long_help(mut command: Command) -> Command {
    // Deferred subcommands have no arguments before.
    command.build();
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |all, name| all.mut_subcommand(name, describe_flags));
    describe_flags(command)
}

fn describe_flags(command: Command) -> Command {
    OPTIONS.iter().filter_map(|option| option.flag.zip(Some(option))).fold(command, |command, (flag, option)| {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag.long()));
        let Some(argument) = argument else { return command };
        // clap lists the values of a choice itself.
        let values = match (argument.get_possible_values().is_empty(), option.default()) {
            _ if !argument.get_action().takes_values() => String::new(),
            (false, Some(default)) => format!("Default: {}.", default.as_str().unwrap_or_default()),
            _ => values(option),
        };
        command.mut_arg(flag.field, |argument| argument.long_help(details(option, &values)))
    })
}

fn details(option: &OptionSpec, values: &str) -> String {
    let mut details = format!("{} {values}", option.description).trim_end().to_owned();
    // Writing to a String cannot fail.
    if let Some(key) = option.key {
        let _ = write!(details, "\nIn files: {}.", key.name);
    }
    if let Some(variables) = variables(option) {
        let _ = write!(details, "\nVariables: {variables}.");
    }
    details.replace('`', "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    use clap::{Arg, CommandFactory};

    use super::*;
    use crate::cli::Cli;
    use crate::config::{Change, Config, file_schema};
    use crate::vars::looks_secret;

    /// Collects names, each of which must be there only once.
    fn unique<T: Ord + Debug + Clone>(names: impl Iterator<Item = T>) -> BTreeSet<T> {
        let mut seen = BTreeSet::new();
        names.for_each(|name| assert!(seen.insert(name.clone()), "{name:?} is there twice"));
        seen
    }

    fn run_command() -> Command {
        let mut command = Cli::command();
        command.build();
        command.find_subcommand("run").expect("run").clone()
    }

    #[test]
    fn the_flags_are_those_of_the_table() {
        let run = run_command();
        let others = ["quiet", "verbose", "help", "assume-host", "detach"];
        let defined = run.get_arguments().filter_map(Arg::get_long).filter(|flag| !others.contains(flag));
        assert_eq!(unique(OPTIONS.iter().filter_map(|option| Some(option.flag?.long()))), unique(defined));
        let long = describe_flags(run.clone());
        for flag in OPTIONS.iter().filter_map(|option| option.flag) {
            let argument = run.get_arguments().find(|argument| argument.get_id() == flag.field).expect(flag.name);
            assert_eq!(argument.get_action().takes_values(), flag.value_name.is_some(), "{}", flag.name);
            assert!(!flag.help.ends_with('.') && !flag.heading.is_empty(), "{}", flag.name);
            let described = long.get_arguments().find(|argument| argument.get_id() == flag.field);
            assert!(described.is_some_and(|argument| argument.get_long_help().is_some()), "{}", flag.name);
        }
    }

    #[test]
    fn the_keys_of_the_schema_are_those_of_the_table() {
        let schema = file_schema();
        let tables = [
            ("", schema.pointer("/properties")),
            ("resources.", schema.pointer("/properties/resources/properties")),
            ("kubernetes.", schema.pointer("/properties/kubernetes/properties")),
        ];
        let keys = tables.iter().flat_map(|(table, keys)| {
            let keys = keys.and_then(serde_json::Value::as_object).expect("keys").keys();
            keys.map(move |key| format!("{table}{key}"))
        });
        let keys = unique(keys.filter(|key| !["resources", "kubernetes", "$schema"].contains(&key.as_str())));
        assert_eq!(unique(OPTIONS.iter().filter_map(|option| Some(option.key?.name.to_owned()))), keys);
    }

    #[test]
    fn every_row_is_complete() {
        let reference = markdown();
        unique(OPTIONS.iter().filter_map(|option| option.variables).flat_map(|variables| variables.names));
        for option in OPTIONS {
            assert!(option.description.ends_with('.') && reference.contains(option.description), "{option:?}");
            let names = option.variables.map_or(&[][..], |variables| variables.names);
            assert!(!names.iter().any(|name| looks_secret(name)), "{option:?} would be hidden as a secret");
            assert!(option.flag.is_some() || !names.is_empty() || option.key.is_some(), "{option:?} cannot be set");
            if let Some(key) = option.key {
                assert!(!key.example.is_empty() || option.default().is_some(), "{option:?} has no example");
            }
        }
    }

    #[test]
    fn defaults_are_not_changes() {
        let config = Config::default();
        let changes = OPTIONS.iter().filter_map(|option| option.key).map(|key| (key.changes)(&config, &config));
        assert!(changes.flatten().map(|change: Change| change.description).next().is_none());
    }
}
