//! Parses Git's index, versions 2 to 4, from bytes that a guest controls. It neither opens files
//! nor runs Git.

mod entries;
mod extensions;
mod gitlinks;
mod number;
mod path;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use thiserror::Error;

use super::object_id::ObjectId;
use entries::{EXTENDED_INTENT_TO_ADD, EXTENDED_SKIP_WORKTREE, FLAG_ASSUME_VALID, STAGE_SHIFT, for_each_entry};
use extensions::read_extensions;
pub use gitlinks::{Gitlinks, gitlinks};
pub use path::is_valid_path;

/// Holds the index of some ten million files. Callers read no larger ones.
pub const MAX_INDEX: u64 = 1 << 30;

/// Version 4 stores only the part of a path that differs from the previous one, so that a small file
/// could expand to any size. A million files have paths of about 100 MiB.
const MOST_PATH_BYTES: usize = 256 << 20;

pub const MODE_DIRECTORY: u32 = 0o040_000;
pub const MODE_LINK: u32 = 0o120_000;
pub const MODE_GITLINK: u32 = 0o160_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub mode: u32,
    pub id: ObjectId,
    pub is_skip_worktree: bool,
    pub is_intent_to_add: bool,
    pub is_assumed_valid: bool,
}

/// A tracked file as Git last saw it in the working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenFile {
    pub id: ObjectId,
    /// Seconds and nanoseconds, each modulo 2^32.
    pub modified: (u32, u32),
    /// Modulo 2^32.
    pub size: u32,
}

/// Lists the regular files and links of an index without conflicts, by path.
pub fn seen_files(content: &[u8], id_len: usize) -> Result<BTreeMap<Vec<u8>, SeenFile>, IndexError> {
    let mut files = BTreeMap::new();
    for_each_entry(content, id_len, |raw| {
        let is_file = !matches!(raw.mode, MODE_DIRECTORY | MODE_GITLINK);
        if is_file && (raw.flags >> STAGE_SHIFT) & 3 == 0 {
            let id = ObjectId::from_bytes(raw.id).ok_or(IndexError::IdLength(id_len))?;
            files.insert(raw.path.to_vec(), SeenFile { id, modified: raw.modified, size: raw.size });
        }
        Ok(())
    })?;
    Ok(files)
}

#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// By path and stage. Paths are not checked; see [`is_valid_path`].
    pub entries: BTreeMap<(Vec<u8>, u8), Entry>,
    /// Most entries are in another file, `sharedindex.*`.
    pub is_split: bool,
    /// Some entries are directories of a sparse checkout.
    pub is_sparse: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum IndexError {
    #[error("index file smaller than expected")]
    Truncated,
    #[error("bad index signature")]
    Signature,
    #[error("bad index version {0}")]
    Version(u32),
    #[error("unknown index entry format")]
    Entry,
    #[error("malformed name field in the index")]
    Path,
    #[error("paths in the index are too long")]
    TooLong,
    #[error("unordered stage entries in index")]
    Order,
    #[error("index uses `{0}` extension, which is not supported")]
    Extension(String),
    #[error("object ids of {0} bytes are not supported")]
    IdLength(usize),
}

/// Parses an index whose object ids have `id_len` bytes, 20 or 32.
///
/// The checksum at the end is not compared: the guest can compute it as well, and Git itself writes
/// zeros there if `index.skipHash` is set.
pub fn parse(content: &[u8], id_len: usize) -> Result<Index, IndexError> {
    let mut entries = Vec::new();
    let mut path_bytes = 0;
    let mut has_directory = false;
    let end = for_each_entry(content, id_len, |raw| {
        path_bytes += raw.path.len();
        if path_bytes > MOST_PATH_BYTES {
            return Err(IndexError::TooLong);
        }
        if raw.path.contains(&0) {
            return Err(IndexError::Path);
        }
        has_directory |= raw.mode == MODE_DIRECTORY;
        let entry = Entry {
            mode: raw.mode,
            id: ObjectId::from_bytes(raw.id).ok_or(IndexError::IdLength(id_len))?,
            is_skip_worktree: raw.extended & EXTENDED_SKIP_WORKTREE != 0,
            is_intent_to_add: raw.extended & EXTENDED_INTENT_TO_ADD != 0,
            is_assumed_valid: raw.flags & FLAG_ASSUME_VALID != 0,
        };
        entries.push(((raw.path.to_vec(), (raw.flags >> STAGE_SHIFT) as u8 & 3), entry));
        Ok(())
    })?;
    let extensions = read_extensions(content, end, id_len)?;
    if extensions.is_split {
        // An entry that replaces one of the shared index has no path.
        entries.retain(|((path, _), _)| !path.is_empty());
    } else {
        check_order(&entries)?;
    }
    Ok(Index {
        entries: entries.into_iter().collect(),
        is_split: extensions.is_split,
        is_sparse: extensions.is_sparse || has_directory,
    })
}

/// Requires Git's order, in which no path appears twice, apart from the stages of a conflict.
fn check_order(entries: &[((Vec<u8>, u8), Entry)]) -> Result<(), IndexError> {
    if entries.first().is_some_and(|((path, _), _)| path.is_empty()) {
        return Err(IndexError::Path);
    }
    let is_ordered = entries.is_sorted_by(|(a, _), (b, _)| a < b && (a.1 != 0 || a.0 != b.0));
    if is_ordered { Ok(()) } else { Err(IndexError::Order) }
}
