//! Finds the repositories in a workspace. Follows no links, has no limit of depth, and opens
//! directories whose owner took the permission to read them away.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType};

use crate::process::untrusted_dir::UntrustedDir;

/// Below this depth directories are opened from the root again, so that the search does not use up
/// the descriptors of the process.
const MAX_OPEN_DEPTH: usize = 200;

/// Starting a thread takes as long as examining some fifty directories.
const MIN_THREADED: usize = 300;

/// A path that Git treats as a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// A directory `.git`.
    GitDir(PathBuf),
    /// A directory that Git takes for a Git directory, or nearly so, with another name.
    Bare(PathBuf),
    /// A `.git` that is a file.
    Pointer(PathBuf),
    /// A `.git` that is neither a file nor a directory.
    Odd(PathBuf),
    /// A directory that cannot be searched.
    Unreadable(PathBuf),
}

/// A directory that is still to be searched.
struct Pending {
    parent: Option<Rc<UntrustedDir>>,
    path: PathBuf,
    depth: usize,
    /// Its record in the list of an earlier search.
    seen: Option<usize>,
}

/// Searches a directory, without those in `known`. Directories that `seen` contains and that did not
/// change since are not listed again. Returns the list for the next search as well.
pub fn repositories(root: &Path, known: &[PathBuf], seen: &SeenDirectories) -> (Vec<Found>, SeenDirectories) {
    let mut found = Vec::new();
    let mut now = SeenDirectories::default();
    let Ok(top) = UntrustedDir::open(root) else { return (vec![Found::Unreadable(root.to_owned())], now) };
    let top = Rc::new(top);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let clock = i64::try_from(clock).unwrap_or(0);
    let records = seen.records();
    let stamps = stamps(&top, &records);
    let first = (!records.is_empty()).then_some(0);
    let mut open = vec![Pending { parent: None, path: PathBuf::new(), depth: 0, seen: first }];
    while let Some(Pending { parent, path, depth, seen }) = open.pop() {
        let name = path.file_name().unwrap_or_default();
        let absolute = || root.join(&path);
        if known.iter().any(|known| known.strip_prefix(root).is_ok_and(|known| known == path)) {
            now.push(name, None, 0);
            continue;
        }
        let record = seen.and_then(|number| records.get(number));
        let stamp = match seen.and_then(|number| stamps.get(number)) {
            Some(stamp) => *stamp,
            None => DirectoryStamp::of(&top, &path),
        };
        if let Some(record) = record.filter(|record| stamp.is_some() && record.stamp == stamp) {
            now.push(name, stamp, record.children.len());
            let below = record.children.iter().filter_map(|child| Some((*child, records.get(*child)?)));
            let pending = |(child, record): (usize, &Record<'_>)| Pending {
                parent: None,
                path: path.join(record.name),
                depth: depth + 1,
                seen: Some(child),
            };
            open.extend(below.map(pending));
            continue;
        }
        let opened = match (&parent, path.file_name()) {
            (Some(parent), Some(name)) => open_directory(parent, Path::new(name)),
            (None, Some(_)) => open_directory(&top, &path),
            (_, None) => top.directory(Path::new("")),
        };
        let entries = opened.and_then(|directory| Ok((directory.entries(usize::MAX)?, directory)));
        let (entries, directory) = match entries {
            Ok(read) => read,
            Err(error) => {
                now.push(name, None, 0);
                if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                    found.push(Found::Unreadable(absolute()));
                }
                continue;
            }
        };
        let has = |name: &str| entries.iter().any(|(known, _)| known == name);
        let is_bare = has("HEAD") && (has("objects") || has("refs") || has("commondir"));
        if is_bare {
            found.push(Found::Bare(absolute()));
        }
        let shared = (depth < MAX_OPEN_DEPTH).then(|| Rc::new(directory));
        let before: HashMap<&OsStr, usize> = record
            .iter()
            .flat_map(|record| &record.children)
            .filter_map(|child| Some((records.get(*child)?.name, *child)))
            .collect();
        let (mut below, mut has_repository) = (Vec::new(), is_bare);
        for (name, kind) in entries {
            if is_dot_git(&name) {
                has_repository = true;
                let place = absolute().join(&name);
                if !known.contains(&place) {
                    found.push(match kind {
                        FileType::Directory => Found::GitDir(place),
                        FileType::RegularFile => Found::Pointer(place),
                        _ => Found::Odd(place),
                    });
                }
            } else if kind == FileType::Directory {
                let seen = before.get(name.as_os_str()).copied();
                below.push(Pending { parent: shared.clone(), path: path.join(&name), depth: depth + 1, seen });
            }
        }
        now.push(name, stamp.filter(|stamp| !has_repository && stamp.is_settled(clock)), below.len());
        open.append(&mut below);
    }
    found.sort();
    (found, now)
}

/// The identity of a directory, which changes whenever an entry is added, removed or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryStamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl DirectoryStamp {
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "the types differ between platforms")]
    fn of(top: &UntrustedDir, path: &Path) -> Option<Self> {
        let stat = if path.as_os_str().is_empty() {
            rustix::fs::fstat(top)
        } else {
            rustix::fs::statat(top, path, AtFlags::SYMLINK_NOFOLLOW)
        };
        let stat = stat.ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)?;
        Some(DirectoryStamp {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        })
    }

    /// Tells whether a later change would have another time: a file system's clock advances by some
    /// milliseconds at once.
    fn is_settled(self, clock: i64) -> bool {
        self.changed.0 + 2 <= clock
    }
}

/// Examines the directories of an earlier search, which takes most of the time, in several threads
/// if there are many.
fn stamps(top: &UntrustedDir, records: &[Record<'_>]) -> Vec<Option<DirectoryStamp>> {
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
    let examine = |paths: &[PathBuf]| paths.iter().map(|path| DirectoryStamp::of(top, path)).collect::<Vec<_>>();
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

/// The directories that a search has seen, with their subdirectories. The kernel sets the change
/// time of a directory, so a guest cannot hide a new entry.
///
/// It is a sequence of records, each followed by those of its subdirectories in reverse order: the
/// length of the name, the name, the stamp, and the number of subdirectories. A directory with a
/// repository, or one that was changed just now, has a stamp of zeros and is always listed again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenDirectories(Vec<u8>);

struct Record<'a> {
    name: &'a OsStr,
    stamp: Option<DirectoryStamp>,
    children: Vec<usize>,
}

impl SeenDirectories {
    /// Reads the list of an earlier search; an empty one if there is none.
    pub fn load(file: &Path) -> Self {
        SeenDirectories(std::fs::read(file).unwrap_or_default())
    }

    /// Tells whether a search with this list is faster than one without it.
    pub fn is_useful(&self) -> bool {
        self.records().iter().any(|record| record.stamp.is_some())
    }

    pub fn is_large(&self) -> bool {
        self.0.len() > MIN_THREADED * size_of::<DirectoryStamp>()
    }

    pub fn save(&self, file: &Path) -> std::io::Result<()> {
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let new = file.with_extension(crate::session_id::random_name());
        std::fs::write(&new, &self.0)?;
        std::fs::rename(new, file)
    }

    fn push(&mut self, name: &OsStr, stamp: Option<DirectoryStamp>, children: usize) {
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
    fn records(&self) -> Vec<Record<'_>> {
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

/// Opens a directory, and grants its owner access first if necessary.
fn open_directory(parent: &UntrustedDir, path: &Path) -> std::io::Result<UntrustedDir> {
    match parent.directory(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            parent.grant_access(path)?;
            parent.directory(path)
        }
        opened => opened,
    }
}

/// File systems of macOS do not tell cases apart.
fn is_dot_git(name: &OsString) -> bool {
    if cfg!(target_os = "macos") { name.eq_ignore_ascii_case(".git") } else { name == ".git" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn repositories_are_found_at_any_depth_and_behind_closed_directories() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        // Deeper than the limit of open directories, and longer than a path may be.
        let deep = UntrustedDir::open(root)?;
        let below: PathBuf = std::iter::repeat_n("a-long-name-of-a-directory", 400).collect();
        deep.create_directory(&below.join(".git"))?;
        for path in ["known/.git", "new/.git", "closed/in/.git", "bare/objects", "bare/refs", "linked"] {
            fs::create_dir_all(root.join(path))?;
        }
        fs::write(root.join("bare/HEAD"), "")?;
        fs::create_dir(root.join("worktree"))?;
        fs::write(root.join("worktree/.git"), "gitdir: x")?;
        symlink(root.join("new"), root.join("linked/elsewhere"))?;
        symlink(root.join("new/.git"), root.join("linked/.git"))?;
        fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o311))?;
        let (found, _) = repositories(root, &[root.join("known/.git")], &SeenDirectories::default());
        let at = |path: &str| root.join(path);
        for expected in [
            Found::GitDir(at("new/.git")),
            Found::GitDir(at("closed/in/.git")),
            Found::GitDir(root.join(below).join(".git")),
            Found::Bare(at("bare")),
            Found::Pointer(at("worktree/.git")),
            Found::Odd(at("linked/.git")),
        ] {
            assert!(found.contains(&expected), "{expected:?}");
        }
        assert_eq!(found.len(), 6, "{found:?}");
        Ok(())
    }

    #[test]
    fn a_directory_that_was_seen_is_listed_again_if_it_changed() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        fs::create_dir_all(root.join("a/b"))?;
        let top = UntrustedDir::open(root)?;
        let mut seen = SeenDirectories::default();
        for (path, count) in [("", 1), ("a", 1), ("a/b", 0)] {
            // As if they had been seen some seconds later.
            let stamp = DirectoryStamp::of(&top, Path::new(path));
            seen.push(Path::new(path).file_name().unwrap_or_default(), stamp, count);
        }
        let file = root.with_extension("seen");
        seen.save(&file)?;
        let search = || repositories(root, &[], &SeenDirectories::load(&file));
        assert_eq!(search(), (Vec::new(), seen.clone()));
        // The clock of the file system must have advanced for the change to have another time.
        loop {
            fs::create_dir(root.join("a/b/.git"))?;
            if DirectoryStamp::of(&top, Path::new("a/b")) != seen.records().last().and_then(|record| record.stamp) {
                break;
            }
            fs::remove_dir(root.join("a/b/.git"))?;
        }
        assert_eq!(search().0, [Found::GitDir(root.join("a/b/.git"))]);
        fs::write(&file, b"damaged")?;
        assert_eq!(search().0, [Found::GitDir(root.join("a/b/.git"))]);
        fs::remove_file(file)
    }
}
