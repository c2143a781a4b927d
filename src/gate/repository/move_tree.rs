//! Moves directories between a workspace, which a guest of another sandbox may change, and the
//! session's directory. Renames where both are on one file system, otherwise copies regular files,
//! directories and links.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::process::untrusted_dir::{UntrustedDir, mode_of, permissions};

/// Moves an entry of `parent` to a path that does not exist yet.
pub fn move_out(parent: &UntrustedDir, name: &Path, to: &Path) -> io::Result<()> {
    if let Some(above) = to.parent() {
        fs::create_dir_all(above)?;
    }
    match rustix::fs::renameat(parent, name, CWD, to) {
        Err(Errno::XDEV) => {
            copy(parent, name, to)?;
            remove(parent, name)
        }
        other => Ok(other?),
    }
}

/// Copies an entry of `parent` with everything below it.
pub fn copy(parent: &UntrustedDir, name: &Path, to: &Path) -> io::Result<()> {
    let stat = parent.stat(name)?;
    let mode = permissions(&stat);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let directory = parent.directory(name)?;
            DirBuilder::new().mode(mode | 0o700).create(to)?;
            for (name, _) in directory.entries(usize::MAX)? {
                copy(&directory, Path::new(&name), &to.join(&name))?;
            }
        }
        FileType::RegularFile => {
            let Some(mut from) = parent.file(name)? else { return Ok(()) };
            let mut to = OpenOptions::new().write(true).create_new(true).mode(mode).open(to)?;
            io::copy(&mut from, &mut to)?;
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
            rustix::fs::symlinkat(&target, CWD, to)?;
        }
        _ => {}
    }
    Ok(())
}

/// Moves a path of the session to an entry of `parent` that does not exist yet.
pub fn move_in(from: &Path, parent: &UntrustedDir, name: &Path) -> io::Result<()> {
    if parent.stat(name).is_ok() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match rustix::fs::renameat(CWD, from, parent, name) {
        Err(Errno::XDEV) => {
            copy_in(from, parent, name)?;
            let is_directory = from.symlink_metadata()?.is_dir();
            if is_directory { fs::remove_dir_all(from) } else { fs::remove_file(from) }
        }
        other => Ok(other?),
    }
}

fn copy_in(from: &Path, parent: &UntrustedDir, name: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let meta = from.symlink_metadata()?;
    let mode = mode_of(meta.permissions().mode());
    if meta.is_dir() {
        rustix::fs::mkdirat(parent, name, mode | Mode::RWXU)?;
        let directory = parent.directory(name)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_in(&entry.path(), &directory, Path::new(&entry.file_name()))?;
        }
    } else if meta.is_file() {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut to = File::from(rustix::fs::openat(parent, name, flags, mode)?);
        io::copy(&mut OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(from)?, &mut to)?;
    } else if meta.is_symlink() {
        rustix::fs::symlinkat(fs::read_link(from)?, parent, name)?;
    }
    Ok(())
}

/// Removes an entry with everything below it.
pub fn remove(parent: &UntrustedDir, name: &Path) -> io::Result<()> {
    if FileType::from_raw_mode(parent.stat(name)?.st_mode) != FileType::Directory {
        return parent.remove_file(name);
    }
    let directory = parent.directory(name).or_else(|_| {
        parent.grant_access(name)?;
        parent.directory(name)
    })?;
    for (name, _) in directory.entries(usize::MAX)? {
        remove(&directory, Path::new(&name))?;
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}
