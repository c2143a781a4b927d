//! The options in words, generated: the table of the documentation, and the long help of flags.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;
use crate::config::options::{OPTIONS, Opt, about};

/// The table of `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = String::from("| flag | variables | key in files | what |\n|---|---|---|---|\n");
    let mut command = Cli::command();
    command.build();
    for option in OPTIONS {
        let flag = option.flag.map_or("–".to_owned(), |flag| format!("`--{flag}`"));
        let key = option.key.map_or("–".to_owned(), |key| format!("`{key}`"));
        let what = format!("{} {}", meaning(option, &command), values(option));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {flag} | {} | {key} | {} |", variables(option, "–"), what.trim().replace('|', "\\|"));
    }
    text
}

fn variables(option: &Opt, none: &str) -> String {
    let Some(setting) = option.variables else { return none.to_owned() };
    let names: Vec<String> = setting.names.iter().map(|name| format!("`{name}`")).collect();
    let form = if setting.form.is_empty() { String::new() } else { format!(" ({})", setting.form) };
    format!("{}{form}", names.join(", "))
}

/// What is said of the key; of an option without one, what is said of its flag or variable.
fn meaning(option: &Opt, command: &Command) -> String {
    if let Some(key) = option.key {
        return about(key);
    }
    let flag = option.flag.and_then(|flag| command.get_arguments().find(|argument| argument.get_long() == Some(flag)));
    match (flag.and_then(Arg::get_help), option.variables) {
        (Some(help), _) => format!("{help}."),
        (None, Some(setting)) => setting.about.to_owned(),
        (None, None) => String::new(),
    }
}

fn values(option: &Opt) -> String {
    let default = option.default().map(|value| format!("`{}`", value.to_string().trim_matches('"')));
    match (option.form, default) {
        ("", _) => String::new(),
        (form, Some(default)) => format!("Values: {form} ({default})."),
        (form, None) => format!("Values: {form}."),
    }
}

/// The command line with everything that is known of its flags, for `--help` and the manual.
pub fn long_help(mut command: Command) -> Command {
    // Until then, commands have no options yet.
    command.build();
    let known: Vec<(&str, String)> = OPTIONS.iter().filter_map(|option| details(option, &command)).collect();
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |all, name| all.mut_subcommand(name, |one| with(one, &known)));
    with(command, &known)
}

fn with(command: Command, known: &[(&str, String)]) -> Command {
    known.iter().fold(command, |command, (flag, details)| {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag));
        match argument.map(|argument| argument.get_id().clone()) {
            Some(id) => command.mut_arg(id, |argument| argument.long_help(details.clone())),
            None => command,
        }
    })
}

/// What is known of a flag.
fn details(option: &Opt, command: &Command) -> Option<(&'static str, String)> {
    let flag = option.flag?;
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag))?;
    // clap lists the values of a choice by itself.
    let values = match (argument.get_possible_values().is_empty(), option.default()) {
        _ if !argument.get_action().takes_values() => String::new(),
        (false, Some(default)) => format!("Default: {}.", default.as_str().unwrap_or_default()),
        _ => values(option),
    };
    let mut details = format!("{} {values}", meaning(option, command)).trim_end().to_owned();
    // Writing to a String cannot fail.
    if let Some(key) = option.key {
        let _ = write!(details, "\nIn files: {key}.");
    }
    if option.variables.is_some() {
        let _ = write!(details, "\nVariables: {}.", variables(option, ""));
    }
    Some((flag, details.replace('`', "")))
}
