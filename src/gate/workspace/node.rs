//! One entry of a directory that a guest may have written, examined without following a link.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use crate::kept_copy::FileTime;
use crate::process::untrusted_dir::UntrustedDir;

/// The kinds of entries that are shown and taken over; the others stay in the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Node {
    File { size: u64, mode: u32 },
    Link { target: Vec<u8> },
    Directory { mode: u32 },
    Fifo,
    Socket,
    Device,
}

/// Identifies a version of a file: any change of it changes this as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub inode: u64,
    pub size: u64,
    pub changed: FileTime,
}

impl Node {
    /// Examines an entry; `None` if it does not exist.
    pub fn at(directory: &UntrustedDir, path: &Path) -> io::Result<Option<(Node, Stat)>> {
        let stat = match directory.stat(path) {
            Ok(stat) => stat,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mode = permissions(&stat);
        let node = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Node::File { size: u64::try_from(stat.st_size).unwrap_or(0), mode },
            FileType::Directory => Node::Directory { mode },
            FileType::Symlink => match read_link(directory, path) {
                Ok(target) => Node::Link { target },
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) => return Err(error),
            },
            FileType::Fifo => Node::Fifo,
            FileType::Socket => Node::Socket,
            _ => Node::Device,
        };
        Ok(Some((node, stat)))
    }

    pub fn is_directory(&self) -> bool {
        matches!(self, Node::Directory { .. })
    }

    /// Tells whether the entry is one of those that stay in the copy.
    pub fn is_special(&self) -> bool {
        matches!(self, Node::Fifo | Node::Socket | Node::Device)
    }

    /// Returns the word for people.
    pub fn word(&self) -> &'static str {
        match self {
            Node::File { .. } => "file",
            Node::Link { .. } => "link",
            Node::Directory { .. } => "directory",
            Node::Fifo => "pipe",
            Node::Socket => "socket",
            Node::Device => "device",
        }
    }

    /// Returns the mode as Git writes it.
    pub fn git_mode(&self) -> &'static str {
        match self {
            Node::File { mode, .. } if mode & 0o100 != 0 => "100755",
            Node::Link { .. } => "120000",
            Node::Directory { .. } => "040000",
            _ => "100644",
        }
    }
}

impl Stamp {
    #[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
    pub fn of(stat: &Stat) -> Self {
        let changed = FileTime { seconds: stat.st_ctime as i64, nanoseconds: stat.st_ctime_nsec as i64 };
        Stamp { inode: stat.st_ino as u64, size: stat.st_size as u64, changed }
    }
}

#[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
fn permissions(stat: &Stat) -> u32 {
    // Set-user-ID bits never come out.
    stat.st_mode as u32 & 0o777
}

/// Reads a link below a directory without following one on the way.
pub fn read_link(directory: &UntrustedDir, path: &Path) -> io::Result<Vec<u8>> {
    let (above, name) = split(path)?;
    let target = match above {
        Some(above) => rustix::fs::readlinkat(directory.directory(above)?, name, Vec::new()),
        None => rustix::fs::readlinkat(directory, name, Vec::new()),
    };
    Ok(target?.into_bytes())
}

/// Splits a path into the directory above and the last name.
pub fn split(path: &Path) -> io::Result<(Option<&Path>, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((path.parent().filter(|above| !above.as_os_str().is_empty()), name))
}

pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ELOOP)
}

/// Tells whether Git, on any file system, takes a name for its directory. Nothing with such a name in
/// its path comes out of a copy.
pub fn is_git_name(name: &OsStr) -> bool {
    // HFS+ ignores these characters in names.
    let ignored = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let text = String::from_utf8_lossy(name.as_bytes());
    let plain: String = text.chars().filter(|c| !ignored(c)).flat_map(char::to_lowercase).collect();
    // NTFS ignores dots and spaces at the end, and has short names and streams.
    let plain = plain.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    matches!(plain, ".git" | "git~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_file_system_takes_for_git_are_known() {
        for name in [".git", ".GIT", ".Git ", ".git...", ".git::$INDEX_ALLOCATION", "GIT~1", ".g\u{200c}it"] {
            assert!(is_git_name(OsStr::new(name)), "{name}");
        }
        for name in [".gitignore", "git", ".github", "a.git", ".gitx"] {
            assert!(!is_git_name(OsStr::new(name)), "{name}");
        }
    }
}
