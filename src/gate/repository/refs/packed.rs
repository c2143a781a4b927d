//! Parses `packed-refs`.

use std::io::{self, ErrorKind};

use super::name::is_valid_name;
use super::{Refs, too_many_refs};
use crate::facts::git::object_id::ObjectId;

/// A million refs of ordinary length fit in 64 MiB.
pub const LARGEST_PACKED_REFS: u64 = 64 << 20;

/// Adds the refs of `packed-refs` that are not loose.
pub fn add_packed_refs(refs: &mut Refs, content: &[u8], mut left: usize) -> io::Result<()> {
    let unexpected = || io::Error::new(ErrorKind::InvalidData, "unexpected line in packed-refs");
    if content.last().is_some_and(|last| *last != b'\n') {
        return Err(io::Error::new(ErrorKind::InvalidData, "unterminated line in packed-refs"));
    }
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let is_header = number == 0 && line.starts_with(b"#");
        // The last line ends with a newline, after which there is nothing.
        if is_header || line.is_empty() || line.starts_with(b"^") {
            continue;
        }
        left = left.checked_sub(1).ok_or_else(|| too_many_refs(ErrorKind::FileTooLarge.into()))?;
        let space = line.iter().position(|byte| *byte == b' ').ok_or_else(unexpected)?;
        let (id, name) = line.split_at(space);
        let id = std::str::from_utf8(id).ok().and_then(ObjectId::parse).ok_or_else(unexpected)?;
        let name = name.get(1..).and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name.filter(|name| is_valid_name(name)) else {
            refs.odd += 1;
            continue;
        };
        if refs.symbolic.contains_key(name) || refs.is_broken(name) || refs.ids.contains_key(name) {
            continue;
        }
        if id.is_null() {
            refs.broken.insert(name.to_owned());
        } else {
            refs.ids.insert(name.to_owned(), id);
        }
    }
    Ok(())
}
