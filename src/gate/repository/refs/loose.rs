//! Reads loose refs, each of which is a file below `refs`.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::FileType;

use super::name::{LONGEST_NAME, has_valid_format, is_valid_name};
use super::{DEEPEST_DIRECTORY, Refs, too_many_refs};
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::{UntrustedDir, is_host_failure};

/// A loose ref is an id, or `ref: ` and a name of at most `LONGEST_NAME` bytes.
pub const LARGEST_LOOSE_REF: u64 = LONGEST_NAME as u64 + 64;

pub struct LooseRefs {
    pub refs: Refs,
    /// The number of files and directories that may still be read.
    pub left: usize,
}

impl LooseRefs {
    pub fn read_directory(&mut self, directory: &UntrustedDir, prefix: &str, depth: usize) -> io::Result<()> {
        let entries = directory.entries(self.left).map_err(too_many_refs)?;
        self.left = self.left.saturating_sub(entries.len());
        for (file_name, kind) in entries {
            if kind == FileType::RegularFile && file_name.as_encoded_bytes().ends_with(b".lock") {
                continue;
            }
            let name = file_name.to_str().map(|file_name| format!("{prefix}/{file_name}"));
            let Some(name) = name.filter(|name| has_valid_format(name)) else {
                self.refs.odd += 1;
                continue;
            };
            match kind {
                FileType::RegularFile => self.read_file(directory, &file_name, name)?,
                FileType::Directory if depth < DEEPEST_DIRECTORY => {
                    match directory.directory(Path::new(&file_name)) {
                        Ok(below) => self.read_directory(&below, &name, depth + 1)?,
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) if is_host_failure(&error) => return Err(error),
                        Err(_) => drop(self.refs.broken.insert(name)),
                    };
                }
                _ => drop(self.refs.broken.insert(name)),
            }
        }
        Ok(())
    }

    fn read_file(&mut self, directory: &UntrustedDir, file_name: &OsStr, name: String) -> io::Result<()> {
        let content = match directory.read(file_name, LARGEST_LOOSE_REF) {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(()),
            Err(error) if is_host_failure(&error) => return Err(error),
            Err(_) => Vec::new(),
        };
        match parse_loose(&content) {
            _ if !is_valid_name(&name) => drop(self.refs.broken.insert(name)),
            Some(Value::Id(id)) => drop(self.refs.ids.insert(name, id)),
            Some(Value::Symbolic(target)) if is_valid_name(&target) => drop(self.refs.symbolic.insert(name, target)),
            _ => drop(self.refs.broken.insert(name)),
        }
        Ok(())
    }
}

pub enum Value {
    Id(ObjectId),
    /// The name is not checked yet.
    Symbolic(String),
}

/// Parses the content of HEAD or of a loose ref as Git does: white space after an id ends it.
pub fn parse_loose(content: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(content).ok()?;
    if let Some(target) = text.strip_prefix("ref:") {
        return Some(Value::Symbolic(target.trim_ascii().to_owned()));
    }
    let id = text.split(|c: char| c.is_ascii_whitespace()).next()?;
    ObjectId::parse(id).filter(|id| !id.is_null()).map(Value::Id)
}
