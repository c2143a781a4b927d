//! Copies the files of a workspace where the kernel cannot lay a copy over it. Files share their blocks
//! with the original if the file system can do that.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat, Timespec, Timestamps};

use crate::process::untrusted_dir::UntrustedDir;

/// More entries than this are not copied: the copy would take hours and fill the disk.
const MAX_ENTRIES: usize = 5_000_000;
const MAX_DEPTH: usize = 512;

/// Copies the directory `from` to the empty directory `to`. Git directories in `left_out` are made as
/// empty directories. Sockets and devices are left out.
pub fn copy_files(from: &Path, to: &Path, left_out: &[PathBuf]) -> io::Result<()> {
    let mut copy = FileCopy { left_out, links: HashMap::new(), left: MAX_ENTRIES };
    let (source, target) = (UntrustedDir::open(from)?, UntrustedDir::open(to)?);
    copy.directory(&source, &target, from, 0)
}

struct FileCopy<'a> {
    left_out: &'a [PathBuf],
    /// The copies of files with several names, by device and inode.
    links: HashMap<(u64, u64), OwnedFd>,
    left: usize,
}

impl FileCopy<'_> {
    fn directory(&mut self, from: &UntrustedDir, to: &UntrustedDir, path: &Path, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(format!("`{}` is too deep", path.display())));
        }
        for (name, kind) in from.entries(self.left)? {
            self.left = self.left.checked_sub(1).ok_or_else(|| io::Error::other("too many files"))?;
            let path = path.join(&name);
            self.entry(from, to, &name, kind, &path, depth)
                .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display())))?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: &UntrustedDir,
        to: &UntrustedDir,
        name: &OsStr,
        kind: FileType,
        path: &Path,
        depth: usize,
    ) -> io::Result<()> {
        let stat = match rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Somebody has removed it meanwhile.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match kind {
            FileType::Directory => {
                rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                let target = to.directory(Path::new(name))?;
                if !self.left_out.iter().any(|left_out| left_out == path) {
                    self.directory(&from.directory(Path::new(name))?, &target, path, depth + 1)?;
                }
                rustix::fs::fchmod(&target, mode(&stat))?;
                rustix::fs::futimens(&target, &times(&stat))?;
                Ok(())
            }
            FileType::RegularFile => self.file(from, to, name, &stat),
            FileType::Symlink => {
                let link = rustix::fs::readlinkat(from, name, Vec::new())?;
                rustix::fs::symlinkat(link, to, name)?;
                Ok(rustix::fs::utimensat(to, name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)?)
            }
            #[cfg(target_os = "linux")]
            FileType::Fifo => Ok(rustix::fs::mknodat(to, name, FileType::Fifo, mode(&stat), 0)?),
            _ => Ok(()),
        }
    }

    fn file(&mut self, from: &UntrustedDir, to: &UntrustedDir, name: &OsStr, stat: &Stat) -> io::Result<()> {
        #[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
        let key = (stat.st_dev as u64, stat.st_ino as u64);
        if let Some(first) = self.links.get(&key).filter(|_| stat.st_nlink > 1)
            && link_to(first, to, name).is_ok()
        {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut source = File::from(rustix::fs::openat(from, name, flags, Mode::empty())?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut target = File::from(rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
        copy_content(&mut source, &mut target)?;
        rustix::fs::fchmod(&target, mode(stat))?;
        rustix::fs::futimens(&target, &times(stat))?;
        if stat.st_nlink > 1 && self.links.len() < 1000 {
            self.links.insert(key, target.into());
        }
        Ok(())
    }
}

/// Copies the content of a file, as a reference to the same blocks if the file system can do that.
pub fn copy_content(from: &mut File, to: &mut File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if rustix::fs::ioctl_ficlone(&*to, &*from).is_ok() {
        return Ok(());
    }
    io::copy(from, to).map(drop)
}

#[cfg(target_os = "linux")]
fn link_to(file: &OwnedFd, to: &UntrustedDir, name: &OsStr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(rustix::fs::CWD, path, to, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link_to(_: &OwnedFd, _: &UntrustedDir, _: &OsStr) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
pub fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode((stat.st_mode & 0o777) as RawMode)
}

#[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
pub fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps {
        last_access: time(stat.st_atime as _, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime as _, stat.st_mtime_nsec as _),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn modes_times_links_and_odd_files_are_copied() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("sub/.git/objects"))?;
        fs::create_dir(&to)?;
        fs::write(from.join("sub/file\nname"), "content")?;
        fs::set_permissions(from.join("sub/file\nname"), fs::Permissions::from_mode(0o751))?;
        fs::hard_link(from.join("sub/file\nname"), from.join("same"))?;
        symlink("/nowhere", from.join("link"))?;
        rustix::fs::mknodat(rustix::fs::CWD, from.join("pipe"), FileType::Fifo, Mode::RWXU, 0)?;
        std::os::unix::net::UnixListener::bind(from.join("socket"))?;
        copy_files(&from, &to, &[from.join("sub/.git")])?;
        let meta = fs::metadata(to.join("sub/file\nname"))?;
        assert_eq!(fs::read(to.join("same"))?, b"content");
        assert_eq!((meta.permissions().mode() & 0o777, meta.nlink()), (0o751, 2));
        assert_eq!(meta.mtime_nsec(), fs::metadata(from.join("same"))?.mtime_nsec());
        assert_eq!(fs::read_link(to.join("link"))?, Path::new("/nowhere"));
        assert!(to.join("pipe").exists() && !to.join("socket").exists());
        assert_eq!(fs::read_dir(to.join("sub/.git"))?.count(), 0);
        Ok(())
    }
}
