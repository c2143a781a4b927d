//! Keeps the contents of small files of the user in one file, to which is only appended: a file for each
//! would take a block of the file system. What no record names, because a launcher was killed, is never
//! read.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::untrusted;

/// The file, in the directory of the copy.
const FILE: &str = "bases.data";
/// A file that is larger is not kept.
pub const MAX_CONTENT: u64 = 256 << 10;
/// All that is kept. With its record, a copy takes less than 1 MB more than what changed.
const MAX_ALL: u64 = 512 << 10;

/// Where a content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    offset: u64,
    length: u64,
}

/// The contents that a copy keeps.
pub struct KeptContents {
    path: PathBuf,
}

impl KeptContents {
    /// Takes the directory of the copy.
    pub fn in_directory(directory: &Path) -> Self {
        KeptContents { path: directory.join(FILE) }
    }

    /// Tells whether a content of some bytes may be kept.
    pub fn has_room(&self, size: u64) -> bool {
        let used = self.path.symlink_metadata().map_or(0, |meta| meta.len());
        size <= MAX_CONTENT && used + size <= MAX_ALL
    }

    pub fn keep(&self, content: &[u8]) -> io::Result<Place> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = File::options().create(true).append(true).mode(0o600).custom_flags(flags).open(&self.path)?;
        let offset = file.metadata()?.len();
        file.write_all(content)?;
        Ok(Place { offset, length: content.len() as u64 })
    }

    pub fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let (file, size) = untrusted::open(&self.path, 2 * MAX_ALL)?;
        let end = place.offset.checked_add(place.length);
        if end.is_none_or(|end| end > size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut content = vec![0; usize::try_from(place.length).map_err(io::Error::other)?];
        file.read_exact_at(&mut content, place.offset)?;
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn contents_are_read_again_also_after_an_unfinished_write() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let contents = KeptContents::in_directory(directory.path());
        let one = contents.keep(b"one")?;
        fs::OpenOptions::new().append(true).open(directory.path().join(FILE))?.write_all(b"half of a con")?;
        let other = contents.keep(b"another")?;
        let empty = contents.keep(b"")?;
        assert_eq!(contents.read(one)?, b"one");
        assert_eq!(contents.read(other)?, b"another");
        assert_eq!(contents.read(empty)?, b"");
        assert!(contents.read(Place { offset: 20, length: u64::MAX }).is_err());
        assert!(contents.read(Place { offset: 20, length: 100 }).is_err());
        Ok(())
    }

    #[test]
    fn no_more_than_the_limit_is_kept() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let contents = KeptContents::in_directory(directory.path());
        assert!(!contents.has_room(MAX_CONTENT + 1));
        assert!(contents.has_room(MAX_CONTENT));
        contents.keep(&vec![b'x'; (MAX_ALL - 10) as usize])?;
        assert!(contents.has_room(10) && !contents.has_room(11));
        Ok(())
    }
}
