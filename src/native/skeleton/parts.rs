//! Divides the operations of a blueprint into what a skeleton contains and what is left to do in each
//! sandbox. Examines only the files that a skeleton copies, and the host's device nodes.

use std::ffi::CStr;

use super::{FileStamp, stamp_of_copied};
use crate::launch::native::step::BindKind;
use crate::native::blueprint::Operation;
use crate::native::device;

/// What is left to do of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// A mount, in a place that exists.
    Mount,
    Nothing,
}

/// One name in a skeleton. The names above it are directories.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entry<'a> {
    Directory {
        at: &'a CStr,
        mode: u32,
    },
    /// The place of a mounted file.
    Empty {
        at: &'a CStr,
    },
    File {
        at: &'a CStr,
        content: &'a [u8],
        mode: u32,
    },
    Copy {
        at: &'a CStr,
        source: &'a CStr,
        stamp: FileStamp,
    },
    Link {
        at: &'a CStr,
        to: &'a CStr,
    },
}

/// The mode of directories that no step names.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;

pub(crate) fn divide<'a>(operations: &'a [Operation<'a>], has_terminal: bool) -> (Vec<Entry<'a>>, Vec<Part>) {
    let mut division = Division { entries: Vec::with_capacity(operations.len()), mounted: Vec::new() };
    let parts = operations.iter().map(|operation| division.part(operation, has_terminal)).collect();
    (division.entries, parts)
}

struct Division<'a> {
    entries: Vec<Entry<'a>>,
    /// Where something is mounted: what is there or below it is not part of the skeleton.
    mounted: Vec<&'a CStr>,
}

impl<'a> Division<'a> {
    fn part(&mut self, operation: &'a Operation<'a>, has_terminal: bool) -> Part {
        if path_of(operation).is_some_and(|at| self.is_in_mount(at)) {
            return Part::Whole;
        }
        match operation {
            Operation::Dir { at, mode } => self.contains(Entry::Directory { at, mode: *mode }),
            Operation::Symlink { at, to } => self.contains(Entry::Link { at, to }),
            Operation::File { at, content, mode } => self.contains(Entry::File { at, content, mode: *mode }),
            Operation::Tmpfs { at, .. } | Operation::Cache { at, .. } => self.mount(at, BindKind::Directory),
            Operation::Bind { at, source, kind, .. } => {
                let stamp = if *kind == BindKind::Copied { stamp_of_copied(source) } else { None };
                match stamp {
                    Some(stamp) => self.contains(Entry::Copy { at, source, stamp }),
                    None => self.mount(at, *kind),
                }
            }
            Operation::Proc => {
                self.entries.push(Entry::Directory { at: c"proc", mode: 0o555 });
                self.mounted.push(c"proc");
                Part::Mount
            }
            Operation::Dev => {
                for (at, is_directory) in device::places(has_terminal) {
                    self.mount(at, if is_directory { BindKind::Directory } else { BindKind::File });
                }
                self.entries.extend(device::LINKS.iter().map(|(at, to)| Entry::Link { at, to }));
                Part::Mount
            }
        }
    }

    fn contains(&mut self, entry: Entry<'a>) -> Part {
        self.entries.push(entry);
        Part::Nothing
    }

    fn mount(&mut self, at: &'a CStr, kind: BindKind) -> Part {
        self.entries.push(match kind {
            BindKind::Directory => Entry::Directory { at, mode: DIRECTORY_MODE },
            BindKind::File | BindKind::Copied => Entry::Empty { at },
        });
        self.mounted.push(at);
        Part::Mount
    }

    fn is_in_mount(&self, path: &CStr) -> bool {
        self.mounted.iter().any(|mount| {
            let below = path.to_bytes().strip_prefix(mount.to_bytes());
            below.is_some_and(|below| below.is_empty() || below.starts_with(b"/"))
        })
    }
}

fn path_of<'a>(operation: &'a Operation<'_>) -> Option<&'a CStr> {
    match operation {
        Operation::Dir { at, .. }
        | Operation::Bind { at, .. }
        | Operation::Cache { at, .. }
        | Operation::Tmpfs { at, .. }
        | Operation::Symlink { at, .. }
        | Operation::File { at, .. } => Some(at),
        Operation::Proc | Operation::Dev => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn text(text: &str) -> CString {
        CString::new(text).expect("no NUL")
    }

    fn bind(source: &str, at: &str, kind: BindKind) -> Operation<'static> {
        Operation::Bind { source: text(source), at: text(at), attributes: 0, kind }
    }

    #[test]
    fn what_is_below_a_mount_is_left_to_each_sandbox() {
        let operations = [
            Operation::Dir { at: text("run"), mode: 0o755 },
            bind("/usr", "usr", BindKind::Directory),
            Operation::Symlink { at: text("usr/link"), to: text("to") },
            Operation::Symlink { at: text("usrlink"), to: text("to") },
            Operation::Tmpfs { at: text("tmp"), mode: 0o1777 },
            bind("/work", "tmp/work", BindKind::Directory),
            bind("/tool", "usr", BindKind::File),
            Operation::File { at: text("etc/hosts"), content: b"", mode: 0o644 },
            Operation::Proc,
            bind("/missing", "etc/missing", BindKind::Copied),
            bind("/tool", "tool", BindKind::File),
        ];
        let (entries, parts) = divide(&operations, false);
        use Part::{Mount, Nothing, Whole};
        let expected = [Nothing, Mount, Whole, Nothing, Mount, Whole, Whole, Nothing, Mount, Mount, Mount];
        assert_eq!(parts, expected);
        let directory = |at, mode| Entry::Directory { at, mode };
        let expected = [
            directory(c"run", 0o755),
            directory(c"usr", 0o755),
            Entry::Link { at: c"usrlink", to: c"to" },
            directory(c"tmp", 0o755),
            Entry::File { at: c"etc/hosts", content: b"", mode: 0o644 },
            directory(c"proc", 0o555),
            Entry::Empty { at: c"etc/missing" },
            Entry::Empty { at: c"tool" },
        ];
        assert_eq!(entries, expected);
    }
}
