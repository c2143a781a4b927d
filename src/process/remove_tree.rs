//! Removes a directory that a guest could write. The guest chooses how deep it is and which
//! permissions are missing, so that neither recursion nor a path to each entry will do.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::bounded_work;
use super::untrusted_dir::UntrustedDir;

/// Begins the names of directories that were moved to the top of the tree.
const MOVED: &str = "moved-";
/// Small trees are removed even if a signal has stopped other work.
const CHECK_AFTER: usize = 10_000;

/// Removes a directory with everything below it, or a file. Follows no links.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    remove_entry(&UntrustedDir::open(parent)?, Path::new(name))
}

/// Removes an entry of a directory with everything below it. If something cannot be removed, the rest
/// is.
pub fn remove_entry(parent: &UntrustedDir, name: &Path) -> io::Result<()> {
    if FileType::from_raw_mode(parent.stat(name)?.st_mode) != FileType::Directory {
        return parent.remove_file(name);
    }
    if parent.remove_directory(name).is_ok() {
        return Ok(());
    }
    let mut removal = Removal { top: open_writable(parent, name)?, moved: 0, seen: 0 };
    let emptied = removal.empty_top();
    parent.remove_directory(name).map_err(|error| emptied.err().unwrap_or(error))
}

/// The removal of one tree.
struct Removal {
    top: UntrustedDir,
    /// The number of directories that were moved to the top.
    moved: usize,
    /// The number of entries that were removed or moved.
    seen: usize,
}

impl Removal {
    /// Empties the directories of the top one by one. What is below them is moved to the top, so that
    /// no more than two directories are open.
    fn empty_top(&mut self) -> io::Result<()> {
        let mut failed = Ok(());
        loop {
            let before = self.seen;
            // The list may lack what is added meanwhile.
            for entry in Dir::read_from(&self.top)? {
                let Some((name, kind)) = named(&self.top, entry?)? else { continue };
                let name = Path::new(&name);
                let removed = match kind {
                    FileType::Directory => self.empty(name),
                    _ => self.top.remove_file(name).and_then(|()| self.count()),
                };
                match removed {
                    Err(error) if bounded_work::stop(&error).is_some() => return Err(error),
                    removed => failed = failed.and(removed),
                }
            }
            if self.seen == before {
                return failed;
            }
        }
    }

    /// Removes a directory of the top.
    fn empty(&mut self, name: &Path) -> io::Result<()> {
        let mut failed = Ok(());
        loop {
            // In an overlay, an empty directory of the kernel may belong to another user.
            if self.top.remove_directory(name).is_ok() {
                return self.count();
            }
            let (before, directory) = (self.seen, open_writable(&self.top, name)?);
            for entry in Dir::read_from(&directory)? {
                let Some((name, kind)) = named(&directory, entry?)? else { continue };
                let name = Path::new(&name);
                let removed = match kind {
                    FileType::Directory => {
                        directory.remove_directory(name).or_else(|_| self.move_to_top(&directory, name))
                    }
                    _ => directory.remove_file(name),
                };
                match removed.and_then(|()| self.count()) {
                    Err(error) if bounded_work::stop(&error).is_some() => return Err(error),
                    removed => failed = failed.and(removed),
                }
            }
            if self.seen == before {
                return failed.and_then(|()| self.top.remove_directory(name));
            }
        }
    }

    fn move_to_top(&mut self, directory: &UntrustedDir, name: &Path) -> io::Result<()> {
        // Its entry `..` changes.
        let _ = directory.grant_access(name);
        loop {
            self.moved += 1;
            match rustix::fs::renameat(directory, name, &self.top, format!("{MOVED}{}", self.moved)) {
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                moved => return Ok(moved?),
            }
        }
    }

    fn count(&mut self) -> io::Result<()> {
        self.seen += 1;
        if self.seen > CHECK_AFTER { Ok(bounded_work::check()?) } else { Ok(()) }
    }
}

fn open_writable(parent: &UntrustedDir, name: &Path) -> io::Result<UntrustedDir> {
    let directory = parent.open_granted(name)?;
    // Of another owner's directory only an empty one can be removed.
    let _ = directory.grant_own_access();
    Ok(directory)
}

/// Returns the name and the type of an entry; `None` for the directory itself and the one above.
fn named(directory: &UntrustedDir, entry: rustix::fs::DirEntry) -> io::Result<Option<(OsString, FileType)>> {
    use std::os::unix::ffi::OsStringExt;
    let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
    if name == "." || name == ".." {
        return Ok(None);
    }
    let kind = match entry.file_type() {
        // Some file systems do not report the type.
        FileType::Unknown => FileType::from_raw_mode(directory.stat(&name)?.st_mode),
        kind => kind,
    };
    Ok(Some((name, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn neither_depth_nor_missing_permissions_keep_a_tree() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (tree, outside) = (directory.path().join("tree"), directory.path().join("outside"));
        fs::create_dir(&tree)?;
        fs::write(&outside, "kept")?;
        symlink(&outside, tree.join("link"))?;
        fs::create_dir_all(tree.join("closed/below"))?;
        fs::write(tree.join("closed/below/file"), "")?;
        fs::create_dir_all(tree.join("moved-1/full"))?;
        fs::write(tree.join("moved-2"), "a name in the way")?;
        // More levels than a process may have open files, and a path longer than the kernel takes.
        let mut deepest = UntrustedDir::open(&tree)?;
        for _ in 0..30_000 {
            deepest = deepest.create_directory(Path::new("a-level"))?;
        }
        deepest.replace("file", b"", || true)?;
        drop(deepest);
        for closed in ["closed/below", "closed", "a-level"] {
            fs::set_permissions(tree.join(closed), fs::Permissions::from_mode(0o000))?;
        }
        remove_tree(&tree)?;
        assert!(tree.symlink_metadata().is_err());
        assert_eq!(fs::read_to_string(&outside)?, "kept");
        remove_tree(&outside)?;
        assert!(remove_tree(&outside).is_err_and(|error| error.kind() == ErrorKind::NotFound));
        Ok(())
    }
}
