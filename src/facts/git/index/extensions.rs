//! Reads the extensions that follow the entries of an index.

use super::IndexError;
use super::number::read_u32;

/// The signature and the size of an extension.
pub const EXTENSION_HEADER_SIZE: usize = 8;

#[derive(Default)]
pub struct Extensions {
    pub is_split: bool,
    pub is_sparse: bool,
}

impl Extensions {
    /// Reads the header of an extension, and returns the size of the content that follows. Git
    /// ignores extensions it does not know if they start with an upper-case letter.
    pub fn add(&mut self, header: &[u8]) -> Result<u32, IndexError> {
        let name = header.get(..4).ok_or(IndexError::Truncated)?;
        match name {
            b"link" => self.is_split = true,
            b"sdir" => self.is_sparse = true,
            [b'A'..=b'Z', ..] => {}
            _ => return Err(IndexError::Extension(name.escape_ascii().to_string())),
        }
        read_u32(header, 4)
    }
}

/// Reads the names of the extensions.
pub fn read_extensions(content: &[u8], mut offset: usize, id_len: usize) -> Result<Extensions, IndexError> {
    let end = content.len().checked_sub(id_len).ok_or(IndexError::Truncated)?;
    let mut found = Extensions::default();
    while offset < end {
        let size = found.add(content.get(offset..end).ok_or(IndexError::Truncated)?)? as usize;
        offset = offset
            .checked_add(EXTENSION_HEADER_SIZE)
            .and_then(|offset| offset.checked_add(size))
            .ok_or(IndexError::Truncated)?;
    }
    if offset == end { Ok(found) } else { Err(IndexError::Truncated) }
}
