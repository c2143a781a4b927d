//! Quotes command lines so that users can copy them into a shell.

use std::ffi::OsString;

use super::escape::escape;

pub fn shell_words(argv: &[OsString]) -> String {
    argv.iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

pub fn shell_word(word: &OsString) -> String {
    match word.to_str().map(shlex::try_quote) {
        Some(Ok(quoted)) => escape(&quoted).into_owned(),
        // bash and zsh read this form of bytes that are not UTF-8.
        _ => format!("$'{}'", word.as_encoded_bytes().escape_ascii()),
    }
}
