//! Reads numbers as Git stores them in an index.

use super::IndexError;

pub fn read_u32(bytes: &[u8], offset: usize) -> Result<u32, IndexError> {
    let bytes = bytes.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(IndexError::Truncated)?;
    Ok(u32::from_be_bytes(*bytes))
}

pub fn read_u16(bytes: &[u8], offset: usize) -> Result<u16, IndexError> {
    let bytes = bytes.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(IndexError::Truncated)?;
    Ok(u16::from_be_bytes(*bytes))
}

/// Reads a number in the encoding of pack offsets, and returns the size it has in the file.
pub fn read_varint(bytes: &[u8]) -> Result<(usize, usize), IndexError> {
    let mut value = 0usize;
    for (index, byte) in bytes.iter().enumerate() {
        value = value
            .checked_mul(128)
            .and_then(|value| value.checked_add(usize::from(byte & 127)))
            .ok_or(IndexError::Path)?;
        if byte & 128 == 0 {
            return Ok((value, index + 1));
        }
        value = value.checked_add(1).ok_or(IndexError::Path)?;
    }
    Err(IndexError::Truncated)
}
