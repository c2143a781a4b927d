//! Compares and merges texts by line, with limits of time: a guest chooses both.

use diffy::{DiffOptions, Line as PatchLine, MergeOptions};
use serde::{Deserialize, Serialize};

/// Larger files are compared, but their differences are not shown.
pub const MAX_TEXT: u64 = 8 << 20;
/// Git looks for a zero in so many bytes to tell binary files.
const BINARY_PREFIX: usize = 8000;
/// The time to compare texts grows with the square of the lines that differ. More than these are shown
/// as replaced, and not merged.
const MAX_LINES: usize = 20_000;
const CONTEXT: usize = 3;

/// A part of a text that differs, with the lines around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hunk {
    /// The first line, from 1; 0 if there is none.
    pub old_start: usize,
    pub old_lines: usize,
    pub new_start: usize,
    pub new_lines: usize,
    pub lines: Vec<Line>,
}

/// A line with its line feed, if it has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub side: Side,
    #[serde(with = "crate::saved_path")]
    pub text: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Both,
    Old,
    New,
}

pub fn is_binary(content: &[u8]) -> bool {
    content.iter().take(BINARY_PREFIX).any(|byte| *byte == 0)
}

/// Lists the differences of two texts.
pub fn hunks(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    if differing_lines(old, new) > MAX_LINES {
        return replaced(old, new);
    }
    let patch = DiffOptions::new().set_context_len(CONTEXT).create_patch_bytes(old, new);
    let hunks = patch.hunks().iter().map(|hunk| Hunk {
        old_start: hunk.old_range().start(),
        old_lines: hunk.old_range().len(),
        new_start: hunk.new_range().start(),
        new_lines: hunk.new_range().len(),
        lines: hunk
            .lines()
            .iter()
            .map(|line| match line {
                PatchLine::Context(text) => Line { side: Side::Both, text: text.to_vec() },
                PatchLine::Delete(text) => Line { side: Side::Old, text: text.to_vec() },
                PatchLine::Insert(text) => Line { side: Side::New, text: text.to_vec() },
            })
            .collect(),
    });
    hunks.collect()
}

/// Counts the lines between the first and the last difference.
fn differing_lines(old: &[u8], new: &[u8]) -> usize {
    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) = (lines(old).collect(), lines(new).collect());
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(old, new)| old == new).count();
    old.len() + new.len() - 2 * start - 2 * end
}

pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

fn replaced(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    let side = |text: &[u8], side| lines(text).map(|text| Line { side, text: text.to_vec() }).collect::<Vec<_>>();
    let (old, new) = (side(old, Side::Old), side(new, Side::New));
    let (old_lines, new_lines) = (old.len(), new.len());
    vec![Hunk {
        old_start: usize::from(old_lines > 0),
        old_lines,
        new_start: usize::from(new_lines > 0),
        new_lines,
        lines: old.into_iter().chain(new).collect(),
    }]
}

/// Applies some of the hunks of a text to it.
pub fn with_hunks<'a>(old: &[u8], hunks: impl Iterator<Item = &'a Hunk>) -> Vec<u8> {
    let old: Vec<&[u8]> = lines(old).collect();
    let mut result = Vec::new();
    let mut at = 0;
    for hunk in hunks {
        // Without old lines, the start is the line after which new ones come.
        let start = if hunk.old_lines == 0 { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        result.extend(old.get(at..start).unwrap_or_default().concat());
        result
            .extend(hunk.lines.iter().filter(|line| line.side != Side::Old).flat_map(|line| line.text.iter().copied()));
        at = start + hunk.old_lines;
    }
    result.extend(old.get(at..).unwrap_or_default().concat());
    result
}

/// The result of a three-way merge.
pub enum Merge {
    Clean(Vec<u8>),
    /// The text with conflict markers.
    Conflict(Vec<u8>),
    /// Such texts are not merged.
    Impossible,
}

/// Merges what two sides made of a text.
pub fn merge(base: &[u8], host: &[u8], copy: &[u8]) -> Merge {
    if [base, host, copy].iter().any(|text| is_binary(text) || text.len() as u64 > MAX_TEXT)
        || differing_lines(base, host) > MAX_LINES
        || differing_lines(base, copy) > MAX_LINES
    {
        return Merge::Impossible;
    }
    match MergeOptions::new().set_conflict_style(diffy::ConflictStyle::Merge).merge_bytes(base, host, copy) {
        Ok(merged) => Merge::Clean(merged),
        Err(conflict) => Merge::Conflict(conflict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_hunks_make_the_new_text_and_none_the_old(
            old in proptest::collection::vec("[ab]{0,2}\n?", 0..40),
            new in proptest::collection::vec("[ab]{0,2}\n?", 0..40),
        ) {
            let (old, new) = (old.concat().into_bytes(), new.concat().into_bytes());
            let hunks = hunks(&old, &new);
            prop_assert_eq!(with_hunks(&old, hunks.iter()), new.clone());
            prop_assert_eq!(with_hunks(&old, [].iter()), old.clone());
            prop_assert_eq!(with_hunks(&old, replaced(&old, &new).iter()), new);
        }

        #[test]
        fn a_merge_with_an_unchanged_side_is_the_other(
            base in proptest::collection::vec("[ab]\n", 0..20),
            changed in proptest::collection::vec("[abc]\n", 0..20),
        ) {
            let (base, changed) = (base.concat().into_bytes(), changed.concat().into_bytes());
            for (host, copy) in [(&base, &changed), (&changed, &base), (&changed, &changed)] {
                prop_assert!(matches!(merge(&base, host, copy), Merge::Clean(merged) if merged == changed));
            }
        }
    }

    #[test]
    fn different_lines_merge_and_the_same_line_conflicts() {
        let base = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let host = b"one\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let copy = b"1\n2\n3\n4\n5\n6\n7\n8\nnine\n";
        assert!(
            matches!(merge(base, host, copy), Merge::Clean(merged) if merged == b"one\n2\n3\n4\n5\n6\n7\n8\nnine\n")
        );
        assert!(matches!(merge(base, host, b"uno\n2\n3\n4\n5\n6\n7\n8\n9\n"), Merge::Conflict(_)));
        assert!(matches!(merge(base, b"\0", copy), Merge::Impossible));
    }

    #[test]
    fn texts_that_differ_in_too_many_lines_are_replaced() {
        let text = |word: &str| (0..30_000).map(|number| format!("{word}{number}\n")).collect::<String>().into_bytes();
        let (old, new) = (text("a"), text("b"));
        let hunks = hunks(&old, &new);
        assert_eq!(hunks.len(), 1);
        assert_eq!(with_hunks(&old, hunks.iter()), new);
    }
}
