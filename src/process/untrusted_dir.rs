//! A directory that a guest may change at any time. Every access starts at its descriptor and
//! follows no link, in no component of the path, so nothing outside of it is read or written.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// Ends the name of a file that Git, or sandpen in its place, is about to rename over another.
const LOCK: &str = ".lock";
/// Holds the entries of most directories.
#[cfg(target_os = "linux")]
const LIST_BUFFER: usize = 8 << 10;

#[derive(Debug)]
pub struct UntrustedDir {
    fd: OwnedFd,
}

impl UntrustedDir {
    /// Opens a directory. Links above it are followed; itself it must not be a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        Ok(UntrustedDir { fd })
    }

    /// Opens a directory by a path from the root of the file system in which nothing is a link. A
    /// guest that may write a directory above cannot lead elsewhere.
    pub fn open_without_links(path: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            // Directories above need not be readable.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut above = rustix::fs::open("/", flags, Mode::empty())?;
            let names = names(path.strip_prefix("/").map_err(|_| ErrorKind::InvalidInput)?)?;
            let Some((last, between)) = names.split_last() else { return Self::open(path) };
            for name in between {
                above = rustix::fs::openat(&above, *name, flags, Mode::empty())?;
            }
            Ok(UntrustedDir { fd: rustix::fs::openat(&above, *last, DIRECTORY, Mode::empty())? })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let real = path.canonicalize()?;
            if real == path { Self::open(path) } else { Err(ErrorKind::NotADirectory.into()) }
        }
    }

    /// Opens a directory below another one that is not a link itself; no link between them is
    /// followed.
    pub fn open_below(root: &Path, path: &Path) -> io::Result<Self> {
        let below = path.strip_prefix(root).map_err(|_| ErrorKind::InvalidInput)?;
        Self::open(root)?.directory(below)
    }

    /// Opens a directory below this one.
    pub fn directory(&self, path: &Path) -> io::Result<Self> {
        let mut opened: Option<OwnedFd> = None;
        for name in names(path)? {
            let above = opened.as_ref().unwrap_or(&self.fd);
            opened = Some(rustix::fs::openat(above, name, DIRECTORY, Mode::empty())?);
        }
        let fd = match opened {
            Some(fd) => fd,
            None => rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
        };
        Ok(UntrustedDir { fd })
    }

    /// Opens a directory below this one, and grants its owner access first if necessary.
    pub fn open_granted(&self, path: &Path) -> io::Result<Self> {
        match self.directory(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.grant_access(path)?;
                self.directory(path)
            }
            opened => opened,
        }
    }

    /// Opens the directory below this one that contains `path`, and calls `access` with it and the
    /// last name.
    fn at_parent<T>(&self, path: &Path, access: impl FnOnce(BorrowedFd<'_>, &OsStr) -> io::Result<T>) -> io::Result<T> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => access(self.directory(above)?.as_fd(), name),
            _ => access(self.as_fd(), name),
        }
    }

    /// Opens a regular file below this directory; `None` if there is none.
    pub fn file(&self, path: &Path) -> io::Result<Option<File>> {
        let opened = self.at_parent(path, |parent, name| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::empty())?))
        });
        let file = match opened {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a regular file"));
        }
        Ok(Some(file))
    }

    /// Reads a regular file of at most `largest` bytes; `None` if there is none.
    pub fn read(&self, path: impl AsRef<Path>, largest: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.file(path.as_ref())? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(largest + 1).read_to_end(&mut content)?;
        if content.len() as u64 > largest {
            return Err(io::Error::new(ErrorKind::FileTooLarge, "larger than expected"));
        }
        Ok(Some(content))
    }

    /// Lists the entries of this directory with their types, in no order. Fails if there are more
    /// than `most`.
    pub fn entries(&self, most: usize) -> io::Result<Vec<(OsString, FileType)>> {
        let mut found = Vec::new();
        self.for_each_entry(|name, kind| {
            if found.len() == most {
                return Err(io::Error::new(ErrorKind::FileTooLarge, "too many entries"));
            }
            found.push((name.to_owned(), kind));
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `visit` with the name and the type of each entry, in no order, until it fails. It may
    /// remove the entry.
    pub fn for_each_entry(&self, mut visit: impl FnMut(&OsStr, FileType) -> io::Result<()>) -> io::Result<()> {
        let mut add = |name: &CStr, kind: FileType| {
            let name = OsStr::from_bytes(name.to_bytes());
            if name == "." || name == ".." {
                return Ok(());
            }
            // Some file systems do not report the type.
            let kind = match kind {
                FileType::Unknown => FileType::from_raw_mode(self.stat(name)?.st_mode),
                kind => kind,
            };
            visit(name, kind)
        };
        #[cfg(target_os = "linux")]
        {
            rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::Start(0))?;
            let mut buffer = [std::mem::MaybeUninit::uninit(); LIST_BUFFER];
            let mut list = rustix::fs::RawDir::new(&self.fd, &mut buffer);
            while let Some(entry) = list.next() {
                let entry = entry?;
                add(entry.file_name(), entry.file_type())?;
            }
        }
        #[cfg(not(target_os = "linux"))]
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            add(entry.file_name(), entry.file_type())?;
        }
        Ok(())
    }

    /// Examines an entry below this directory without following a link.
    pub fn stat(&self, path: impl AsRef<Path>) -> io::Result<Stat> {
        self.at_parent(path.as_ref(), |parent, name| Ok(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Returns the time in seconds at which an entry was created, which nothing can change; `None` if
    /// the file system does not record it.
    pub fn time_of_creation(&self, name: impl AsRef<Path>) -> Option<i64> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::StatxFlags;
            let (name, wanted) = (name.as_ref(), StatxFlags::BTIME);
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
            let stat = rustix::fs::statx(&self.fd, name, flags, wanted).ok()?;
            StatxFlags::from_bits_retain(stat.stx_mask).contains(wanted).then_some(stat.stx_btime.tv_sec)
        }
        #[cfg(target_os = "macos")]
        {
            let name = name.as_ref();
            let stat =
                if name.as_os_str().is_empty() { rustix::fs::fstat(&self.fd).ok() } else { self.stat(name).ok() };
            stat.map(|stat| stat.st_birthtime)
        }
        #[cfg(not(any(target_os = "linux", target_os = "macos")))]
        None
    }

    /// Creates or replaces a file as Git does: under the name with `.lock` first, which fails if a
    /// process in the sandbox is about to do the same. Calls `check` once the lock is held; if it
    /// returns `false`, nothing changes.
    pub fn replace(&self, path: impl AsRef<Path>, content: &[u8], check: impl FnOnce() -> bool) -> io::Result<bool> {
        self.at_parent(path.as_ref(), |parent, name| {
            let mut lock = name.to_owned();
            lock.push(LOCK);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::openat(parent, &lock, flags, Mode::from_raw_mode(0o644))?);
            let replaced = || -> io::Result<bool> {
                if !check() {
                    return Ok(false);
                }
                file.write_all(content)?;
                rustix::fs::renameat(parent, &lock, parent, name)?;
                Ok(true)
            }();
            if !matches!(replaced, Ok(true)) {
                let _ = rustix::fs::unlinkat(parent, &lock, AtFlags::empty());
            }
            replaced
        })
    }

    /// Creates a directory, and those above it.
    pub fn create_directory(&self, path: &Path) -> io::Result<Self> {
        let mut fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
        for name in names(path)? {
            match rustix::fs::mkdirat(&fd, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            fd = rustix::fs::openat(&fd, name, DIRECTORY, Mode::empty())?;
        }
        Ok(UntrustedDir { fd })
    }

    /// Sets the permissions of a regular file below this directory.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let file = self.file(path.as_ref())?.ok_or(ErrorKind::NotFound)?;
        Ok(rustix::fs::fchmod(file, mode_of(mode))?)
    }

    /// Grants the owner of this directory all access to it.
    pub fn grant_own_access(&self) -> io::Result<()> {
        let mode = rustix::fs::fstat(&self.fd)?;
        Ok(rustix::fs::fchmod(&self.fd, mode_of(permissions(&mode) | 0o700))?)
    }

    /// Grants the owner of a directory below this one all access to it.
    pub fn grant_access(&self, path: &Path) -> io::Result<()> {
        self.at_parent(path, |parent, name| {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(ErrorKind::NotADirectory.into());
            }
            // `fchmodat` follows links; with a descriptor from O_PATH nothing can be exchanged meanwhile.
            #[cfg(target_os = "linux")]
            {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
                rustix::fs::chmod(path, Mode::from_raw_mode(stat.st_mode & 0o777 | 0o700))?;
            }
            #[cfg(not(target_os = "linux"))]
            rustix::fs::chmodat(
                parent,
                name,
                Mode::from_raw_mode(stat.st_mode & 0o777 | 0o700),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
            Ok(())
        })
    }

    /// Removes a file or a link; does nothing if it does not exist.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let removed =
            self.at_parent(path.as_ref(), |parent, name| Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?));
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.at_parent(path.as_ref(), |parent, name| Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?))
    }
}

impl AsFd for UntrustedDir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the permissions of an entry.
#[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
pub fn permissions(stat: &Stat) -> u32 {
    stat.st_mode as u32 & 0o777
}

/// Makes a mode of permissions.
#[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
pub fn mode_of(permissions: u32) -> Mode {
    Mode::from_raw_mode((permissions & 0o777) as RawMode)
}

/// Returns whether the host is the cause of an error, for example because it has no descriptors
/// left. All other errors, such as a missing permission or a link, can be made by the guest.
pub fn is_host_failure(error: &io::Error) -> bool {
    let causes = [libc::EIO, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| causes.contains(&code))
}

/// Splits a path into names, and refuses one that leads upwards or starts at the root.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let name = |component| match component {
        Component::Normal(name) => Ok(name),
        _ => Err(io::Error::from(ErrorKind::InvalidInput)),
    };
    path.components().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_paths_upwards_are_refused() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("in/real"))?;
        fs::write(at("in/real/file"), "text")?;
        fs::write(at("outside"), "secret")?;
        symlink(at("outside"), at("in/link"))?;
        symlink(at("in/real"), at("in/way"))?;
        let dir = UntrustedDir::open(&at("in"))?;
        assert_eq!(dir.read("real/file", 4)?.as_deref(), Some(&b"text"[..]));
        assert_eq!(dir.read("real/none", 4)?, None);
        assert_eq!(dir.read("real/file/below", 4)?, None);
        for path in ["link", "../outside", "/etc/passwd"] {
            assert!(dir.read(path, 100).is_err(), "{path}");
        }
        assert!(dir.read("real/file", 3).is_err(), "too large");
        assert!(!matches!(dir.read("way/file", 100), Ok(Some(_))), "a link on the way");
        assert!(UntrustedDir::open(&at("in/way")).is_err());
        fs::create_dir(at("in/real/below"))?;
        let real = |name: &str| directory.path().canonicalize().map(|path| path.join(name));
        assert!(UntrustedDir::open_without_links(&real("in/real/below")?).is_ok());
        assert!(UntrustedDir::open_without_links(&real("in/way/below")?).is_err());
        assert!(dir.entries(2).is_err() && dir.entries(3)?.len() == 3);
        Ok(())
    }

    #[test]
    fn a_file_is_replaced_only_under_its_lock() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        fs::write(at("kept"), "old")?;
        symlink(at("kept"), at("link"))?;
        let dir = UntrustedDir::open(directory.path())?;
        assert!(dir.replace("new/below", b"x", || true).is_err(), "no directory");
        assert!(!dir.replace("file", b"x", || false)?);
        assert!(!at("file").exists() && !at("file.lock").exists());
        assert!(dir.replace("link", b"new", || true)?);
        assert_eq!(fs::read_to_string(at("kept"))?, "old", "the link is replaced, not followed");
        fs::write(at("link.lock"), "")?;
        assert!(dir.replace("link", b"x", || true).is_err());
        Ok(())
    }
}
