//! The errors of the command line: the argument, the nearest known name, and the expected form.
//! They are made of clap's kind and context, never of its text.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use super::{Cli, docker};
use crate::error::{Diagnostic, Kind};
use crate::ui::shell::shell_words;
use crate::ui::suggest::nearest;

/// A command line that cannot be run, or a page that cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{argument}: `{value}` is not UTF-8")]
    NotUtf8 { argument: String, value: String },
    #[error("`{name}` is not a sandpen command")]
    UnknownCommand { name: String, near: Option<String>, run: String },
    #[error("`{name}` is not a command of `{parent}`")]
    UnknownSubcommand { name: String, parent: String, near: Option<String>, known: String },
    #[error("unknown flag `{name}`")]
    UnknownFlag { name: String, hint: String },
    #[error("unexpected argument `{name}`")]
    UnexpectedArgument { name: String, hint: String },
    #[error("{argument}: {}", if value.is_empty() { "a value is missing".to_owned() } else { format!("`{value}` is not valid") })]
    InvalidValue { argument: String, value: String, reason: Option<String>, near: Option<String>, expected: String },
    #[error("{0}: can be given only once")]
    Repeated(String),
    #[error("{argument} cannot be used with {other}")]
    Conflict { argument: String, other: String },
    #[error("{argument}: takes no value, but `{value}` was given")]
    UnexpectedValue { argument: String, value: String },
    #[error("`{missing}` is missing")]
    MissingArgument { missing: String, usage: String },
    #[error("`{parent}` needs a subcommand")]
    MissingSubcommand { parent: String, known: String },
    /// `-v FROM:TO`, which docker takes for a volume, and sandpen for `--verbose` and a command.
    #[error("`-v` means `--verbose` here, and `{volume}` is not a command")]
    Volume { volume: String },
    /// Kinds that no argument of sandpen leads to; clap describes them.
    #[error("{0}")]
    Other(ErrorKind),
    #[error("argument COMMAND: there is no command `{wanted}`")]
    UnknownPage { wanted: String, near: Option<String>, known: String },
    #[error("cannot write to `{}`", directory.display())]
    WritePages { directory: PathBuf, source: io::Error },
    #[error("cannot render the manual page")]
    RenderPage(#[source] io::Error),
}

impl Diagnostic for CliError {
    fn kind(&self) -> Kind {
        match self {
            CliError::WritePages { .. } | CliError::RenderPage(_) => Kind::Failed,
            _ => Kind::Usage,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            CliError::InvalidValue { reason, .. } => reason.iter().cloned().collect(),
            CliError::WritePages { source, .. } | CliError::RenderPage(source) => vec![source.to_string()],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let near = |near: &Option<String>| near.as_ref().map(|near| format!("did you mean `{near}`?"));
        match self {
            CliError::UnknownCommand { near: name, run, .. } => {
                near(name).into_iter().chain([format!("to run it inside: {run}")]).collect()
            }
            CliError::UnknownSubcommand { near: name, known, .. } => {
                near(name).into_iter().chain([format!("known commands: {known}")]).collect()
            }
            CliError::UnknownFlag { hint, .. } | CliError::UnexpectedArgument { hint, .. } => vec![hint.clone()],
            CliError::InvalidValue { near: name, expected, .. } => {
                near(name).into_iter().chain([format!("expected {expected}")]).collect()
            }
            CliError::Volume { volume } => {
                vec![format!("to mount it: --mount {volume} (read-only, unless `:rw` is added)")]
            }
            CliError::Conflict { .. } => vec!["drop one of the two".to_owned()],
            CliError::MissingArgument { usage, .. } => vec![usage.clone()],
            CliError::MissingSubcommand { known, .. } => vec![format!("known commands: {known}")],
            CliError::UnknownPage { near: name, known, .. } => {
                vec![near(name).unwrap_or_else(|| format!("known commands: {known}"))]
            }
            _ => Vec::new(),
        }
    }
}

/// Translates clap's error; `None` if clap only shows help or the version.
pub fn translate(error: &clap::Error, arguments: &[OsString]) -> Option<CliError> {
    if !error.use_stderr() {
        return None;
    }
    let line = RefusedLine { error, words: arguments.get(1..).unwrap_or_default(), program: Cli::command() };
    Some(match error.kind() {
        ErrorKind::InvalidUtf8 => line.not_utf8(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => line.unknown(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => line.invalid_value(),
        ErrorKind::ArgumentConflict => line.conflict(),
        ErrorKind::TooManyValues => CliError::UnexpectedValue {
            argument: line.argument(ContextKind::InvalidArg),
            value: line.first(ContextKind::InvalidValue),
        },
        ErrorKind::MissingRequiredArgument => {
            CliError::MissingArgument { missing: line.all(ContextKind::InvalidArg).join(" "), usage: line.usage() }
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            CliError::MissingSubcommand { parent: line.command_name(), known: line.subcommands() }
        }
        kind => CliError::Other(kind),
    })
}

/// A command line that clap refused.
struct RefusedLine<'a> {
    error: &'a clap::Error,
    /// The arguments without the program's name.
    words: &'a [OsString],
    program: Command,
}

impl RefusedLine<'_> {
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

    /// Returns `flag --image` or `argument SHELL`, as messages name origins. clap adds the value:
    /// `--image <IMAGE>`, `<SHELL>`.
    fn argument(&self, kind: ContextKind) -> String {
        match self.first(kind).split_whitespace().next().unwrap_or_default() {
            flag if flag.starts_with('-') => format!("flag {flag}"),
            name => format!("argument {}", name.trim_matches(['<', '>', '[', ']', '.'])),
        }
    }

    /// Returns the subcommand that the first word names.
    fn command(&self) -> Option<&Command> {
        self.program.find_subcommand(self.words.first()?)
    }

    fn command_name(&self) -> String {
        self.command().map_or("sandpen".into(), |command| format!("sandpen {}", command.get_name()))
    }

    fn usage(&self) -> String {
        match self.first(ContextKind::Usage).lines().next() {
            Some(line) => line.replacen("Usage:", "usage:", 1),
            None => format!("see `{} --help`", self.command_name()),
        }
    }

    fn subcommands(&self) -> String {
        let parent = self.command().unwrap_or(&self.program);
        let shown = parent.get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<String> = shown.map(|one| format!("`{} {}`", self.command_name(), one.get_name())).collect();
        names.join(", ")
    }

    /// Names the flag in front of the value, which clap does not.
    fn not_utf8(&self) -> CliError {
        let at = self.words.iter().position(|word| word.to_str().is_none()).unwrap_or(0);
        let bytes = self.words.get(at).map(|word| word.as_encoded_bytes()).unwrap_or_default();
        let before = at.checked_sub(1).and_then(|at| self.words.get(at)?.to_str()).filter(|word| word.starts_with('-'));
        let (argument, value) = match (bytes.iter().position(|byte| *byte == b'='), before) {
            (Some(equals), _) if bytes.starts_with(b"--") => {
                (format!("flag {}", bytes[..equals].escape_ascii()), &bytes[equals + 1..])
            }
            (_, Some(flag)) if !bytes.starts_with(b"-") => (format!("flag {flag}"), bytes),
            _ => (format!("argument {}", at + 1), bytes),
        };
        CliError::NotUtf8 { argument, value: value.escape_ascii().to_string() }
    }

    fn unknown(&self) -> CliError {
        let first = self.words.first().and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
        if let (Some(name), None) = (first, self.command()) {
            let shown = self.program.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
            // Two letters are too few to guess from: `ls` does not mean `ps`.
            let near = nearest(name, shown.filter(|name| name.len() > 2)).map(str::to_owned);
            return CliError::UnknownCommand { name: name.to_owned(), near, run: self.run_inside(0) };
        }
        if self.error.kind() == ErrorKind::InvalidSubcommand {
            return CliError::UnknownSubcommand {
                name: self.first(ContextKind::InvalidSubcommand),
                parent: self.command_name(),
                near: self.all(ContextKind::SuggestedSubcommand).into_iter().next(),
                known: self.subcommands(),
            };
        }
        let name = self.first(ContextKind::InvalidArg);
        let takes_guest = matches!(self.command().map(Command::get_name), None | Some("run" | "explain" | "doctor"));
        if name.starts_with('-') {
            let hint = match self.all(ContextKind::SuggestedArg).into_iter().next() {
                _ if docker::hint(&name).is_some() => docker::hint(&name).unwrap_or_default().to_owned(),
                _ if name == "--guard" => {
                    "`--guard` is gone: use `--git private` (the default) or `--git shared`".to_owned()
                }
                Some(near) => format!("did you mean `{near}`?"),
                None if takes_guest => "flags of the command inside go after it, or after `--`".to_owned(),
                None => format!("`{} --help` lists all flags", self.command_name()),
            };
            return CliError::UnknownFlag { name, hint };
        }
        let hint = match self.words.iter().position(|word| *word == *name) {
            Some(at) if self.program.find_subcommand(&name).is_some() => self.command_first(at),
            Some(at) if takes_guest => format!("to run it inside: {}", self.run_inside(at)),
            _ => self.usage(),
        };
        CliError::UnexpectedArgument { name, hint }
    }

    /// Returns the command line that runs the words from `at` on inside.
    fn run_inside(&self, at: usize) -> String {
        let (options, command) = self.words.split_at(at);
        let words = [&["sandpen".into()], options, &["--".into()], command].concat();
        shell_words(&words)
    }

    /// Returns the command line with the subcommand at `at` in front of its options.
    fn command_first(&self, at: usize) -> String {
        let (options, rest) = self.words.split_at(at);
        let (command, rest) = rest.split_at(rest.len().min(1));
        let words = [&["sandpen".into()], command, options, rest].concat();
        format!("the command comes first: {}", shell_words(&words))
    }

    fn invalid_value(&self) -> CliError {
        let value = self.first(ContextKind::InvalidValue);
        let known = self.all(ContextKind::ValidValue);
        let expected = match known.as_slice() {
            [] => format!("`{}`", self.first(ContextKind::InvalidArg)),
            [others @ .., last] if !others.is_empty() => format!("`{}` or `{last}`", others.join("`, `")),
            known => format!("`{}`", known.join("`, `")),
        };
        CliError::InvalidValue {
            argument: self.argument(ContextKind::InvalidArg),
            reason: std::error::Error::source(self.error).map(ToString::to_string),
            near: nearest(&value, known.iter().map(String::as_str)).map(str::to_owned),
            value,
            expected,
        }
    }

    fn conflict(&self) -> CliError {
        let (argument, other) = (self.argument(ContextKind::InvalidArg), self.argument(ContextKind::PriorArg));
        if argument == other { CliError::Repeated(argument) } else { CliError::Conflict { argument, other } }
    }
}
