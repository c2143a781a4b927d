//! Writes a review as JSON, for programs and for the page of `diff --web`.

use serde_json::{Value, json};

use super::find::{Found, shown};
use crate::gate::repository::RefReview;
use crate::gate::workspace::{Content, FileReview, Hunk, Line, Node, Review, Side, State, shown as shown_path};

/// Lists the changed files that are shown, without their hunks.
pub fn review(found: &Found, review: &Review, refs: &[RefReview], is_shown: impl Fn(&FileReview) -> bool) -> Value {
    let files = review.files.iter().filter(|file| is_shown(file));
    let ignored: Vec<&FileReview> = review.files.iter().filter(|file| file.is_ignored).collect();
    let commits = refs.iter().flat_map(|change| {
        let branch = change.name.strip_prefix("refs/heads/").unwrap_or(&change.name);
        change.commits.iter().map(move |commit| {
            let (subject, body) = commit.message.split_once('\n').unwrap_or((&commit.message, ""));
            json!({
                "id": commit.id, "subject": subject, "branch": branch, "author": commit.author,
                "time": commit.time, "body": body.trim(),
            })
        })
    });
    json!({
        "schema": 1,
        "id": found.copy.id,
        "directory": shown_path(found.copy.root()),
        "files": files.map(|file| summary(found, file)).collect::<Vec<_>>(),
        "ignored": {"files": ignored.len(), "bytes": ignored.iter().map(|file| bytes_of(file)).sum::<u64>()},
        "commits": commits.collect::<Vec<_>>(),
        "refs": refs,
        "git_directories": review.git_dirs.iter().map(|path| shown_path(path)).collect::<Vec<_>>(),
    })
}

/// Lists the changed files that are shown, each with its hunks.
pub fn review_with_hunks(
    found: &Found,
    whole: &Review,
    refs: &[RefReview],
    is_shown: &dyn Fn(&FileReview) -> bool,
) -> Value {
    let mut list = review(found, whole, refs, is_shown);
    let entries = list.get_mut("files").and_then(Value::as_array_mut).into_iter().flatten();
    for (file, entry) in whole.files.iter().filter(|file| is_shown(file)).zip(entries) {
        entry["hunks"] = hunks(file);
    }
    list
}

/// Returns the size of the guest's version.
pub fn bytes_of(file: &FileReview) -> u64 {
    match &file.new {
        Some(Node::File { size, .. }) => *size,
        _ => 0,
    }
}

fn summary(found: &Found, file: &FileReview) -> Value {
    let (added, removed) = file.lines();
    let (state, reason) = match &file.state {
        State::Clean => ("clean", None),
        State::Merges => ("merges", None),
        State::Conflict(reason) => ("conflict", Some(reason.clone())),
        State::Stays => ("stays", None),
    };
    let content = match &file.content {
        Content::Same => "same",
        Content::Binary => "binary",
        Content::Large => "large",
        Content::Text(_) => "text",
    };
    json!({
        "path": shown_path(&shown(&found.copy, file.tree, &file.path)),
        "status": status(file),
        "from": file.from.as_ref().map(|from| shown_path(&shown(&found.copy, file.tree, from))),
        "binary": file.content == Content::Binary,
        "added": added,
        "removed": removed,
        "old": file.old.as_ref().map(node),
        "new": file.new.as_ref().map(node),
        "state": state,
        "reason": reason,
        "ignored": file.is_ignored,
        "content": content,
    })
}

fn status(file: &FileReview) -> &'static str {
    match (file.letter(), &file.old, &file.new) {
        ('A', ..) => "added",
        ('D', ..) => "deleted",
        ('R', ..) => "renamed",
        ('T', ..) => "type",
        (_, Some(Node::File { mode, size }), Some(Node::File { mode: new_mode, size: new_size }))
            if file.content == Content::Same && mode != new_mode && size == new_size =>
        {
            "mode"
        }
        (_, Some(Node::Directory { .. }), _) => "mode",
        _ => "modified",
    }
}

fn node(node: &Node) -> Value {
    let target = match node {
        Node::Link { target } => Some(String::from_utf8_lossy(target)),
        _ => None,
    };
    let size = match node {
        Node::File { size, .. } => Some(size),
        _ => None,
    };
    json!({"kind": node.word(), "mode": node.git_mode(), "size": size, "target": target})
}

/// Returns the hunks of one file.
pub fn hunks(file: &FileReview) -> Value {
    let Content::Text(hunks) = &file.content else { return Value::Array(Vec::new()) };
    hunks.iter().map(hunk).collect()
}

fn hunk(hunk: &Hunk) -> Value {
    json!({
        "old_start": hunk.old_start, "old_lines": hunk.old_lines,
        "new_start": hunk.new_start, "new_lines": hunk.new_lines,
        "lines": hunk.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn line(line: &Line) -> Value {
    let side = match line.side {
        Side::Both => "both",
        Side::Old => "old",
        Side::New => "new",
    };
    json!({"side": side, "text": String::from_utf8_lossy(&line.text)})
}
