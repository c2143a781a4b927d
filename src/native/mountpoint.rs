//! Creates mounts, files and links in the new root without ever following a symbolic link or
//! leaving that root, whatever a guest has left in a writable mount.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::skeleton::Part;

/// `IN_ROOT` keeps `..` and absolute names inside; `NO_SYMLINKS` refuses planted links (ELOOP).
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The new root, through which every path of the guest is reached.
pub(crate) struct Tree {
    root: OwnedFd,
    /// The file system of the directories in memory, and their number.
    memory: OwnedFd,
    memory_directories: usize,
    /// The parent directory that was used last: most mounts are siblings.
    last: Option<(CString, OwnedFd)>,
}

impl Tree {
    pub fn new(root: OwnedFd, memory: OwnedFd) -> Self {
        Self { root, memory, memory_directories: 0, last: None }
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens the directory at `path` and creates what is missing, the last part with `mode`.
    pub fn directory(&mut self, path: &CStr, mode: u32) -> Result<OwnedFd> {
        make_directory(self.root.as_fd(), path, mode)
    }

    /// Mounts a detached tree at `path`, on an existing file or directory or on a new, empty one. A
    /// new one is mounted on by name, in an open directory and without following a link; an
    /// existing one is opened first, and refused if it is a link.
    pub fn mount(&mut self, tree: BorrowedFd<'_>, path: &CStr) -> Result<()> {
        let is_directory = is_directory(tree)?;
        let (parent, name) = self.parent(path)?;
        let made = if is_directory {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))
        } else {
            let file = FileType::RegularFile;
            rustix::fs::mknodat(parent, name, file, Mode::from_raw_mode(0o644), 0)
        };
        let attached = match made {
            Ok(()) => attach_at(tree, parent, name),
            Err(Errno::EXIST) => attach(tree, look(parent, name)?.as_fd()),
            Err(errno) => Err(errno),
        };
        // The cached directory may be what was just covered.
        self.last = self.last.take().filter(|(above, _)| !above.to_bytes().starts_with(path.to_bytes()));
        attached
    }

    /// Mounts a detached tree in a place that exists, or that is created if `part` is all.
    pub fn mount_part(&mut self, tree: BorrowedFd<'_>, path: &CStr, part: Part) -> Result<()> {
        if part == Part::Whole {
            return self.mount(tree, path);
        }
        let (parent, name) = self.parent(path)?;
        attach_at(tree, parent, name)
    }

    /// Mounts an empty, writable directory in memory at `path`. All of them are in one file system, so
    /// that its size bounds them together.
    pub fn mount_memory(&mut self, path: &CStr, mode: u32, part: Part) -> Result<()> {
        self.memory_directories += 1;
        let name = CString::new(self.memory_directories.to_string()).map_err(|_| Errno::INVAL)?;
        rustix::fs::mkdirat(&self.memory, &name, Mode::from_raw_mode(mode))?;
        let directory = look(self.memory.as_fd(), &name)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = rustix::mount::open_tree(directory.as_fd(), c"", flags)?;
        self.mount_part(tree.as_fd(), path, part)
    }

    /// Creates a file. An existing one is an error, so no file of the host is overwritten.
    pub fn file(&mut self, path: &CStr, content: &[u8], mode: u32) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode))?;
        let mut rest = content;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = &rest[written..];
        }
        Ok(())
    }

    pub fn symlink(&mut self, path: &CStr, to: &CStr) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::symlinkat(to, parent, name)
    }

    /// Returns the directory above `path`, created if missing, and the last name.
    fn parent<'a>(&mut self, path: &'a CStr) -> Result<(BorrowedFd<'_>, &'a CStr)> {
        let (above, name) = split(path)?;
        let Some(above) = above else {
            return Ok((self.root.as_fd(), name));
        };
        let cached = self.last.take().filter(|(known, _)| *known == above);
        let entry = match cached {
            Some(entry) => entry,
            None => {
                let directory = make_directory(self.root.as_fd(), &above, 0o755)?;
                (above, directory)
            }
        };
        Ok((self.last.insert(entry).1.as_fd(), name))
    }
}

fn look(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), INSIDE)
}

fn make_directory(root: BorrowedFd<'_>, path: &CStr, mode: u32) -> Result<OwnedFd> {
    match look(root, path) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let (above, name) = split(path)?;
    let above = match above {
        Some(above) => Some(make_directory(root, &above, 0o755)?),
        None => None,
    };
    let parent = above.as_ref().map_or(root, AsFd::as_fd);
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => look(parent, name),
        Err(errno) => Err(errno),
    }
}

/// Splits `a/b/c` into `a/b` and `c`; a single name is in the root.
fn split(path: &CStr) -> Result<(Option<CString>, &CStr)> {
    let bytes = path.to_bytes_with_nul();
    let Some(slash) = path.to_bytes().iter().rposition(|&byte| byte == b'/') else {
        return Ok((None, path));
    };
    let above = CString::new(&bytes[..slash]).map_err(|_| Errno::INVAL)?;
    let name = CStr::from_bytes_with_nul(&bytes[slash + 1..]).map_err(|_| Errno::INVAL)?;
    Ok((Some(above), name))
}

pub(crate) fn is_directory(what: BorrowedFd<'_>) -> Result<bool> {
    let stat = rustix::fs::statat(what, c"", AtFlags::EMPTY_PATH)?;
    Ok(FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// Mounts a detached tree on an open file or directory, so that no name is looked up again.
pub(crate) fn attach(tree: BorrowedFd<'_>, place: BorrowedFd<'_>) -> Result<()> {
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", place, c"", both)
}

/// Mounts a detached tree on a name in a directory, without following a link.
pub(crate) fn attach_at(tree: BorrowedFd<'_>, place: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", place, name, flags)
}
