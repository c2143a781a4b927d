//! Writes a review as a patch in Git's format, and as `--stat`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::find::shown;
use crate::gate::workspace::{Content, FileReview, Hunk, Node, Side, State};
use crate::kept_copy::KeptCopy;

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The bytes of the files, for programs.
    Plain,
    /// Without control characters, which could change the terminal; with colours if there are any.
    Terminal { colours: bool },
}

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[m";

pub struct Patch {
    pub text: Vec<u8>,
    look: Look,
}

impl Patch {
    pub fn new(look: Look) -> Self {
        Patch { text: Vec::new(), look }
    }

    fn line(&mut self, colour: &str, line: &[u8]) {
        match self.look {
            Look::Plain => self.text.extend_from_slice(line),
            Look::Terminal { colours } => {
                if colours && !colour.is_empty() {
                    self.text.extend_from_slice(colour.as_bytes());
                }
                escape_controls(line, &mut self.text);
                if colours && !colour.is_empty() {
                    self.text.extend_from_slice(RESET.as_bytes());
                }
            }
        }
        self.text.push(b'\n');
    }

    /// Writes a line of text that is not part of the patch.
    pub fn note(&mut self, text: &str) {
        self.line("", text.as_bytes());
    }

    /// Writes one file.
    pub fn file(&mut self, copy: &KeptCopy, file: &FileReview) {
        let path = shown(copy, file.tree, &file.path);
        let from = file.from.as_ref().map_or_else(|| path.clone(), |from| shown(copy, file.tree, from));
        let (old_name, new_name) = (quoted("a/", &from), quoted("b/", &path));
        self.line(BOLD, &[b"diff --git ", old_name.as_slice(), b" ", &new_name].concat());
        let mode = |node: &Node| node.git_mode();
        match (&file.old, &file.new) {
            (None, Some(new)) => self.line(BOLD, format!("new file mode {}", mode(new)).as_bytes()),
            (Some(old), None) => self.line(BOLD, format!("deleted file mode {}", mode(old)).as_bytes()),
            (Some(old), Some(new)) if mode(old) != mode(new) => {
                self.line(BOLD, format!("old mode {}", mode(old)).as_bytes());
                self.line(BOLD, format!("new mode {}", mode(new)).as_bytes());
            }
            _ => {}
        }
        if file.from.is_some() {
            self.line(BOLD, &[b"rename from ".as_slice(), &quoted("", &from)].concat());
            self.line(BOLD, &[b"rename to ".as_slice(), &quoted("", &path)].concat());
        }
        if let State::Conflict(reason) = &file.state {
            self.line(RED, format!("conflict: {reason}").as_bytes());
        }
        for node in [&file.old, &file.new].into_iter().flatten() {
            match node {
                Node::Fifo | Node::Socket | Node::Device => {
                    self.line(BOLD, format!("a {}, which stays in the copy", node.word()).as_bytes());
                }
                Node::Directory { mode } => self.line(BOLD, format!("directory, permissions {mode:o}").as_bytes()),
                Node::File { .. } | Node::Link { .. } => {}
            }
        }
        self.content(file, &old_name, &new_name);
    }

    fn content(&mut self, file: &FileReview, old_name: &[u8], new_name: &[u8]) {
        let is_file = |node: &Option<Node>| node.as_ref().is_some_and(|node| !node.is_directory());
        let old_name = if is_file(&file.old) { old_name } else { b"/dev/null" };
        let new_name = if is_file(&file.new) { new_name } else { b"/dev/null" };
        let links = link_hunk(file);
        let hunks: &[Hunk] = match (&file.content, &links) {
            (Content::Text(hunks), None) => hunks,
            (_, Some(hunk)) => std::slice::from_ref(hunk),
            (Content::Binary, None) => {
                let both = [b"Binary files ", old_name, b" and ", new_name, b" differ"].concat();
                return self.line("", &both);
            }
            (Content::Large, None) => {
                let size = |node: &Option<Node>| match node {
                    Some(Node::File { size, .. }) => *size,
                    _ => 0,
                };
                let text = format!("Large files differ: {} and {} bytes", size(&file.old), size(&file.new));
                return self.line("", text.as_bytes());
            }
            (Content::Same, None) => return,
        };
        self.line(BOLD, &[b"--- ", old_name].concat());
        self.line(BOLD, &[b"+++ ", new_name].concat());
        hunks.iter().for_each(|hunk| self.hunk(hunk));
    }

    /// Writes one hunk.
    pub fn hunk(&mut self, hunk: &Hunk) {
        let range =
            |start: usize, lines: usize| if lines == 1 { start.to_string() } else { format!("{start},{lines}") };
        let (old, new) = (range(hunk.old_start, hunk.old_lines), range(hunk.new_start, hunk.new_lines));
        self.line(CYAN, format!("@@ -{old} +{new} @@").as_bytes());
        for line in &hunk.lines {
            let (sign, colour) = match line.side {
                Side::Both => (b' ', ""),
                Side::Old => (b'-', RED),
                Side::New => (b'+', GREEN),
            };
            let (text, is_complete) = match line.text.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (line.text.as_slice(), false),
            };
            self.line(colour, &[&[sign], text].concat());
            if !is_complete {
                self.line("", b"\\ No newline at end of file");
            }
        }
    }
}

/// Writes the targets of links as Git does: as files without a line feed.
fn link_hunk(file: &FileReview) -> Option<Hunk> {
    use crate::gate::workspace::Line;
    let target = |node: &Option<Node>| match node {
        Some(Node::Link { target }) => Some(target.clone()),
        _ => None,
    };
    let (old, new) = (target(&file.old), target(&file.new));
    if old.is_none() && new.is_none() {
        return None;
    }
    let line = |side, text: Option<Vec<u8>>| text.map(|text| Line { side, text });
    let lines: Vec<Line> = line(Side::Old, old.clone()).into_iter().chain(line(Side::New, new.clone())).collect();
    let count = |side: &Option<Vec<u8>>| usize::from(side.is_some());
    Some(Hunk { old_start: count(&old), old_lines: count(&old), new_start: count(&new), new_lines: count(&new), lines })
}

/// Quotes a name as Git does, if it has control characters, quotes or backslashes.
pub fn quoted(prefix: &str, path: &Path) -> Vec<u8> {
    let name = path.as_os_str().as_bytes();
    let is_plain = |byte: &u8| *byte >= 0x20 && *byte != 0x7f && *byte != b'"' && *byte != b'\\';
    if name.iter().all(is_plain) {
        return [prefix.as_bytes(), name].concat();
    }
    let mut quoted = [b"\"", prefix.as_bytes()].concat();
    for byte in name {
        match byte {
            b'\n' => quoted.extend(b"\\n"),
            b'\t' => quoted.extend(b"\\t"),
            b'"' => quoted.extend(b"\\\""),
            b'\\' => quoted.extend(b"\\\\"),
            byte if is_plain(byte) => quoted.push(*byte),
            byte => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push(b'"');
    quoted
}

/// Shows control characters as `^X`: a file of the guest must not reach the terminal.
fn escape_controls(line: &[u8], to: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line);
    let mut buffer = [0; 4];
    for c in text.chars() {
        match c {
            '\t' => to.push(b'\t'),
            '\u{7f}' => to.extend(b"^?"),
            c if (c as u32) < 0x20 => to.extend([b'^', c as u8 + b'@']),
            // Marks that change the direction of writing could show other code than there is.
            '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                to.extend(format!("<U+{:04X}>", c as u32).bytes());
            }
            c => to.extend(c.encode_utf8(&mut buffer).bytes()),
        }
    }
}

/// Writes a line for each file with the numbers of added and removed lines.
pub fn stat(copy: &KeptCopy, files: &[&FileReview]) -> Vec<u8> {
    let mut text = Vec::new();
    let (mut added, mut removed) = (0, 0);
    let width =
        files.iter().map(|file| quoted("", &shown(copy, file.tree, &file.path)).len()).max().unwrap_or(0).min(80);
    for file in files {
        let name = quoted("", &shown(copy, file.tree, &file.path));
        let (plus, minus) = file.lines();
        (added, removed) = (added + plus, removed + minus);
        let what = match &file.content {
            Content::Binary | Content::Large => "binary or large".to_owned(),
            _ => match (&file.state, file.letter()) {
                (State::Stays, _) => "stays in the copy".to_owned(),
                (_, 'A') => format!("new      +{plus}"),
                (_, 'D') => format!("deleted  -{minus}"),
                (_, 'R') => format!("renamed  +{plus} -{minus}"),
                _ => format!("         +{plus} -{minus}"),
            },
        };
        let conflict = if matches!(file.state, State::Conflict(_)) { "  (conflict)" } else { "" };
        let mut line = Vec::new();
        escape_controls(&name, &mut line);
        line.resize(line.len().max(width), b' ');
        let _ = writeln!(text, " {} | {what}{conflict}", String::from_utf8_lossy(&line));
    }
    let _ = writeln!(text, " {} files changed, {added} lines added, {removed} removed", files.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_controls_do_not_reach_a_terminal() {
        assert_eq!(quoted("a/", Path::new("x y")), b"a/x y");
        assert_eq!(quoted("b/", Path::new("x\n\"\x1b")), b"\"b/x\\n\\\"\\033\"");
        let mut patch = Patch::new(Look::Terminal { colours: false });
        patch.line("", "a\x1b[2J\u{202e}\tb".as_bytes());
        assert_eq!(patch.text, b"a^[[2J<U+202E>\tb\n");
        let mut plain = Patch::new(Look::Plain);
        plain.line(RED, b"a\x1b");
        assert_eq!(plain.text, b"a\x1b\n");
    }
}
