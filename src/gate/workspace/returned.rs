//! Writes what a sandbox on another machine has changed into the copy of its workspace. What comes from
//! there is untrusted: no path leads out of the copy, no link is followed, and the amount is bounded.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use serde::{Deserialize, Serialize};

use super::removal_mark::mark_as_removed;
use crate::link::{Entry, EntryKind};
use crate::process::untrusted_dir::{UntrustedDir, mode_of, permissions};

/// The most that one sandbox may bring back.
const MAX_BYTES: u64 = 64 << 30;
const MAX_ENTRIES: u64 = 20_000_000;
const MAX_DEPTH: usize = 512;
/// More entries in a directory are not removed.
const MAX_LISTED: usize = 5_000_000;
/// The name of a file until it is complete.
const PART: &str = "part";

/// A directory inside, and the place outside for what changed in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnPlace {
    /// The path inside.
    #[serde(with = "crate::saved_path")]
    pub inside: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub place: PathBuf,
    /// The directory of the user under a layer, which is never written; `None` if the place has
    /// everything itself.
    #[serde(with = "crate::saved_path")]
    pub under: Option<PathBuf>,
}

/// Takes the changes of one sandbox.
pub struct ReturnedFiles {
    roots: Vec<Root>,
    /// On the same file system as the places.
    parts: UntrustedDir,
    open: Option<Part>,
    bytes: u64,
    entries: u64,
}

struct Root {
    inside: PathBuf,
    directory: UntrustedDir,
    under: Option<UntrustedDir>,
}

/// A file that is not complete.
struct Part {
    file: File,
    entry: Entry,
    left: u64,
}

impl ReturnedFiles {
    /// Opens the places. `parts` is a directory of the copy, which is made.
    pub fn open(places: &[ReturnPlace], parts: &Path) -> io::Result<Self> {
        let root = |place: &ReturnPlace| -> io::Result<Root> {
            let under = place.under.as_deref().map(UntrustedDir::open).transpose()?;
            Ok(Root { inside: place.inside.clone(), directory: UntrustedDir::open(&place.place)?, under })
        };
        fs::create_dir_all(parts)?;
        let mut roots: Vec<Root> = places.iter().map(root).collect::<io::Result<_>>()?;
        // The longest path inside that begins another one is the one that counts.
        roots.sort_by_key(|root| std::cmp::Reverse(root.inside.as_os_str().len()));
        Ok(ReturnedFiles {
            roots,
            parts: UntrustedDir::open(parts)?,
            open: None,
            bytes: MAX_BYTES,
            entries: MAX_ENTRIES,
        })
    }

    fn count(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(bytes).zip(self.entries.checked_sub(1));
        (self.bytes, self.entries) = left.ok_or_else(|| io::Error::other("the sandbox sends too much"))?;
        Ok(())
    }

    /// Takes an entry. The bytes of a file follow.
    pub fn entry(&mut self, entry: Entry) -> io::Result<()> {
        if self.open.is_some() {
            return Err(io::Error::new(ErrorKind::InvalidData, "a file is not complete"));
        }
        match &entry.kind {
            EntryKind::Directory => {
                self.count(0)?;
                let (root, path) = find(&self.roots, &entry.path)?;
                let directory = root.make_directory(path)?;
                // This user must be able to change it later.
                Ok(rustix::fs::fchmod(&directory, mode_of(entry.mode | 0o700))?)
            }
            EntryKind::Link { to } => {
                self.count(0)?;
                let (root, path) = find(&self.roots, &entry.path)?;
                let (above, name) = root.clear(path)?;
                rustix::fs::symlinkat(to, &above, name)?;
                Ok(rustix::fs::utimensat(&above, name, &times(&entry), AtFlags::SYMLINK_NOFOLLOW)?)
            }
            EntryKind::File { size } => {
                self.count(*size)?;
                let left = *size;
                self.parts.remove_file(PART)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(rustix::fs::openat(&self.parts, PART, flags, Mode::RUSR | Mode::WUSR)?);
                self.open = Some(Part { file, entry, left });
                self.finish_part()
            }
        }
    }

    /// Takes bytes of the file that came last.
    pub fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        let part = self.open.as_mut().ok_or(ErrorKind::InvalidData)?;
        part.left = part.left.checked_sub(bytes.len() as u64).ok_or(ErrorKind::InvalidData)?;
        part.file.write_all(bytes)?;
        self.finish_part()
    }

    /// Puts a complete file into its place.
    fn finish_part(&mut self) -> io::Result<()> {
        let Some(part) = self.open.take_if(|part| part.left == 0) else { return Ok(()) };
        rustix::fs::fchmod(&part.file, mode_of(part.entry.mode))?;
        rustix::fs::futimens(&part.file, &times(&part.entry))?;
        let (root, path) = find(&self.roots, &part.entry.path)?;
        let (above, name) = root.clear(path)?;
        Ok(rustix::fs::renameat(&self.parts, PART, &above, name)?)
    }

    /// Removes an entry that does not exist inside any more.
    pub fn removed(&mut self, path: &Path) -> io::Result<()> {
        self.count(0)?;
        let (root, path) = find(&self.roots, path)?;
        root.remove(path)
    }

    /// Forgets a file of which the rest does not come.
    pub fn abandon(&mut self) {
        self.open = None;
    }
}

/// Finds the place of a path inside.
fn find<'a, 'b>(roots: &'a [Root], path: &'b Path) -> io::Result<(&'a Root, &'b Path)> {
    let found = roots.iter().find_map(|root| Some((root, path.strip_prefix(&root.inside).ok()?)));
    let found = found.filter(|(_, below)| {
        let is_name = |part: &std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
        let count = below.components().count();
        (1..=MAX_DEPTH).contains(&count) && below.components().all(|part| is_name(&part))
    });
    found.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "a path that does not come back"))
}

impl Root {
    /// Makes a directory and those above it. One that takes the place of a removed directory hides
    /// everything that the user has there.
    fn make_directory(&self, path: &Path) -> io::Result<UntrustedDir> {
        let mut directory = self.directory.directory(Path::new(""))?;
        let mut under = match &self.under {
            Some(under) => Some(under.directory(Path::new(""))?),
            None => None,
        };
        for name in path.components().map(|part| part.as_os_str()) {
            let below = Path::new(name);
            let users = under.as_ref().and_then(|under| under.directory(below).ok());
            let kind = directory.stat(name).ok().map(|stat| FileType::from_raw_mode(stat.st_mode));
            if kind != Some(FileType::Directory) {
                if kind.is_some() {
                    directory.remove_file(name)?;
                }
                rustix::fs::mkdirat(&directory, name, Mode::RWXU)?;
                let made = directory.directory(below)?;
                let mode = users.as_ref().and_then(|users| rustix::fs::fstat(users).ok());
                let mode = mode.map_or(0o755, |stat| permissions(&stat));
                rustix::fs::fchmod(&made, mode_of(mode | 0o700))?;
                if let (true, Some(users)) = (kind.is_some(), &users) {
                    for (child, _) in users.entries(MAX_LISTED)? {
                        mark_as_removed(&made, &child)?;
                    }
                }
            }
            directory = directory.directory(below)?;
            under = users;
        }
        Ok(directory)
    }

    /// Makes place for an entry; returns the directory above it and its name.
    fn clear<'p>(&self, path: &'p Path) -> io::Result<(UntrustedDir, &'p OsStr)> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let above = self.make_directory(path.parent().unwrap_or(Path::new("")))?;
        remove_all(&above, name)?;
        Ok((above, name))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        // Something above it was removed or replaced, which hides it.
        let is_hidden = parent.ancestors().filter(|above| !above.as_os_str().is_empty()).any(|above| {
            self.directory.stat(above).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory)
        });
        if is_hidden {
            return Ok(());
        }
        let is_users = self.under.as_ref().is_some_and(|under| under.stat(path).is_ok());
        if !is_users && self.directory.stat(path).is_err() {
            return Ok(());
        }
        let above = self.make_directory(parent)?;
        remove_all(&above, name)?;
        if is_users { mark_as_removed(&above, name) } else { Ok(()) }
    }
}

/// Removes an entry with everything below it; does nothing if it does not exist.
fn remove_all(above: &UntrustedDir, name: &OsStr) -> io::Result<()> {
    match above.stat(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => return above.remove_file(name),
        Ok(_) => {}
    }
    let directory = above.directory(Path::new(name))?;
    for (below, _) in directory.entries(MAX_LISTED)? {
        remove_all(&directory, &below)?;
    }
    Ok(rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

fn times(entry: &Entry) -> Timestamps {
    let (seconds, nanoseconds) = entry.modified;
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds.min(999_999_999)) };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::gate::workspace::changes;
    use crate::kept_copy::{CopiedTree, CopyHow, FileTime, KeptCopy, OverlayMarks};

    struct Copy {
        _root: tempfile::TempDir,
        host: PathBuf,
        copy: KeptCopy,
        files: ReturnedFiles,
    }

    fn copy() -> io::Result<Copy> {
        let root = tempfile::tempdir()?;
        let (host, place) = (root.path().join("host"), root.path().join("copy"));
        fs::create_dir_all(host.join("d/below"))?;
        for name in ["a", "d/x", "d/below/y"] {
            fs::write(host.join(name), name)?;
        }
        fs::create_dir_all(place.join("upper"))?;
        let tree = CopiedTree { host: host.clone(), place };
        let places = [ReturnPlace { inside: "/w".into(), place: tree.upper(), under: Some(host.clone()) }];
        let files = ReturnedFiles::open(&places, &root.path().join("parts"))?;
        let copy = KeptCopy {
            id: "x".into(),
            how: CopyHow::Overlay,
            marks: OverlayMarks::User,
            workdir: host.clone(),
            trees: vec![tree],
            git_dirs: Vec::new(),
            made: FileTime::default(),
            engine: "kubernetes".into(),
            command: Vec::new(),
        };
        Ok(Copy { _root: root, host, copy, files })
    }

    fn entry(path: &str, kind: EntryKind, mode: u32) -> Entry {
        Entry { path: path.into(), kind, mode, modified: (981_173_106, 5) }
    }

    impl Copy {
        fn file(&mut self, path: &str, content: &str) -> io::Result<()> {
            let kind = EntryKind::File { size: content.len() as u64 };
            self.files.entry(entry(path, kind, 0o644))?;
            if content.is_empty() { Ok(()) } else { self.files.content(content.as_bytes()) }
        }

        /// Lists what differs, as `A path`, `M path` or `D path`.
        fn changes(&self) -> io::Result<Vec<String>> {
            let listed = changes::list(&self.copy)?.list.into_iter().map(|change| {
                let letter = match (&change.host, &change.new) {
                    (None, _) => 'A',
                    (_, None) => 'D',
                    _ => 'M',
                };
                format!("{letter} {}", change.path.display())
            });
            Ok(listed.collect())
        }
    }

    #[test]
    fn changed_new_and_removed_files_are_listed_as_those_of_an_overlay() -> io::Result<()> {
        let mut copy = copy()?;
        copy.file("/w/a", "new")?;
        copy.file("/w/n/deep/file", "")?;
        copy.files.entry(entry("/w/link", EntryKind::Link { to: "/etc/passwd".into() }, 0o777))?;
        copy.files.removed(Path::new("/w/d/x"))?;
        assert_eq!(copy.changes()?, ["M a", "D d/x", "A link", "A n", "A n/deep", "A n/deep/file"]);
        let upper = copy.copy.trees[0].upper();
        let meta = fs::metadata(upper.join("a"))?;
        assert_eq!((meta.permissions().mode() & 0o777, meta.mtime(), meta.mtime_nsec()), (0o644, 981_173_106, 5));
        assert_eq!(fs::read(copy.host.join("a"))?, b"a", "the user's file is not touched");
        Ok(())
    }

    #[test]
    fn a_removed_directory_that_is_made_again_has_only_what_is_new() -> io::Result<()> {
        let mut copy = copy()?;
        copy.files.removed(Path::new("/w/d"))?;
        copy.files.removed(Path::new("/w/d/x"))?;
        assert_eq!(copy.changes()?, ["D d", "D d/below", "D d/below/y", "D d/x"]);
        copy.files.entry(entry("/w/d", EntryKind::Directory, 0o755))?;
        copy.file("/w/d/z", "z")?;
        assert_eq!(copy.changes()?, ["D d/below", "D d/below/y", "D d/x", "A d/z"]);
        copy.file("/w/d/x", "again")?;
        copy.files.removed(Path::new("/w/d/z"))?;
        assert_eq!(copy.changes()?, ["D d/below", "D d/below/y", "M d/x"]);
        Ok(())
    }

    #[test]
    fn files_take_the_place_of_directories_and_the_other_way_round() -> io::Result<()> {
        let mut copy = copy()?;
        copy.file("/w/d", "file")?;
        copy.files.removed(Path::new("/w/d/below/y"))?;
        copy.files.entry(entry("/w/a", EntryKind::Directory, 0o500))?;
        copy.file("/w/a/in", "")?;
        assert_eq!(copy.changes()?, ["M a", "A a/in", "M d", "D d/below", "D d/below/y", "D d/x"]);
        copy.files.entry(entry("/w/d", EntryKind::Directory, 0o755))?;
        copy.file("/w/d/x", "x")?;
        assert!(copy.changes()?.contains(&"D d/below".to_owned()), "{:?}", copy.changes()?);
        Ok(())
    }

    #[test]
    fn no_path_leads_out_of_the_copy() -> io::Result<()> {
        let mut copy = copy()?;
        let outside = tempfile::tempdir()?;
        for path in ["/w/../x", "/w", "/etc/passwd", "w/x", "/w2/x", "", "/w/d/../../x"] {
            assert!(copy.file(path, "x").is_err(), "{path}");
            copy.files.abandon();
            assert!(copy.files.removed(Path::new(path)).is_err(), "{path}");
        }
        copy.files.entry(entry("/w/way", EntryKind::Link { to: outside.path().into() }, 0o777))?;
        copy.file("/w/way/file", "x")?;
        assert_eq!(fs::read_dir(outside.path())?.count(), 0, "the link is replaced by a directory");
        symlink(outside.path(), copy.host.join("out"))?;
        copy.file("/w/out/file", "x")?;
        copy.files.removed(Path::new("/w/out/other"))?;
        assert_eq!(fs::read_dir(outside.path())?.count(), 0);
        Ok(())
    }

    #[test]
    fn more_bytes_than_announced_are_refused() -> io::Result<()> {
        let mut copy = copy()?;
        copy.files.entry(entry("/w/n", EntryKind::File { size: 3 }, 0o644))?;
        assert!(copy.files.content(b"1234").is_err());
        assert!(copy.files.entry(entry("/w/m", EntryKind::Directory, 0o755)).is_err(), "the file is not complete");
        copy.files.abandon();
        assert!(copy.files.content(b"1").is_err(), "of no file");
        assert!(copy.files.entry(entry("/w/n", EntryKind::File { size: u64::MAX }, 0o644)).is_err());
        assert_eq!(copy.changes()?, Vec::<String>::new());
        Ok(())
    }
}
