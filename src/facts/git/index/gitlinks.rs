//! Lists the gitlinks of an index. It is called at every launch, so it reads a large index through a
//! small buffer.

use std::io::Read;

use super::entries::{EntryReader, HEADER_SIZE};
use super::extensions::{EXTENSION_HEADER_SIZE, Extensions};
use super::{IndexError, MODE_GITLINK, MOST_PATH_BYTES};
use crate::facts::git::object_id::ObjectId;

const BUFFER_SIZE: usize = 128 << 10;

/// The gitlinks of an index.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Gitlinks {
    pub paths: Vec<Vec<u8>>,
    /// The number of gitlinks in the place of entries of the shared index, which have no paths.
    pub unnamed: usize,
    /// The name of the shared index `sharedindex.*` that contains the other entries.
    pub shared: Option<String>,
}

/// Reads the gitlinks in an index of `size` bytes.
pub fn gitlinks(index: impl Read, size: u64, id_len: usize) -> Result<Gitlinks, IndexError> {
    let end = size.checked_sub(id_len as u64).ok_or(IndexError::Truncated)?;
    let mut window = Window { reader: index.take(end), bytes: vec![0; BUFFER_SIZE], start: 0, end: 0 };
    let (mut entries, count) = EntryReader::new(window.at_least(HEADER_SIZE)?, size, id_len)?;
    window.skip(HEADER_SIZE)?;
    let mut links = Gitlinks::default();
    let mut path_bytes = 0;
    for _ in 0..count {
        let entry_size = loop {
            let read = match entries.read(window.rest()) {
                Ok((entry, size)) => {
                    if entry.mode == MODE_GITLINK {
                        path_bytes += entry.path.len();
                        if path_bytes > MOST_PATH_BYTES {
                            return Err(IndexError::TooLong);
                        }
                        if entry.path.contains(&0) {
                            return Err(IndexError::Path);
                        }
                        if entry.path.is_empty() {
                            links.unnamed += 1;
                        } else {
                            links.paths.push(entry.path.to_vec());
                        }
                    }
                    Some(size)
                }
                Err(IndexError::Truncated) => None,
                Err(error) => return Err(error),
            };
            match read {
                Some(size) => break size,
                None if window.fill()? => {}
                None => return Err(IndexError::Truncated),
            }
        };
        window.skip(entry_size)?;
    }
    let mut extensions = Extensions::default();
    while !window.is_at_end()? {
        let was_split = extensions.is_split;
        let size = extensions.add(window.at_least(EXTENSION_HEADER_SIZE)?)? as usize;
        window.skip(EXTENSION_HEADER_SIZE)?;
        if extensions.is_split && !was_split {
            // The extension starts with the id of the shared index.
            let id = window.at_least(id_len)?.get(..id_len).filter(|_| size >= id_len);
            let id = id.and_then(ObjectId::from_bytes).ok_or(IndexError::Truncated)?;
            links.shared = (!id.is_null()).then(|| format!("sharedindex.{id}"));
        }
        window.skip(size)?;
    }
    Ok(links)
}

/// A part of a file that moves forward. No entry is larger than its buffer.
struct Window<R> {
    reader: R,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Window<R> {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Reads more bytes; returns `false` at the end of the file.
    fn fill(&mut self) -> Result<bool, IndexError> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let free = self.bytes.get_mut(self.end..).unwrap_or_default();
        let count = self.reader.read(free).map_err(|_| IndexError::Truncated)?;
        self.end += count;
        Ok(count > 0)
    }

    fn at_least(&mut self, count: usize) -> Result<&[u8], IndexError> {
        while self.rest().len() < count && self.fill()? {}
        Ok(self.rest())
    }

    fn skip(&mut self, mut count: usize) -> Result<(), IndexError> {
        while self.rest().len() < count {
            count -= self.rest().len();
            self.start = self.end;
            if !self.fill()? {
                return Err(IndexError::Truncated);
            }
        }
        self.start += count;
        Ok(())
    }

    fn is_at_end(&mut self) -> Result<bool, IndexError> {
        Ok(self.rest().is_empty() && !self.fill()?)
    }
}
