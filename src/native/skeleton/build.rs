//! Makes and removes skeletons in the user's directory of them.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, Mode, OFlags};

use super::LOCK;
use super::parts::{DIRECTORY_MODE, Entry};
use crate::native::root::open_place;
use crate::process::lock;
use crate::session_id::random_name;

/// Begins the name of a skeleton that is being made or removed.
const INCOMPLETE: &str = ".";

/// The directory of a user's skeletons.
pub struct Store {
    path: PathBuf,
    directory: OwnedFd,
}

impl Store {
    /// Opens the directory, which must belong to this user alone: in a directory that all users share,
    /// somebody else could have made it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&directory)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(Store { path: path.to_owned(), directory })
    }

    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(path),
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        rustix::fs::accessat(&self.directory, name, Access::EXISTS, AtFlags::empty()).is_ok()
    }

    fn lock_file(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, LOCK, flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Keeps others from removing a skeleton, whether it exists or not, as long as the file is open.
    pub fn share(&self, key: u128) -> io::Result<File> {
        let file = self.lock_file()?;
        lock::share_byte(&file, byte_of(key))?;
        Ok(file)
    }

    /// Makes a skeleton, which appears under its name when it is complete.
    pub fn make(&self, name: &str, entries: &[Entry<'_>]) -> io::Result<()> {
        let new = self.path.join(format!("{INCOMPLETE}{}", random_name()));
        DirBuilder::new().mode(DIRECTORY_MODE).create(&new)?;
        let made = fill(&new, entries).and_then(|()| fs::rename(&new, self.path.join(name)));
        if made.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        match made {
            // Another launcher has made the same.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => Ok(()),
            made => made,
        }
    }

    /// Removes skeletons that no sandbox uses, until there are no more than `most`. Returns their number.
    pub fn remove_unused(&self, most: usize) -> usize {
        let names = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let names: Vec<_> = names.filter(|name| name != LOCK).collect();
        let excess = names.len().saturating_sub(most);
        names.iter().take(excess).filter(|name| self.remove(name)).count()
    }

    fn remove(&self, name: &OsStr) -> bool {
        let Ok(file) = self.lock_file() else { return false };
        let key = name.to_str().and_then(|name| u128::from_str_radix(name, 16).ok());
        let is_unused = key.is_some_and(|key| lock::is_only_one_at(&file, byte_of(key)));
        let aside = self.path.join(format!("{INCOMPLETE}{}", random_name()));
        // Renamed first, so that none is found that is not complete.
        is_unused && fs::rename(self.path.join(name), &aside).is_ok() && fs::remove_dir_all(&aside).is_ok()
    }
}

/// Returns the byte of the lock's file that stands for a skeleton. Two that share one are both kept.
fn byte_of(key: u128) -> u32 {
    (key & 0x7fff_ffff) as u32
}

fn fill(root: &Path, entries: &[Entry<'_>]) -> io::Result<()> {
    let place = |at: &std::ffi::CStr| root.join(OsStr::from_bytes(at.to_bytes()));
    for entry in entries {
        match entry {
            Entry::Directory { at, mode } => {
                directories(&place(at))?;
                fs::set_permissions(place(at), Permissions::from_mode(*mode))?;
            }
            Entry::Empty { at } => file(&place(at), &[], 0o644)?,
            Entry::File { at, content, mode } => file(&place(at), content, *mode)?,
            Entry::Copy { at, source, stamp } => {
                let opened = open_place(source)?;
                let content = read(&opened, stamp.size())?;
                file(&place(at), &content, 0o644)?;
            }
            Entry::Link { at, to } => {
                directories_above(&place(at))?;
                symlink(OsStr::from_bytes(to.to_bytes()), place(at))?;
            }
        }
    }
    fs::set_permissions(root, Permissions::from_mode(DIRECTORY_MODE))
}

/// Reads a file that was opened without permission to read.
fn read(opened: &OwnedFd, size: u64) -> io::Result<Vec<u8>> {
    use std::os::fd::AsRawFd;
    let mut content = Vec::new();
    let file = File::open(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    // It may have grown meanwhile; then the next launch makes another copy.
    file.take(size).read_to_end(&mut content)?;
    Ok(content)
}

fn file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    directories_above(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))
}

fn directories_above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), directories)
}

/// Creates missing directories, whatever the umask is.
fn directories(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            directories_above(path)?;
            directories(path)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(path: &Path) -> io::Result<Store> {
        Store::open_or_create(&path.join("roots"))
    }

    #[test]
    fn a_skeleton_is_kept_while_it_is_used() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let store = store(directory.path())?;
        let entries = [
            Entry::File { at: c"etc/hosts", content: b"text", mode: 0o644 },
            Entry::Empty { at: c"etc/profile" },
            Entry::Directory { at: c"tmp", mode: 0o755 },
            Entry::Link { at: c"bin", to: c"usr/bin" },
        ];
        for key in [1_u128, 2] {
            let name = format!("{key:032x}");
            assert!(!store.contains(&name));
            store.make(&name, &entries)?;
            // Another launcher has made it meanwhile.
            store.make(&name, &entries)?;
            assert!(store.contains(&name));
        }
        let made = store.path.join(format!("{:032x}", 1));
        assert_eq!(fs::read(made.join("etc/hosts"))?, b"text");
        assert_eq!(fs::read_link(made.join("bin"))?, Path::new("usr/bin"));
        assert_eq!(made.join("etc").metadata()?.permissions().mode() & 0o777, 0o755);
        let used = store.share(1)?;
        assert_eq!(store.remove_unused(2), 0);
        assert_eq!(store.remove_unused(0), 1);
        assert!(store.contains(&format!("{:032x}", 1)));
        drop(used);
        // A process that another test has forked shares the lock until it starts its program.
        while store.remove_unused(0) == 0 {
            std::thread::yield_now();
        }
        assert!(!store.contains(&format!("{:032x}", 1)));
        Ok(())
    }

    #[test]
    fn a_directory_that_others_may_change_is_not_used() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("roots");
        fs::create_dir(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o770))?;
        assert_eq!(store(directory.path()).map_err(|error| error.kind()).err(), Some(ErrorKind::PermissionDenied));
        fs::rename(&path, directory.path().join("elsewhere"))?;
        fs::set_permissions(directory.path().join("elsewhere"), Permissions::from_mode(0o700))?;
        symlink(directory.path().join("elsewhere"), &path)?;
        assert!(store(directory.path()).is_err());
        Ok(())
    }
}
