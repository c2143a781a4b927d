//! Unpacks the tar stream of one layer into a directory that an overlay can use as a lower one.
//! Every file is made relative to an open directory, and the kernel keeps every lookup inside the
//! layer's directory, whatever links the layer contains.
//!
//! All files belong to the user: owners, set-id bits, extended attributes and devices of the archive
//! are left out. The user can read and replace every file, and enter every directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags, mkdirat, mknodat, openat, openat2,
};
use rustix::io::Errno;

use super::tar_stream::{TarEntry, TarKind, TarStream, parts};

/// Begins the names of entries that remove something of the layers below.
const WHITEOUT: &[u8] = b".wh.";
/// Removes everything that the layers below have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other entries of this form are data of one old storage driver.
const RESERVED: &[u8] = b".wh..wh.";

const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);
/// Without links, which need the check of [`MOST_LEVELS`].
const STRAIGHT: ResolveFlags = INSIDE.union(ResolveFlags::NO_SYMLINKS);
/// Deeper directories could not be removed again, because each level needs a descriptor meanwhile.
const MOST_LEVELS: usize = 200;
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// How much the layers of one image may unpack to.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimits {
    pub bytes: u64,
    pub entries: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        // The largest published images, for machine learning, have 30 GB and a million files.
        UnpackLimits { bytes: 64 << 30, entries: 4_000_000 }
    }
}

/// Unpacks layers one after the other, within limits for all of them.
#[derive(Debug)]
pub struct Unpacker {
    left: UnpackLimits,
    limits: UnpackLimits,
    bytes: u64,
}

struct Layer {
    root: OwnedFd,
    /// The parent of the last entry: most entries are siblings.
    last: Option<(PathBuf, OwnedFd)>,
    /// Directories and their times, which later entries in them would change.
    times: HashMap<PathBuf, i64>,
}

fn refused(path: &Path, reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("`{}` {reason}", path.display()))
}

/// Adds the entry's name to an error of the system.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| match error.kind() {
        ErrorKind::InvalidData => error,
        kind => io::Error::new(kind, format!("cannot unpack `{}`: {error}", path.display())),
    }
}

impl Unpacker {
    pub fn new(limits: UnpackLimits) -> Self {
        Unpacker { left: limits, limits, bytes: 0 }
    }

    /// Returns the size of all files so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Unpacks a layer into an empty directory.
    pub fn unpack(&mut self, layer: impl Read, directory: &Path) -> io::Result<()> {
        let root = rustix::fs::open(directory, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let mut target = Layer { root, last: None, times: HashMap::new() };
        let mut tar = TarStream::new(layer);
        while let Some(entry) = tar.next()? {
            self.count(&entry)?;
            target.add(&entry, &mut tar).map_err(at(&entry.path))?;
        }
        target.set_times();
        // The digest is that of the whole stream, also of what follows the archive's end.
        io::copy(&mut tar.into_inner(), &mut io::sink())?;
        Ok(())
    }

    fn count(&mut self, entry: &TarEntry) -> io::Result<()> {
        let most =
            |what: String| io::Error::new(ErrorKind::FileTooLarge, format!("the image unpacks to more than {what}"));
        self.left.entries =
            self.left.entries.checked_sub(1).ok_or_else(|| most(format!("{} files", self.limits.entries)))?;
        self.left.bytes = self
            .left
            .bytes
            .checked_sub(entry.size)
            .ok_or_else(|| most(format!("{} bytes (at `{}`)", self.limits.bytes, entry.path.display())))?;
        self.bytes += entry.size;
        Ok(())
    }
}

impl Layer {
    fn add(&mut self, entry: &TarEntry, content: &mut impl Read) -> io::Result<()> {
        let path = parts(&entry.path).ok_or_else(|| refused(&entry.path, "leads out of the image"))?;
        if path.components().count() > MOST_LEVELS {
            return Err(refused(&path, "is too deep"));
        }
        let Some(name) = path.file_name() else {
            // The root itself.
            if entry.kind == TarKind::Directory {
                set_mode(self.root.as_fd(), entry.mode | 0o700)?;
            }
            return Ok(());
        };
        let above = path.parent().unwrap_or(Path::new(""));
        if let Some(removed) = name.as_bytes().strip_prefix(WHITEOUT) {
            return self.remove_below(&entry.path, above, name, removed);
        }
        let parent = self.directory(above)?;
        match &entry.kind {
            TarKind::Directory => {
                make_directory(&parent, name, entry.mode)?;
                self.times.insert(path.clone(), entry.modified);
                self.forget(&path);
            }
            TarKind::File => {
                self.make_way(&parent, name, &path)?;
                write_file(&parent, name, entry, content)?;
            }
            TarKind::Symlink(to) => {
                self.make_way(&parent, name, &path)?;
                rustix::fs::symlinkat(to, &parent, name)?;
                let _ = set_time(&parent, name, entry.modified);
            }
            TarKind::HardLink(to) => {
                let to = parts(to).ok_or_else(|| refused(&entry.path, "is a link out of the image"))?;
                let source_name = to.file_name().ok_or_else(|| refused(&entry.path, "is a link to the root"))?;
                let missing = || refused(&entry.path, "is a link to a file that the layer does not have");
                let source = self.existing_directory(to.parent().unwrap_or(Path::new(""))).map_err(|_| missing())?;
                let stat =
                    rustix::fs::statat(&source, source_name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| missing())?;
                if FileType::from_raw_mode(stat.st_mode).is_dir() {
                    return Err(refused(&entry.path, "is a hard link to a directory"));
                }
                // A link to itself must not remove the file first.
                if to != path {
                    self.make_way(&parent, name, &path)?;
                    rustix::fs::linkat(&source, source_name, &parent, name, AtFlags::empty())?;
                }
            }
            TarKind::Fifo => {
                self.make_way(&parent, name, &path)?;
                mknodat(&parent, name, FileType::Fifo, mode(entry.mode | 0o600), 0)?;
            }
            // The sandbox has devices of its own.
            TarKind::Device => {}
        }
        self.last = Some((above.to_owned(), parent));
        Ok(())
    }

    /// Records that something of the layers below does not exist any more.
    fn remove_below(&mut self, path: &Path, above: &Path, name: &OsStr, removed: &[u8]) -> io::Result<()> {
        let parent = self.directory(above)?;
        if name.as_bytes() == OPAQUE {
            make_opaque(&parent)?;
        } else if !name.as_bytes().starts_with(RESERVED) {
            let removed = OsStr::from_bytes(removed);
            if removed.is_empty() || removed == "." || removed == ".." {
                return Err(refused(path, "removes a directory as a whole"));
            }
            match mknodat(&parent, removed, FileType::CharacterDevice, Mode::empty(), 0) {
                Ok(()) => {}
                // This layer has it as well, and covers that of the layers below.
                Err(Errno::EXIST) => {
                    if let Ok(directory) = openat(&parent, removed, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
                        make_opaque(&directory)?;
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        self.last = Some((above.to_owned(), parent));
        Ok(())
    }

    /// Opens a directory of the layer, and makes the missing ones above it.
    fn directory(&mut self, path: &Path) -> io::Result<OwnedFd> {
        if let Some((_, last)) = self.last.take_if(|(known, _)| known == path) {
            return Ok(last);
        }
        match self.existing_directory(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            opened => return opened,
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::NotADirectory.into());
        };
        let parent = self.directory(above)?;
        make_directory(&parent, name, 0o755)?;
        Ok(openat(&parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
    }

    /// Opens a directory of the layer. Links of the layer are followed inside it.
    fn existing_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match openat2(&self.root, path, DIRECTORY, Mode::empty(), STRAIGHT) {
            Err(Errno::LOOP) => {}
            opened => return Ok(opened?),
        }
        let directory = openat2(&self.root, path, DIRECTORY, Mode::empty(), INSIDE)?;
        let levels = |file: &OwnedFd| -> io::Result<usize> {
            let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            Ok(real.components().count())
        };
        if levels(&directory)?.saturating_sub(levels(&self.root)?) > MOST_LEVELS {
            return Err(refused(path, "is too deep"));
        }
        Ok(directory)
    }

    /// Removes what an earlier entry of the same name has made.
    fn make_way(&mut self, parent: &OwnedFd, name: &OsStr, path: &Path) -> io::Result<()> {
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {
                self.forget(path);
                remove_directory(parent, name)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Forgets an open directory and times that do not apply any more.
    fn forget(&mut self, path: &Path) {
        self.last = self.last.take().filter(|(known, _)| !known.starts_with(path));
    }

    fn set_times(&self) {
        for (path, modified) in &self.times {
            if let (Some(above), Some(name)) = (path.parent(), path.file_name())
                && let Ok(parent) = self.existing_directory(above)
            {
                let _ = set_time(&parent, name, *modified);
            }
        }
    }
}

/// Creates a directory, or sets the mode of one that exists. Anything else of the name is replaced.
fn make_directory(parent: &OwnedFd, name: &OsStr, permissions: u32) -> io::Result<()> {
    // A directory that replaces a whiteout of this layer shows nothing of the layers below.
    let mut was_removed = false;
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !kind.is_dir() {
                was_removed = kind.is_char_device();
                rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
                mkdirat(parent, name, Mode::RWXU)?;
            }
        }
        Err(errno) => return Err(errno.into()),
    }
    let directory = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    if was_removed {
        make_opaque(&directory)?;
    }
    set_mode(directory.as_fd(), permissions | 0o700)
}

/// Marks a directory for overlays of ordinary users.
fn make_opaque(directory: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(directory, c"user.overlay.opaque", b"y", XattrFlags::empty())?)
}

fn write_file(parent: &OwnedFd, name: &OsStr, entry: &TarEntry, content: &mut impl Read) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?);
    let mut buffer = [0; 64 * 1024];
    loop {
        match content.read(&mut buffer)? {
            0 => break,
            count => file.write_all(&buffer[..count])?,
        }
    }
    set_mode(file.as_fd(), entry.mode | 0o600)?;
    let _ = rustix::fs::futimens(&file, &times(entry.modified));
    Ok(())
}

/// Without the set-id bits. The sticky bit of `/tmp` stays.
fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & 0o1777)
}

fn set_mode(file: rustix::fd::BorrowedFd<'_>, permissions: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, mode(permissions))?)
}

fn times(modified: i64) -> Timestamps {
    let time = Timespec { tv_sec: modified, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn set_time(parent: &OwnedFd, name: &OsStr, modified: i64) -> rustix::io::Result<()> {
    rustix::fs::utimensat(parent, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW)
}

/// Removes a directory of the layer with its content, following no link.
fn remove_directory(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let directory = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::ISDIR | Errno::PERM) => remove_directory(&directory, name)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
