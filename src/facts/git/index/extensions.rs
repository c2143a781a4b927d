//! Reads the extensions that follow the entries of an index.

use super::IndexError;
use super::number::read_u32;

/// The signature and the size of an extension.
const EXTENSION_HEADER_SIZE: usize = 8;

pub struct Extensions {
    pub is_split: bool,
    pub is_sparse: bool,
}

/// Reads the names of the extensions. Git ignores those it does not know if they start with an
/// upper-case letter.
pub fn read_extensions(content: &[u8], mut offset: usize, id_len: usize) -> Result<Extensions, IndexError> {
    let end = content.len().checked_sub(id_len).ok_or(IndexError::Truncated)?;
    let mut found = Extensions { is_split: false, is_sparse: false };
    while offset < end {
        let name = content.get(offset..end).and_then(|rest| rest.get(..4)).ok_or(IndexError::Truncated)?;
        match name {
            b"link" => found.is_split = true,
            b"sdir" => found.is_sparse = true,
            [b'A'..=b'Z', ..] => {}
            _ => return Err(IndexError::Extension(name.escape_ascii().to_string())),
        }
        let size = read_u32(content, offset + 4)? as usize;
        offset = offset
            .checked_add(EXTENSION_HEADER_SIZE)
            .and_then(|offset| offset.checked_add(size))
            .ok_or(IndexError::Truncated)?;
    }
    if offset == end { Ok(found) } else { Err(IndexError::Truncated) }
}
