//! Reads the entries of an index one after the other, without storing them.

use super::IndexError;
use super::number::{read_u16, read_u32, read_varint};

/// Git cannot check out a longer path on Linux.
pub const LONGEST_PATH: usize = 4096;

pub const SIGNATURE: &[u8; 4] = b"DIRC";
/// Signature, version and number of entries.
pub const HEADER_SIZE: usize = 12;
/// Times, device, inode, mode, user, group and size, before the id.
pub const STAT_SIZE: usize = 40;
pub const MODE_OFFSET: usize = 24;
const MODIFIED_OFFSET: usize = 8;
const SIZE_OFFSET: usize = 36;
const FLAGS_SIZE: usize = 2;
/// Git makes each entry of versions 2 and 3 a multiple of this size, and ends it with 1 to 8 zeros.
const ENTRY_ALIGNMENT: usize = 8;

pub const FLAG_ASSUME_VALID: u16 = 0x8000;
pub const FLAG_EXTENDED: u16 = 0x4000;
pub const STAGE_SHIFT: u32 = 12;
/// The length of the path, or all ones if it is longer.
pub const LENGTH_MASK: u16 = 0x0fff;
pub const EXTENDED_SKIP_WORKTREE: u16 = 0x4000;
pub const EXTENDED_INTENT_TO_ADD: u16 = 0x2000;

pub struct RawEntry<'a> {
    pub mode: u32,
    /// The seconds and nanoseconds of the last change of the content, as Git saw the file.
    pub modified: (u32, u32),
    /// The size of the file, modulo 2^32.
    pub size: u32,
    pub id: &'a [u8],
    pub flags: u16,
    /// Zero if the entry has no extended flags.
    pub extended: u16,
    /// May contain zeros; Git does not store any.
    pub path: &'a [u8],
}

/// Calls `visit` for each entry, and returns the offset after the last one.
pub fn for_each_entry(
    content: &[u8],
    id_len: usize,
    mut visit: impl FnMut(RawEntry<'_>) -> Result<(), IndexError>,
) -> Result<usize, IndexError> {
    let (mut reader, count) = EntryReader::new(content, content.len() as u64, id_len)?;
    // The checksum follows the entries and the extensions.
    let content = content.len().checked_sub(id_len).and_then(|end| content.get(..end)).ok_or(IndexError::Truncated)?;
    let mut offset = HEADER_SIZE;
    for _ in 0..count {
        let rest = content.get(offset..).ok_or(IndexError::Truncated)?;
        let (entry, size) = reader.read(rest)?;
        visit(entry)?;
        offset += size;
    }
    if offset > content.len() { Err(IndexError::Truncated) } else { Ok(offset) }
}

/// Reads entries from the bytes that follow the header.
pub struct EntryReader {
    version: u32,
    id_len: usize,
    /// The path of the last entry, in version 4.
    previous: Vec<u8>,
}

impl EntryReader {
    /// Checks the header of an index of `size` bytes. Returns the number of entries as well.
    pub fn new(header: &[u8], size: u64, id_len: usize) -> Result<(Self, usize), IndexError> {
        if !matches!(id_len, 20 | 32) {
            return Err(IndexError::IdLength(id_len));
        }
        if header.get(..4).ok_or(IndexError::Truncated)? != SIGNATURE {
            return Err(IndexError::Signature);
        }
        let version = read_u32(header, 4)?;
        if !(2..=4).contains(&version) {
            return Err(IndexError::Version(version));
        }
        let count = read_u32(header, 8)? as usize;
        let room = size.checked_sub((HEADER_SIZE + id_len) as u64).ok_or(IndexError::Truncated)?;
        if count as u64 > room / (STAT_SIZE + id_len + FLAGS_SIZE + 1) as u64 {
            return Err(IndexError::Truncated);
        }
        Ok((EntryReader { version, id_len, previous: Vec::new() }, count))
    }

    /// Reads the entry at the start of `rest`, and returns its size as well, which may be larger than
    /// `rest` by some zeros. After `Truncated`, it can be called again with more bytes.
    pub fn read<'a>(&'a mut self, rest: &'a [u8]) -> Result<(RawEntry<'a>, usize), IndexError> {
        let fixed_size = STAT_SIZE + self.id_len + FLAGS_SIZE;
        let (fixed, variable) = rest.split_at_checked(fixed_size).ok_or(IndexError::Truncated)?;
        let mode = read_u32(fixed, MODE_OFFSET)?;
        let id = fixed.get(STAT_SIZE..STAT_SIZE + self.id_len).ok_or(IndexError::Truncated)?;
        let flags = read_u16(fixed, STAT_SIZE + self.id_len)?;
        let mut extended = 0;
        let mut name_offset = 0;
        if flags & FLAG_EXTENDED != 0 {
            extended = read_u16(variable, 0)?;
            name_offset = FLAGS_SIZE;
            if extended & !(EXTENDED_SKIP_WORKTREE | EXTENDED_INTENT_TO_ADD) != 0 {
                return Err(IndexError::Entry);
            }
        }
        let name = variable.get(name_offset..).ok_or(IndexError::Truncated)?;
        let (path, name_size) = if self.version == 4 {
            let name_size = expand_path(&mut self.previous, name, flags & LENGTH_MASK)?;
            (self.previous.as_slice(), name_size)
        } else {
            let length = flags & LENGTH_MASK;
            let path = string(name, if length == LENGTH_MASK { end_of_string(name)? } else { usize::from(length) })?;
            let unpadded = fixed_size + name_offset + path.len();
            let size = (unpadded + ENTRY_ALIGNMENT) & !(ENTRY_ALIGNMENT - 1);
            (path, size - fixed_size - name_offset)
        };
        if path.len() > LONGEST_PATH {
            return Err(IndexError::TooLong);
        }
        if path.len().min(usize::from(LENGTH_MASK)) != usize::from(flags & LENGTH_MASK) {
            return Err(IndexError::Path);
        }
        let modified = (read_u32(fixed, MODIFIED_OFFSET)?, read_u32(fixed, MODIFIED_OFFSET + 4)?);
        let size = read_u32(fixed, SIZE_OFFSET)?;
        Ok((RawEntry { mode, modified, size, id, flags, extended, path }, fixed_size + name_offset + name_size))
    }
}

/// Makes the path of a version 4 entry from the previous one, and returns the size it has in the
/// file.
fn expand_path(previous: &mut Vec<u8>, name: &[u8], length: u16) -> Result<usize, IndexError> {
    let (removed, number_size) = read_varint(name)?;
    let kept = previous.len().checked_sub(removed).ok_or(IndexError::Path)?;
    let added = name.get(number_size..).ok_or(IndexError::Truncated)?;
    let added_length = if length == LENGTH_MASK {
        end_of_string(added)?
    } else {
        usize::from(length).checked_sub(kept).ok_or(IndexError::Path)?
    };
    let added = string(added, added_length)?;
    previous.truncate(kept);
    previous.extend_from_slice(added);
    Ok(number_size + added.len() + 1)
}

/// Returns the first `length` bytes, which a zero must follow.
fn string(bytes: &[u8], length: usize) -> Result<&[u8], IndexError> {
    match bytes.get(length) {
        Some(0) => bytes.get(..length).ok_or(IndexError::Truncated),
        Some(_) => Err(IndexError::Path),
        None => Err(IndexError::Truncated),
    }
}

fn end_of_string(bytes: &[u8]) -> Result<usize, IndexError> {
    // No path is longer, and without this limit each of many entries could be as long as the file.
    let longest = bytes.get(..=LONGEST_PATH);
    let end = longest.unwrap_or(bytes).iter().position(|byte| *byte == 0);
    end.ok_or(if longest.is_some() { IndexError::TooLong } else { IndexError::Truncated })
}
