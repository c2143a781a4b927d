//! Compares files of any size.

use std::io::{self, Read};

/// Compares the contents of two files without keeping them.
pub fn is_same_content(one: &mut impl Read, other: &mut impl Read) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let (a, b) = (fill(one, &mut left)?, fill(other, &mut right)?);
        if left[..a] != right[..b] {
            return Ok(false);
        }
        if a == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match from.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
