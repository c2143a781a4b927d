//! Renders a command line so that a user can copy it into a shell.

use std::ffi::OsString;

use super::escape::escape;

/// A command line as a shell would read it, escaped for the terminal.
pub fn shell_words(argv: &[OsString]) -> String {
    argv.iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

pub fn shell_word(word: &OsString) -> String {
    match word.to_str().map(shlex::try_quote) {
        Some(Ok(quoted)) => escape(&quoted).into_owned(),
        // Bytes that are not text, in the form bash and zsh read back.
        _ => format!("$'{}'", word.as_encoded_bytes().escape_ascii()),
    }
}
