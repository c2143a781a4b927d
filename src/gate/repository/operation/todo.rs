//! Checks the lines of Git's lists of commands for a rebase, cherry-pick or revert.

use super::list::Checker;

const UNKNOWN: &str = "contains an unknown command";
const COMMAND: &str = "contains `exec`, which runs a command";
const ARGUMENT: &str = "contains a command with an unexpected argument";
const NEW_ROOT: &str = "[new root]";

/// Checks one line. Git strips white space at its beginning and one carriage return at its end.
pub fn check(checker: &Checker, line: &str, is_pick_list: bool) -> Result<(), &'static str> {
    let line = line.strip_suffix('\r').unwrap_or(line).trim_start_matches([' ', '\t']);
    // Git comments with `#`, or with what `core.commentChar` says. No command begins with either.
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Ok(());
    }
    let (command, rest) = split_word(line);
    let is_known = match (is_pick_list, command) {
        (_, "exec" | "x") => return Err(COMMAND),
        (_, "pick") | (true, "revert") => checker.is_abbreviated_id(split_word(rest).0),
        (true, _) => return Err(UNKNOWN),
        (_, "p" | "edit" | "e" | "reword" | "r" | "squash" | "s" | "drop" | "d") => {
            checker.is_abbreviated_id(split_word(rest).0)
        }
        (_, "fixup" | "f") => checker.is_abbreviated_id(split_word(without_option(rest).0).0),
        (_, "break" | "b" | "noop") => rest.is_empty(),
        (_, "label" | "l") => is_label(checker, split_word(rest).0),
        (_, "reset" | "t") => rest.starts_with(NEW_ROOT) || is_label(checker, split_word(rest).0),
        (_, "merge" | "m") => is_merge(checker, rest),
        (_, "update-ref" | "u") => checker.is_branch_ref(rest),
        _ => return Err(UNKNOWN),
    };
    if is_known { Ok(()) } else { Err(ARGUMENT) }
}

/// Tells whether a line is one of `rebase-merge/current-fixups`.
pub fn is_fixup(checker: &Checker, line: &str) -> bool {
    let (command, rest) = split_word(line);
    matches!(command, "fixup" | "squash") && checker.is_id(without_option(rest).0)
}

/// Lists the words of a line at the places where Git expects a commit. Most are ids.
pub fn revisions(line: &str) -> Vec<&str> {
    let (command, rest) = split_word(line.trim_start_matches([' ', '\t']));
    match command {
        "merge" | "m" => words_before_comment(without_option(rest).0).collect(),
        "" | "label" | "l" => Vec::new(),
        command if command.starts_with(['#', ';']) => Vec::new(),
        _ => vec![split_word(without_option(rest).0).0],
    }
}

fn is_label(checker: &Checker, label: &str) -> bool {
    checker.is_word(label, "refs/rewritten/")
}

fn is_merge(checker: &Checker, rest: &str) -> bool {
    let (rest, has_option) = without_option(rest);
    let (first, labels) = if has_option { split_word(rest) } else { ("", rest) };
    (!has_option || checker.is_abbreviated_id(first))
        && words_before_comment(labels).next().is_some()
        && words_before_comment(labels).all(|label| is_label(checker, label))
}

fn words_before_comment(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '\t']).filter(|word| !word.is_empty()).take_while(|word| !word.starts_with('#'))
}

/// Removes `-C` or `-c`, and tells whether there was one.
fn without_option(text: &str) -> (&str, bool) {
    match split_word(text) {
        ("-C" | "-c", rest) => (rest, true),
        _ => (text, false),
    }
}

fn split_word(text: &str) -> (&str, &str) {
    match text.split_once([' ', '\t']) {
        Some((word, rest)) => (word, rest.trim_start_matches([' ', '\t'])),
        None => (text, ""),
    }
}
