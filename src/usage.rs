//! Command-line errors in sandpen's own words and form: escaped, with the argument named and the way out.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::cli::Cli;
use crate::error::Error;
use crate::suggest::nearest;

/// What clap refused, as sandpen says it; `None` when clap only shows help or the version.
pub fn explain(error: &clap::Error, arguments: &[OsString]) -> Option<Error> {
    if !error.use_stderr() {
        return None;
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        return Some(not_utf8(arguments));
    }
    let first = arguments.get(1).and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let is_command = |word: &str| Cli::command().get_subcommands().any(|command| command.get_name() == word);
    if let (ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand, Some(word)) = (error.kind(), first)
        && !is_command(word)
    {
        return Some(unknown_command(word));
    }
    Some(in_our_form(&error.render().to_string()))
}

fn not_utf8(arguments: &[OsString]) -> Error {
    let at = arguments.iter().position(|word| word.to_str().is_none()).unwrap_or(0);
    let (flag, value) = match (arguments.get(at), arguments.get(at.saturating_sub(1)).and_then(|word| word.to_str())) {
        (Some(word), Some(before)) if before.starts_with("--") && !word.as_encoded_bytes().starts_with(b"-") => {
            (before.to_owned(), word)
        }
        (Some(word), _) => (word.to_string_lossy().split('=').next().unwrap_or_default().to_owned(), word),
        (None, _) => return Error::usage("an argument is not UTF-8"),
    };
    Error::usage(format!("flag {flag}: `{}` is not UTF-8", value.as_encoded_bytes().escape_ascii()))
}

fn unknown_command(word: &str) -> Error {
    let command = Cli::command();
    let names = command.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| command.get_name());
    let error = Error::usage(format!("`{word}` is not a sandpen command"));
    let error = match nearest(word, names) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    };
    error.hint(format!("to run it inside: sandpen -- {word}"))
}

/// `error: …`, `tip: …` and the rest of clap's text, one fact a line.
fn in_our_form(text: &str) -> Error {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let message = lines.next().unwrap_or_default();
    let mut error = Error::usage(message.strip_prefix("error: ").unwrap_or(message));
    for line in lines {
        error = match (line.strip_prefix("tip: "), line.starts_with("For more information")) {
            (Some(tip), _) => error.hint(tip),
            (None, true) => error.hint("`sandpen --help` tells more"),
            (None, false) => error.cause(line),
        };
    }
    error
}
