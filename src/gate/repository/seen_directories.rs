//! The list of directories that a search for repositories has seen, so that the next search lists
//! only those that changed.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat};

use crate::process::untrusted_dir::UntrustedDir;

/// Deeper directories are not on the list: their paths are too long.
const MAX_SEEN_DEPTH: usize = 100;
/// Starting a thread takes as long as examining some fifty directories.
const MIN_THREADED: usize = 300;

/// The identity of a directory, which changes whenever an entry is added, removed or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryStamp {
    device: u64,
    inode: u64,
    /// In seconds and nanoseconds.
    pub changed: (i64, i64),
}

impl DirectoryStamp {
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "the types differ between platforms")]
    pub fn of(stat: &Stat) -> Option<Self> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return None;
        }
        Some(DirectoryStamp {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        })
    }

    pub fn at(top: &UntrustedDir, path: &Path) -> Option<Self> {
        let stat = if path.as_os_str().is_empty() {
            rustix::fs::fstat(top)
        } else {
            rustix::fs::statat(top, path, AtFlags::SYMLINK_NOFOLLOW)
        };
        Self::of(&stat.ok()?)
    }

    /// Tells whether a later change would have another time: a file system's clock advances by some
    /// milliseconds at once.
    pub fn is_settled(self, clock: i64) -> bool {
        self.changed.0 + 2 <= clock
    }
}

/// Examines the directories of an earlier search, which takes most of the time, in several threads
/// if there are many.
pub fn stamps(top: &UntrustedDir, records: &[Record<'_>]) -> Vec<Option<DirectoryStamp>> {
    let mut paths = vec![PathBuf::new(); records.len()];
    for (number, record) in records.iter().enumerate() {
        for child in &record.children {
            // A directory comes before those in it.
            if let (Some(above), Some(name)) = (paths.get(number), records.get(*child).map(|child| child.name)) {
                let path = above.join(name);
                if let Some(place) = paths.get_mut(*child) {
                    *place = path;
                }
            }
        }
    }
    let examine = |paths: &[PathBuf]| paths.iter().map(|path| DirectoryStamp::at(top, path)).collect::<Vec<_>>();
    if paths.len() < MIN_THREADED {
        return examine(&paths);
    }
    let (one, other) = paths.split_at(paths.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| examine(other));
        let mut stamps = examine(one);
        stamps.extend(other.join().unwrap_or_default());
        stamps
    })
}

/// Begins a file with a list, and identifies the repositories that the search left out.
fn header(known: &[PathBuf]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    known.hash(&mut hasher);
    hasher.finish().to_le_bytes()
}

/// The directories that a search has seen, with their subdirectories. The kernel sets the change
/// time of a directory, so a guest cannot hide a new entry.
///
/// It is a sequence of records, each followed by those of its subdirectories in reverse order: the
/// length of the name, the name, the stamp, and the number of subdirectories. A directory with a
/// repository, or one that was changed just now, has a stamp of zeros and is always listed again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenDirectories(Vec<u8>);

pub struct Record<'a> {
    pub name: &'a OsStr,
    pub stamp: Option<DirectoryStamp>,
    pub children: Vec<usize>,
}

impl SeenDirectories {
    /// Reads the list of an earlier search; an empty one if there is none, or if that search left out
    /// other repositories than those in `known`, whose directories this one must list.
    pub fn load(file: &Path, known: &[PathBuf]) -> Self {
        let mut content = std::fs::read(file).unwrap_or_default();
        let header = header(known);
        if !content.starts_with(&header) {
            return SeenDirectories::default();
        }
        content.drain(..header.len());
        SeenDirectories(content)
    }

    /// Tells whether a search with this list is faster than one without it.
    pub fn is_useful(&self) -> bool {
        self.records().iter().any(|record| record.stamp.is_some())
    }

    pub fn is_large(&self) -> bool {
        self.0.len() > MIN_THREADED * size_of::<DirectoryStamp>()
    }

    pub fn save(&self, file: &Path, known: &[PathBuf]) -> std::io::Result<()> {
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let new = file.with_extension(crate::session_id::random_name());
        std::fs::write(&new, [&header(known)[..], &self.0].concat())?;
        std::fs::rename(new, file)
    }

    pub fn push(&mut self, depth: usize, name: &OsStr, stamp: Option<DirectoryStamp>, children: usize) {
        if depth > MAX_SEEN_DEPTH {
            return;
        }
        let (stamp, children) = if depth == MAX_SEEN_DEPTH { (None, 0) } else { (stamp, children) };
        let zeros = DirectoryStamp { device: 0, inode: 0, changed: (0, 0) };
        let DirectoryStamp { device, inode, changed } = stamp.unwrap_or(zeros);
        let length = u32::try_from(name.len()).unwrap_or(0);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(name.as_bytes());
        for number in [device, inode, changed.0.cast_unsigned(), changed.1.cast_unsigned(), children as u64] {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Returns all records; none if the list is damaged.
    pub fn records(&self) -> Vec<Record<'_>> {
        self.parse().unwrap_or_default()
    }

    fn parse(&self) -> Option<Vec<Record<'_>>> {
        let mut rest = self.0.as_slice();
        let mut records: Vec<Record<'_>> = Vec::new();
        // The directories whose subdirectories are not complete, with the number of missing ones.
        let mut open: Vec<(usize, u64)> = Vec::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            let (numbers, after) = after.split_first_chunk::<40>()?;
            rest = after;
            let number =
                |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*numbers.get(at * 8..)?.first_chunk()?)) };
            let (inode, count) = (number(1)?, number(4)?);
            let stamp = DirectoryStamp {
                device: number(0)?,
                inode,
                changed: (number(2)?.cast_signed(), number(3)?.cast_signed()),
            };
            let at = records.len();
            records.push(Record {
                name: OsStr::from_bytes(name),
                stamp: (inode != 0).then_some(stamp),
                children: Vec::new(),
            });
            if let Some((parent, missing)) = open.last_mut() {
                records.get_mut(*parent)?.children.push(at);
                *missing -= 1;
            } else if at > 0 {
                return None;
            }
            if count > 0 {
                open.push((at, count));
            }
            while open.last().is_some_and(|(_, missing)| *missing == 0) {
                open.pop();
            }
        }
        // Directories are searched from the last one to the first.
        records.iter_mut().for_each(|record| record.children.reverse());
        open.is_empty().then_some(records)
    }
}
