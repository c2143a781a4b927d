//! The fields of [`Options`](super::Options) as clap arguments, and back as a command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::value::Value;

/// The flag of an option.
#[derive(Debug, Clone, Copy)]
pub struct FlagSpec {
    /// The name with its dashes.
    pub name: &'static str,
    /// The field of `Options`, which is also clap's id.
    pub field: &'static str,
    /// The placeholder in the help; `None` for a switch.
    pub value_name: Option<&'static str>,
    /// The section of the help.
    pub heading: &'static str,
    /// The line of `-h`.
    pub help: &'static str,
    /// Sets how values are parsed.
    pub configure: fn(Arg) -> Arg,
}

impl FlagSpec {
    /// Returns the name without the dashes.
    pub fn long(&self) -> &'static str {
        self.name.trim_start_matches('-')
    }

    pub fn argument(&self) -> Arg {
        let argument = Arg::new(self.field).long(self.long()).help(self.help).help_heading(self.heading);
        let argument = match self.value_name {
            Some(name) => argument.value_name(name),
            None => argument,
        };
        (self.configure)(argument)
    }
}

/// The type of a field of `Options`.
pub trait FlagValue: Sized {
    /// Sets how often the flag can be given, and how a value is parsed.
    fn configure<T: Value>(argument: Arg) -> Arg;

    fn take(matches: &mut ArgMatches, field: &str) -> Self;

    /// Returns the arguments that give the same value. Flag and value are one argument, so that no
    /// value is taken for a flag.
    fn to_arguments(&self, flag: &str) -> Vec<OsString>;
}

impl FlagValue for Option<String> {
    fn configure<T: Value>(argument: Arg) -> Arg {
        let argument = argument.action(ArgAction::Set).allow_negative_numbers(true);
        match T::CHOICES {
            Some(choices) => argument.value_parser(Choice(choices)),
            None => argument,
        }
    }

    fn take(matches: &mut ArgMatches, field: &str) -> Self {
        matches.remove_one(field)
    }

    fn to_arguments(&self, flag: &str) -> Vec<OsString> {
        self.iter().map(|value| argument(flag, value.as_ref())).collect()
    }
}

impl FlagValue for Vec<String> {
    fn configure<T: Value>(argument: Arg) -> Arg {
        argument.action(ArgAction::Append)
    }

    fn take(matches: &mut ArgMatches, field: &str) -> Self {
        matches.remove_many(field).map(Iterator::collect).unwrap_or_default()
    }

    fn to_arguments(&self, flag: &str) -> Vec<OsString> {
        self.iter().map(|value| argument(flag, value.as_ref())).collect()
    }
}

impl FlagValue for Vec<PathBuf> {
    fn configure<T: Value>(argument: Arg) -> Arg {
        // clap's own parser of paths refuses an empty one, which means "not set".
        argument.action(ArgAction::Append).value_parser(OsStringValueParser::new().map(PathBuf::from))
    }

    fn take(matches: &mut ArgMatches, field: &str) -> Self {
        matches.remove_many(field).map(Iterator::collect).unwrap_or_default()
    }

    fn to_arguments(&self, flag: &str) -> Vec<OsString> {
        self.iter().map(|path| argument(flag, path.as_ref())).collect()
    }
}

impl FlagValue for bool {
    fn configure<T: Value>(argument: Arg) -> Arg {
        argument.action(ArgAction::SetTrue)
    }

    fn take(matches: &mut ArgMatches, field: &str) -> Self {
        matches.get_flag(field)
    }

    fn to_arguments(&self, flag: &str) -> Vec<OsString> {
        self.then(|| flag.into()).into_iter().collect()
    }
}

/// Joins a flag and its value into one word.
pub fn argument(flag: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(flag);
    word.push("=");
    word.push(value);
    word
}

/// A choice among names: help and completions list them. Any text is accepted here, because the
/// layers parse it, with the same messages for flags, variables and files.
#[derive(Clone)]
struct Choice(fn() -> Vec<PossibleValue>);

impl TypedValueParser for Choice {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter()))
    }
}
