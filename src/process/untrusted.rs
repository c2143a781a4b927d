//! Reads files that another user or a guest may have planted: follows no link, opens no pipe or
//! device that never ends, reads nothing larger than expected.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads the text of a regular file of at most `largest` bytes.
pub fn read(path: &Path, largest: u64) -> io::Result<String> {
    text(read_bytes(path, largest)?)
}

/// Reads the text of a regular file of the user, which may be a link, of at most `largest` bytes. A
/// pipe or a device does not hang the caller.
pub fn read_linked(path: &Path, largest: u64) -> io::Result<String> {
    text(read_linked_bytes(path, largest)?)
}

/// Reads the content of such a file.
pub fn read_linked_bytes(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut content = Vec::new();
    regular(file, largest)?.0.take(largest).read_to_end(&mut content)?;
    Ok(content)
}

/// Reads the content of a regular file of at most `largest` bytes.
pub fn read_bytes(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let (file, size) = open(path, largest)?;
    let mut content = Vec::with_capacity(size.try_into().unwrap_or(0));
    // Up to its size, which saves the call that finds the end. Some file systems report no size.
    let most = if size == 0 { largest } else { size };
    file.take(most).read_to_end(&mut content)?;
    Ok(content)
}

fn text(content: Vec<u8>) -> io::Result<String> {
    String::from_utf8(content).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not valid UTF-8"))
}

/// Opens a regular file of at most `largest` bytes, and returns its size as well.
pub fn open(path: &Path, largest: u64) -> io::Result<(File, u64)> {
    regular(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?, largest)
}

fn regular(file: File, largest: u64) -> io::Result<(File, u64)> {
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !meta.is_file() || meta.len() > largest {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file of the expected size"));
    }
    Ok((file, meta.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_pipes_and_large_files_are_refused() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "text")?;
        std::os::unix::fs::symlink(at("file"), at("link"))?;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)?;
        assert_eq!(read(&at("file"), 10)?, "text");
        assert_eq!(read_linked(&at("link"), 10)?, "text");
        for (name, largest) in [("file", 3), ("link", 3), ("pipe", 10), ("missing", 10)] {
            assert!(read_linked(&at(name), largest).is_err(), "{name}");
        }
        assert!(read_linked(Path::new("/dev/zero"), 10).is_err());
        for (name, largest) in [("file", 3), ("link", 10), ("pipe", 10), ("missing", 10)] {
            assert!(read(&at(name), largest).is_err(), "{name}");
        }
        assert!(read(directory.path(), 10).is_err());
        Ok(())
    }
}
