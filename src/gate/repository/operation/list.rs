//! Lists the files of Git's unfinished operations and checks their contents. Reads no files.

use super::{quoted, todo};
use crate::facts::git::syntax;

const MAX_SMALL: u64 = 64 << 10;
const MAX_MESSAGE: u64 = 1 << 20;
const MAX_LIST: u64 = 4 << 20;
/// The parts of `rebase-merge/update-refs` for one branch: its name, its old and its new commit.
const LINES_PER_REF: usize = 3;

/// What a file contains, which decides how it is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing; the file only has to exist.
    Flag,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    Number,
    /// A commit message, or a part of one.
    Message,
    Id,
    IdOrNothing,
    Ids,
    /// Lines with the ids of an old commit and of the one that replaces it.
    Rewritten,
    /// The branch being rebased, or `detached HEAD`.
    HeadName,
    /// The branch that `git bisect reset` checks out, or an id.
    BisectStart,
    BisectTerms,
    BisectNames,
    BisectLog,
    /// The commands of a rebase.
    RebaseTodo,
    /// The commands of a cherry-pick or revert of several commits.
    PickTodo,
    Fixups,
    /// The refs of `label` commands, which Git deletes at the end.
    RefsToDelete,
    UpdateRefs,
    AuthorScript,
    StrategyOptions,
    /// The options of a cherry-pick or revert, in Git's configuration syntax.
    Options,
    /// A file that Git writes for users and does not read. It may exist and does not come out.
    Unused,
}

use Content::*;

pub const TOP_LEVEL: &[(&str, Content)] = &[
    ("AUTO_MERGE", Id),
    ("BISECT_ANCESTORS_OK", Flag),
    ("BISECT_EXPECTED_REV", Id),
    ("BISECT_FIRST_PARENT", Flag),
    ("BISECT_HEAD", Id),
    ("BISECT_LOG", BisectLog),
    ("BISECT_NAMES", BisectNames),
    ("BISECT_START", BisectStart),
    ("BISECT_TERMS", BisectTerms),
    ("CHERRY_PICK_HEAD", Id),
    ("MERGE_AUTOSTASH", Id),
    ("MERGE_HEAD", Ids),
    ("MERGE_MODE", OneOf(&["", "no-ff"])),
    ("MERGE_MSG", Message),
    ("REBASE_HEAD", Id),
    ("REVERT_HEAD", Id),
    ("SQUASH_MSG", Message),
];

pub const DIRECTORIES: &[&str] = &["rebase-merge", "sequencer"];

const BELOW: &[(&str, Content)] = &[
    ("sequencer/abort-safety", IdOrNothing),
    ("sequencer/head", Id),
    ("sequencer/opts", Options),
    ("sequencer/todo", PickTodo),
    ("rebase-merge/allow_rerere_autoupdate", OneOf(&["--rerere-autoupdate", "--no-rerere-autoupdate"])),
    ("rebase-merge/amend", Id),
    ("rebase-merge/author-script", AuthorScript),
    ("rebase-merge/autostash", Id),
    ("rebase-merge/cdate_is_adate", Flag),
    ("rebase-merge/current-fixups", Fixups),
    ("rebase-merge/done", RebaseTodo),
    ("rebase-merge/drop_redundant_commits", Flag),
    ("rebase-merge/dropped", Flag),
    ("rebase-merge/end", Number),
    ("rebase-merge/git-rebase-todo", RebaseTodo),
    ("rebase-merge/git-rebase-todo.backup", RebaseTodo),
    // With a key after `-S`, the user would sign with a key that the guest has chosen.
    ("rebase-merge/gpg_sign_opt", OneOf(&["-S"])),
    ("rebase-merge/head-name", HeadName),
    ("rebase-merge/ignore_date", Flag),
    ("rebase-merge/interactive", Flag),
    ("rebase-merge/keep_redundant_commits", Flag),
    ("rebase-merge/message", Message),
    ("rebase-merge/message-fixup", Message),
    ("rebase-merge/message-squash", Message),
    ("rebase-merge/msgnum", Number),
    ("rebase-merge/no-reschedule-failed-exec", Flag),
    ("rebase-merge/onto", Id),
    ("rebase-merge/orig-head", Id),
    ("rebase-merge/patch", Unused),
    ("rebase-merge/quiet", Flag),
    ("rebase-merge/refs-to-delete", RefsToDelete),
    ("rebase-merge/reschedule-failed-exec", Flag),
    ("rebase-merge/rewritten-list", Rewritten),
    ("rebase-merge/rewritten-pending", Ids),
    ("rebase-merge/signoff", OneOf(&["--signoff"])),
    ("rebase-merge/squash-onto", Id),
    ("rebase-merge/stopped-sha", Id),
    // Git executes `git-merge-STRATEGY`.
    ("rebase-merge/strategy", OneOf(STRATEGIES)),
    ("rebase-merge/strategy_opts", StrategyOptions),
    ("rebase-merge/update-refs", UpdateRefs),
    ("rebase-merge/verbose", Flag),
];

/// The files without which Git neither continues nor aborts. They are missing while Git creates or
/// removes the directory.
pub const REQUIRED: &[&str] = &[
    "sequencer/head",
    "sequencer/todo",
    "rebase-merge/git-rebase-todo",
    "rebase-merge/head-name",
    "rebase-merge/onto",
    "rebase-merge/orig-head",
];

const STRATEGIES: &[&str] = &["ort", "recursive"];
const STRATEGY_OPTIONS: &[&str] = &[
    "ours",
    "theirs",
    "ignore-space-change",
    "ignore-all-space",
    "ignore-space-at-eol",
    "ignore-cr-at-eol",
    "renormalize",
    "no-renormalize",
    "no-renames",
    "find-renames",
    "patience",
    "histogram",
    "diff-algorithm=default",
    "diff-algorithm=minimal",
    "diff-algorithm=myers",
    "diff-algorithm=patience",
    "diff-algorithm=histogram",
];
const BOOLEAN_OPTIONS: &[&str] = &[
    "options.no-commit",
    "options.edit",
    "options.allow-empty",
    "options.allow-empty-message",
    "options.drop-redundant-commits",
    "options.keep-redundant-commits",
    "options.signoff",
    "options.record-origin",
    "options.commit-use-reference",
    "options.allow-ff",
    "options.allow-rerere-auto",
];
const CLEANUP_MODES: &[&str] = &["whitespace", "verbatim", "scissors", "strip"];

pub fn content_of(path: &str) -> Option<Content> {
    TOP_LEVEL.iter().chain(BELOW).find(|(name, _)| *name == path).map(|&(_, content)| content)
}

pub struct Checker {
    /// The number of hexadecimal digits of an id.
    pub id_digits: usize,
    pub is_valid_ref: fn(&str) -> bool,
}

impl Content {
    pub fn max_size(self) -> u64 {
        match self {
            Message => MAX_MESSAGE,
            Ids | Rewritten | RebaseTodo | PickTodo | BisectLog | UpdateRefs | Fixups | RefsToDelete => MAX_LIST,
            _ => MAX_SMALL,
        }
    }

    /// Lists the ids in a text that was checked.
    pub fn ids(self, text: &str) -> Vec<String> {
        let words: Vec<&str> = match self {
            Id | IdOrNothing | Ids | BisectStart => text.lines().collect(),
            UpdateRefs => text.lines().filter(|line| line.bytes().any(|byte| byte != b'0')).collect(),
            RebaseTodo | PickTodo => text.lines().flat_map(todo::revisions).collect(),
            _ => Vec::new(),
        };
        words
            .into_iter()
            .filter(|word| matches!(word.len(), 40 | 64) && is_hexadecimal(word))
            .map(str::to_owned)
            .collect()
    }
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl Checker {
    /// Returns what is wrong with a file, as the end of a sentence.
    pub fn check(&self, content: Content, bytes: &[u8]) -> Result<(), &'static str> {
        if content == Message {
            return if bytes.contains(&0) { Err("contains a zero byte") } else { Ok(()) };
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
        if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r')) {
            return Err("contains control characters");
        }
        if matches!(content, RebaseTodo | PickTodo) {
            return text.split('\n').try_for_each(|line| todo::check(self, line, content == PickTodo));
        }
        let line = text.strip_suffix('\n').unwrap_or(text);
        let is_expected = match content {
            Flag => line.is_empty(),
            OneOf(texts) => texts.contains(&line),
            Number => !line.is_empty() && line.len() < 10 && line.bytes().all(|byte| byte.is_ascii_digit()),
            Id => self.is_id(line),
            IdOrNothing => line.is_empty() || self.is_id(line),
            Ids => line.split('\n').all(|line| self.is_id(line)),
            Rewritten => line
                .split('\n')
                .all(|line| line.split_once(' ').is_some_and(|(old, new)| self.is_id(old) && self.is_id(new))),
            HeadName => line == "detached HEAD" || self.is_branch_ref(line),
            BisectStart => self.is_id(line) || self.is_word(line, "refs/heads/"),
            BisectTerms => {
                let terms: Vec<&str> = line.split('\n').collect();
                terms.len() == 2 && terms.iter().all(|term| self.is_term(term))
            }
            BisectNames => {
                quoted::words(line).is_some_and(|words| words.iter().all(|word| word == "--" || !word.starts_with('-')))
            }
            BisectLog => line.split('\n').all(|line| self.is_log_line(line)),
            Fixups => line.is_empty() || line.split('\n').all(|line| todo::is_fixup(self, line)),
            RefsToDelete => line.split('\n').all(|name| {
                name.strip_prefix("refs/rewritten/").is_some_and(|label| self.is_word(label, "refs/rewritten/"))
            }),
            UpdateRefs => self.is_update_refs(line),
            AuthorScript => is_author_script(line),
            StrategyOptions => line.split(' ').filter(|word| !word.is_empty()).all(|word| {
                let quoted = word.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
                is_strategy_option(quoted.unwrap_or(word.strip_prefix("--").unwrap_or(word)))
            }),
            Options => is_options(text),
            Message | RebaseTodo | PickTodo | Unused => false,
        };
        if is_expected { Ok(()) } else { Err("has unexpected content") }
    }

    pub fn is_id(&self, text: &str) -> bool {
        text.len() == self.id_digits && is_hexadecimal(text)
    }

    /// Tells whether the text is an id or the beginning of one. One of 40 digits is always whole, so
    /// that `Content::ids` need not know the length.
    pub fn is_abbreviated_id(&self, text: &str) -> bool {
        self.is_id(text) || ((4..40).contains(&text.len()) && is_hexadecimal(text))
    }

    /// Tells whether the text is a name below `prefix` that no command takes for an option.
    pub fn is_word(&self, text: &str, prefix: &str) -> bool {
        !text.starts_with('-') && !text.contains(char::is_whitespace) && (self.is_valid_ref)(&format!("{prefix}{text}"))
    }

    pub fn is_branch_ref(&self, name: &str) -> bool {
        name.strip_prefix("refs/heads/").is_some_and(|branch| self.is_word(branch, "refs/heads/"))
    }

    fn is_term(&self, term: &str) -> bool {
        term.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && self.is_word(term, "refs/bisect/")
    }

    /// The shell script that `git bisect replay` once was evaluated these lines.
    fn is_log_line(&self, line: &str) -> bool {
        if line.is_empty() || line.starts_with('#') {
            return true;
        }
        let Some(command) = line.strip_prefix("git bisect ") else { return false };
        match command.strip_prefix("start") {
            Some(words) if words.is_empty() || words.starts_with(' ') => quoted::words(words).is_some(),
            _ => command.split_once(' ').is_some_and(|(term, id)| self.is_term(term) && self.is_id(id)),
        }
    }

    fn is_update_refs(&self, text: &str) -> bool {
        let lines: Vec<&str> = text.split('\n').filter(|line| !line.is_empty()).collect();
        lines.chunks(LINES_PER_REF).all(
            |lines| matches!(lines, [name, old, new] if self.is_branch_ref(name) && self.is_id(old) && self.is_id(new)),
        )
    }
}

fn is_author_script(text: &str) -> bool {
    let names = ["GIT_AUTHOR_NAME=", "GIT_AUTHOR_EMAIL=", "GIT_AUTHOR_DATE="];
    let lines: Vec<&str> = text.split('\n').collect();
    lines.len() == names.len()
        && lines.iter().zip(names).all(|(line, name)| line.strip_prefix(name).and_then(quoted::word).is_some())
}

fn is_strategy_option(option: &str) -> bool {
    let threshold = option.strip_prefix("find-renames=").or_else(|| option.strip_prefix("rename-threshold="));
    match threshold.map(|text| text.strip_suffix('%').unwrap_or(text)) {
        Some(number) => (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit()),
        None => STRATEGY_OPTIONS.contains(&option),
    }
}

fn is_options(text: &str) -> bool {
    let is_known = |(key, value): &(String, String)| match key.as_str() {
        "options.mainline" => matches!(value.len(), 1..=3) && value.bytes().all(|byte| byte.is_ascii_digit()),
        "options.strategy" => STRATEGIES.contains(&value.as_str()),
        "options.strategy-option" => is_strategy_option(value),
        "options.gpg-sign" => value.is_empty(),
        "options.default-msg-cleanup" => CLEANUP_MODES.contains(&value.as_str()),
        key => BOOLEAN_OPTIONS.contains(&key) && matches!(value.as_str(), "true" | "false"),
    };
    syntax::settings(text).is_some_and(|settings| settings.iter().all(is_known))
}
