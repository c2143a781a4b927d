//! Removes a directory that a guest could write. The guest chooses how deep it is and which
//! permissions are missing, so that neither recursion nor a path to each entry will do.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::bounded_work;
use super::untrusted_dir::UntrustedDir;

/// Begins the names of directories that were moved to the top of the tree.
const MOVED: &str = "moved-";
/// Directories that are deeper are moved to the top, so that no more than these are open.
const MAX_OPEN: usize = 8;
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
    // In an overlay, an empty directory of the kernel may belong to another user.
    if parent.remove_directory(name).is_ok() {
        return Ok(());
    }
    let top = parent.open_granted(name)?;
    let mut removal = Removal { top: &top, moved: 0, seen: 0 };
    removal.remove_emptied(parent, name, &top, 1)
}

/// The removal of one tree.
struct Removal<'a> {
    top: &'a UntrustedDir,
    /// The number of directories that were moved to the top.
    moved: usize,
    /// The number of entries that were removed or moved.
    seen: usize,
}

impl Removal<'_> {
    /// Empties and removes `directory`, which is `name` in `parent`.
    fn remove_emptied(
        &mut self,
        parent: &UntrustedDir,
        name: &Path,
        directory: &UntrustedDir,
        depth: usize,
    ) -> io::Result<()> {
        loop {
            let before = self.seen;
            let emptied = self.empty(directory, depth);
            match (emptied, parent.remove_directory(name)) {
                (_, Ok(())) => return self.count(),
                (Err(error), _) if bounded_work::stop(&error).is_some() => return Err(error),
                // The list may lack what was added meanwhile.
                _ if self.seen > before => {}
                (emptied, removed) => return emptied.and(removed),
            }
        }
    }

    /// Removes the entries of a directory. If one cannot be removed, the others are.
    fn empty(&mut self, directory: &UntrustedDir, depth: usize) -> io::Result<()> {
        let (mut failed, mut is_granted) = (Ok(()), false);
        directory.for_each_entry(|name, kind| {
            let name = Path::new(name);
            let mut removed = self.remove(directory, name, kind, depth);
            if !is_granted && is_denied(&removed) {
                // Of another owner's directory only an empty one can be removed.
                is_granted = true;
                let _ = directory.grant_own_access();
                removed = self.remove(directory, name, kind, depth);
            }
            match removed {
                Err(error) if bounded_work::stop(&error).is_some() => return Err(error),
                removed => failed = std::mem::replace(&mut failed, Ok(())).and(removed),
            }
            Ok(())
        })?;
        failed
    }

    fn remove(&mut self, parent: &UntrustedDir, name: &Path, kind: FileType, depth: usize) -> io::Result<()> {
        if kind != FileType::Directory {
            parent.remove_file(name)?;
            return self.count();
        }
        if depth >= MAX_OPEN {
            parent.remove_directory(name).or_else(|_| self.move_to_top(parent, name))?;
            return self.count();
        }
        match parent.open_granted(name) {
            Ok(directory) => self.remove_emptied(parent, name, &directory, depth + 1),
            Err(error) => parent.remove_directory(name).map_err(|_| error),
        }
    }

    fn move_to_top(&mut self, directory: &UntrustedDir, name: &Path) -> io::Result<()> {
        // Its entry `..` changes.
        let _ = directory.grant_access(name);
        loop {
            self.moved += 1;
            match rustix::fs::renameat(directory, name, self.top, format!("{MOVED}{}", self.moved)) {
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

fn is_denied(result: &io::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
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
