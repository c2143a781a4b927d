//! Command-line errors in sandpen's own words and form: the argument named, the form expected, and the way out.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::cli::Cli;
use crate::config::value::Mismatch;
use crate::error::Error;
use crate::ui::shell::shell_words;
use crate::ui::suggest::nearest;

/// What clap refused, as sandpen says it; `None` when clap only shows help or the version.
pub fn explain(error: &clap::Error, arguments: &[OsString]) -> Option<Error> {
    if !error.use_stderr() {
        return None;
    }
    let line = Line { error, words: arguments.get(1..).unwrap_or_default(), program: Cli::command() };
    Some(match error.kind() {
        ErrorKind::InvalidUtf8 => line.not_utf8(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => line.unknown(),
        ErrorKind::InvalidValue => line.wrong_value(),
        ErrorKind::ArgumentConflict => line.conflict(),
        ErrorKind::TooManyValues => Error::usage(format!(
            "{}: it takes no value, and `{}` is one",
            line.origin(),
            line.first(ContextKind::InvalidValue)
        )),
        ErrorKind::MissingRequiredArgument => {
            let missing = line.all(ContextKind::InvalidArg).join(" ");
            line.with_usage(Error::usage(format!("`{missing}` is missing")))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => line.missing_command(),
        _ => in_our_form(&error.render().to_string()),
    })
}

/// A command line that was refused.
struct Line<'a> {
    error: &'a clap::Error,
    /// Without the program's name.
    words: &'a [OsString],
    program: Command,
}

impl Line<'_> {
    /// What clap knows of the error.
    fn all(&self, kind: ContextKind) -> Vec<String> {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
            _ => Vec::new(),
        }
    }

    fn first(&self, kind: ContextKind) -> String {
        self.all(kind).into_iter().next().unwrap_or_default()
    }

    /// `flag --image` or `argument SHELL`, as the rest of sandpen names origins.
    fn origin(&self) -> String {
        origin(&self.first(ContextKind::InvalidArg))
    }

    /// The subcommand of these words, if it is one.
    fn command(&self) -> Option<&Command> {
        self.program.find_subcommand(self.words.first()?)
    }

    /// `sandpen` or `sandpen profile`.
    fn name(&self) -> String {
        self.command().map_or("sandpen".into(), |command| format!("sandpen {}", command.get_name()))
    }

    fn with_usage(&self, error: Error) -> Error {
        let usage = self.first(ContextKind::Usage);
        match usage.lines().next() {
            Some(line) => error.hint(line.replacen("Usage:", "usage:", 1)),
            None => error.hint(format!("`{} --help` tells more", self.name())),
        }
    }

    fn not_utf8(&self) -> Error {
        let at = self.words.iter().position(|word| word.to_str().is_none());
        let Some((at, word)) = at.and_then(|at| Some((at, self.words.get(at)?))) else {
            return Error::usage("an argument is not UTF-8");
        };
        let shown = |bytes: &[u8]| format!("`{}` is not UTF-8", bytes.escape_ascii());
        let bytes = word.as_encoded_bytes();
        let before = at.checked_sub(1).and_then(|at| self.words.get(at)?.to_str()).filter(|word| word.starts_with('-'));
        match (bytes.iter().position(|byte| *byte == b'='), before) {
            (Some(equals), _) if bytes.starts_with(b"--") => {
                let (flag, value) = bytes.split_at(equals);
                Error::usage(format!("flag {}: {}", flag.escape_ascii(), shown(&value[1..])))
            }
            (_, Some(flag)) if !bytes.starts_with(b"-") => Error::usage(format!("flag {flag}: {}", shown(bytes))),
            _ => Error::usage(format!("the argument {}", shown(bytes))),
        }
    }

    fn unknown(&self) -> Error {
        let first = self.words.first().and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
        if let (Some(word), None) = (first, self.command()) {
            return self.unknown_command(word);
        }
        if self.error.kind() == ErrorKind::InvalidSubcommand {
            let wrong = self.first(ContextKind::InvalidSubcommand);
            let error = Error::usage(format!("`{wrong}` is not a command of `{}`", self.name()));
            return self.with_commands(near(error, self.first(ContextKind::SuggestedSubcommand)));
        }
        let wrong = self.first(ContextKind::InvalidArg);
        let takes_guest = matches!(self.command().map(Command::get_name), None | Some("run" | "explain" | "doctor"));
        if wrong.starts_with('-') {
            let error = Error::usage(format!("there is no flag `{wrong}`"));
            return match self.first(ContextKind::SuggestedArg) {
                suggestion if !suggestion.is_empty() => near(error, suggestion),
                _ if takes_guest => error.hint("flags of the command inside go after it, or after `--`"),
                _ => error.hint(format!("`{} --help` lists the flags there are", self.name())),
            };
        }
        let error = Error::usage(format!("`{wrong}` is not expected here"));
        match self.words.iter().position(|word| *word == *wrong) {
            Some(at) if self.program.find_subcommand(&wrong).is_some() => error.hint(self.command_first(at)),
            Some(at) if takes_guest => error.hint(self.inside(at)),
            _ => self.with_usage(error),
        }
    }

    fn unknown_command(&self, word: &str) -> Error {
        let shown = self.program.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
        // Two letters are too few to guess from: `ls` is what it says, and not `ps`.
        let near_name = nearest(word, shown.filter(|name| name.len() > 2)).unwrap_or_default();
        let error = near(Error::usage(format!("`{word}` is not a sandpen command")), near_name.to_owned());
        error.hint(self.inside(0))
    }

    /// How the words from here on are run as the guest's command.
    fn inside(&self, at: usize) -> String {
        let (options, command) = self.words.split_at(at);
        let line: Vec<OsString> =
            ["sandpen".into()].iter().chain(options).chain(&["--".into()]).chain(command).cloned().collect();
        format!("to run it inside: {}", shell_words(&line))
    }

    /// Options stand after the command they are for.
    fn command_first(&self, at: usize) -> String {
        let (options, rest) = self.words.split_at(at);
        let (command, rest) = rest.split_at(rest.len().min(1));
        let line: Vec<OsString> =
            ["sandpen".into()].iter().chain(command).chain(options).chain(rest).cloned().collect();
        format!("the command comes first: {}", shell_words(&line))
    }

    fn wrong_value(&self) -> Error {
        let value = self.first(ContextKind::InvalidValue);
        let known = self.all(ContextKind::ValidValue);
        let message = match value.as_str() {
            "" => "a value is missing".to_owned(),
            value => format!("`{value}` is not known"),
        };
        let reason = match nearest(&value, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => String::new(),
        };
        let form = match known.as_slice() {
            [] => format!("`{}`", self.first(ContextKind::InvalidArg)),
            [others @ .., last] if !others.is_empty() => format!("`{}` or `{last}`", others.join("`, `")),
            known => format!("`{}`", known.join("`, `")),
        };
        Mismatch { message, reason, form }.error(self.origin())
    }

    fn conflict(&self) -> Error {
        let (wrong, prior) = (self.origin(), self.first(ContextKind::PriorArg));
        match origin(&prior) {
            prior if prior == wrong => Error::usage(format!("{wrong}: it can be given once only")),
            prior => Error::usage(format!("{wrong} and {prior} contradict each other")).hint("drop one of the two"),
        }
    }

    fn missing_command(&self) -> Error {
        self.with_commands(Error::usage(format!("`{}` needs a command of its own", self.name())))
    }

    fn with_commands(&self, error: Error) -> Error {
        let commands =
            self.command().unwrap_or(&self.program).get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<String> = commands.map(|command| format!("`{} {}`", self.name(), command.get_name())).collect();
        error.hint(format!("there are {}", names.join(", ")))
    }
}

/// clap names an argument with its value: `--image <IMAGE>`, `<SHELL>`.
fn origin(argument: &str) -> String {
    match argument.split_whitespace().next().unwrap_or_default() {
        flag if flag.starts_with('-') => format!("flag {flag}"),
        name => format!("argument {}", name.trim_matches(['<', '>', '[', ']', '.'])),
    }
}

fn near(error: Error, suggestion: String) -> Error {
    if suggestion.is_empty() { error } else { error.hint(format!("did you mean `{suggestion}`?")) }
}

/// What has no words of sandpen's own yet: clap's, one fact a line.
fn in_our_form(text: &str) -> Error {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let message = lines.next().unwrap_or_default();
    let error = Error::usage(message.strip_prefix("error: ").unwrap_or(message));
    lines.fold(error, |error, line| match line.strip_prefix("tip: ") {
        Some(tip) => error.hint(tip),
        None => error.cause(line),
    })
}
