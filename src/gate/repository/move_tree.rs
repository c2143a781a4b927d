//! Moves directories between a workspace, which a guest of another sandbox may change, and the
//! session's directory. Renames where both are on one file system, otherwise copies regular files,
//! directories and links. Holes of files stay holes.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::process::bounded_work;
use crate::process::remove_tree::{remove_entry, remove_tree};
use crate::process::untrusted_dir::{UntrustedDir, mode_of, permissions};
use crate::session_id::random_name;

/// A copy to another file system has at most this many bytes, and at most half of those that are
/// free there: hard links can make a copy larger than the original.
const MAX_COPY: u64 = 16 << 30;
/// So many bytes stay free on the other file system, unless it is small.
const MIN_FREE: u64 = 1 << 30;
/// Directories and empty files use space as well.
const ENTRY_SIZE: u64 = 4096;
const BUFFER: usize = 1 << 16;

/// Moves an entry of `parent` to a path that does not exist yet. If it fails, the entry is still in
/// its place, or a complete copy is at the path.
pub fn move_out(parent: &UntrustedDir, name: &Path, to: &Path) -> io::Result<()> {
    if let Some(above) = to.parent() {
        fs::create_dir_all(above)?;
    }
    match rustix::fs::renameat(parent, name, CWD, to) {
        Err(Errno::XDEV) => {
            let part = with_suffix(to, ".part");
            let copied = copy(parent, name, &part, &mut copy_limit(to)?).and_then(|()| fs::rename(&part, to));
            if copied.is_err() {
                let _ = remove_tree(&part);
            }
            copied?;
            remove_entry(parent, name)
        }
        other => Ok(other?),
    }
}

/// Returns the number of bytes that may be copied to a path.
fn copy_limit(to: &Path) -> io::Result<u64> {
    let above = to.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    let space = rustix::fs::statvfs(above)?;
    let (total, free) = (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize);
    Ok((free.saturating_sub(MIN_FREE.min(total / 20)) / 2).min(MAX_COPY))
}

/// Copies an entry of `parent` with everything below it.
fn copy(parent: &UntrustedDir, name: &Path, to: &Path, left: &mut u64) -> io::Result<()> {
    let stat = parent.stat(name)?;
    let mode = permissions(&stat);
    use_up(left, ENTRY_SIZE)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let directory = parent.open_granted(name)?;
            DirBuilder::new().mode(mode | 0o700).create(to)?;
            for (name, _) in directory.entries(usize::MAX)? {
                copy(&directory, Path::new(&name), &to.join(&name), left)?;
            }
        }
        FileType::RegularFile => {
            let Some(from) = parent.file(name)? else { return Ok(()) };
            let to = OpenOptions::new().write(true).create_new(true).mode(mode).open(to)?;
            copy_content(from, &to, left)?;
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
            rustix::fs::symlinkat(&target, CWD, to)?;
        }
        // Pipes and sockets have no content.
        _ => {}
    }
    Ok(())
}

/// Copies the content of a file without its holes.
fn copy_content(mut from: File, to: &File, left: &mut u64) -> io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    while let Some((start, end)) = next_data(&from, at, size)? {
        use_up(left, end - start)?;
        from.seek(SeekFrom::Start(start))?;
        at = start;
        while at < end {
            bounded_work::check()?;
            let most = usize::try_from(end - at).unwrap_or(BUFFER).min(BUFFER);
            let read = from.read(buffer.get_mut(..most).unwrap_or_default())?;
            if read == 0 {
                return Ok(());
            }
            to.write_all_at(buffer.get(..read).unwrap_or_default(), at)?;
            at += read as u64;
        }
    }
    Ok(())
}

/// Returns the next part of a file that is not a hole.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not know of holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start)).unwrap_or(size);
    Ok((start < size).then(|| (start, end.clamp(start + 1, size))))
}

/// Counts bytes before they are copied.
fn use_up(left: &mut u64, bytes: u64) -> io::Result<()> {
    bounded_work::check()?;
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| io::Error::new(ErrorKind::FileTooLarge, "too large for a copy on another file system"))?;
    Ok(())
}

/// Moves a path of the session to an entry of `parent` that does not exist yet. If it fails, nothing
/// has changed.
pub fn move_in(from: &Path, parent: &UntrustedDir, name: &Path) -> io::Result<()> {
    if parent.stat(name).is_ok() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match rustix::fs::renameat(CWD, from, parent, name) {
        Err(Errno::XDEV) => {
            let part = with_suffix(name, &format!(".{}", random_name()));
            let copied =
                copy_in(from, parent, &part).and_then(|()| Ok(rustix::fs::renameat(parent, &part, parent, name)?));
            if copied.is_err() {
                let _ = remove_entry(parent, &part);
            }
            copied?;
            // The session's directory is removed anyway.
            let _ = remove_tree(from);
            Ok(())
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
        let to = File::from(rustix::fs::openat(parent, name, flags, mode)?);
        let from = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(from)?;
        copy_content(from, &to, &mut { u64::MAX })?;
    } else if meta.is_symlink() {
        rustix::fs::symlinkat(fs::read_link(from)?, parent, name)?;
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = OsString::from(path);
    text.push(suffix);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn holes_stay_holes_and_do_not_count() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        let sparse = File::create(at("sparse"))?;
        sparse.set_len(8 << 30)?;
        sparse.write_all_at(b"middle", 4 << 30)?;
        fs::create_dir(at("from"))?;
        fs::rename(at("sparse"), at("from/sparse"))?;
        let parent = UntrustedDir::open(directory.path())?;
        copy(&parent, Path::new("from"), &at("to"), &mut { 1 << 20 })?;
        let copied = File::open(at("to/sparse"))?;
        let meta = copied.metadata()?;
        assert!(meta.len() == 8 << 30 && meta.blocks() < 1024, "{meta:?}");
        let mut text = [0; 6];
        copied.read_exact_at(&mut text, 4 << 30)?;
        assert_eq!(&text, b"middle");
        fs::write(at("from/large"), vec![1; 2 << 20])?;
        let error = copy(&parent, Path::new("from"), &at("other"), &mut { 1 << 20 }).err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::FileTooLarge));
        Ok(())
    }
}
