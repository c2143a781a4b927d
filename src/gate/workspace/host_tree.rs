//! Changes files of the user below one directory. No link is followed, no path leads out of the
//! directory or into a Git directory, and every file is replaced as a whole.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags, RawMode, Timestamps};

use super::node::{Node, Stamp, is_git_name, split};
use crate::process::untrusted_dir::UntrustedDir;

/// A directory whose files are changed.
pub struct HostTree {
    root: UntrustedDir,
}

impl HostTree {
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(HostTree { root: UntrustedDir::open_without_links(root)? })
    }

    /// Examines an entry; `None` if it does not exist.
    pub fn look(&self, path: &Path) -> io::Result<Option<(Node, Stamp)>> {
        check(path)?;
        Ok(Node::at(&self.root, path)?.map(|(node, stat)| (node, Stamp::of(&stat))))
    }

    pub fn file(&self, path: &Path) -> io::Result<Option<File>> {
        check(path)?;
        self.root.file(path)
    }

    fn parent<'a>(&self, path: &'a Path) -> io::Result<(UntrustedDir, &'a OsStr)> {
        check(path)?;
        let (above, name) = split(path)?;
        Ok((self.root.directory(above.unwrap_or(Path::new("")))?, name))
    }

    /// Replaces or creates a file. Nothing changes unless the entry is still the expected version.
    pub fn write(
        &self,
        path: &Path,
        content: &mut dyn Read,
        mode: u32,
        times: Option<&Timestamps>,
        expected: Option<Stamp>,
    ) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let new = temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&parent, &new, flags, Mode::RUSR | Mode::WUSR)?);
        let mut written = || -> io::Result<()> {
            io::copy(content, &mut file)?;
            rustix::fs::fchmod(&file, mode_of(mode))?;
            if let Some(times) = times {
                rustix::fs::futimens(&file, times)?;
            }
            replace(&parent, &new, name, expected)
        };
        written().inspect_err(|_| remove_temporary(&parent, &new))
    }

    /// Puts a file of sandpen's own in the place of an entry, without copying it.
    pub fn move_in(&self, from: &Path, path: &Path, expected: Option<Stamp>) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let new = temporary_name();
        rustix::fs::linkat(rustix::fs::CWD, from, &parent, &new, AtFlags::empty())?;
        replace(&parent, &new, name, expected).inspect_err(|_| remove_temporary(&parent, &new))
    }

    /// Gives a file another name in a directory of sandpen's.
    pub fn link_out(&self, path: &Path, to: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::linkat(&parent, name, rustix::fs::CWD, to, AtFlags::empty())?)
    }

    /// Replaces or creates a symbolic link.
    pub fn write_link(&self, path: &Path, target: &[u8], expected: Option<Stamp>) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let new = temporary_name();
        rustix::fs::symlinkat(target, &parent, &new)?;
        replace(&parent, &new, name, expected).inspect_err(|_| remove_temporary(&parent, &new))
    }

    /// Removes a file or link.
    pub fn remove(&self, path: &Path, expected: Option<Stamp>) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        check_version(&parent, name, expected)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
    }

    /// Removes an empty directory; returns `false` if it is not empty.
    pub fn remove_directory(&self, path: &Path) -> io::Result<bool> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub fn make_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
        Ok(rustix::fs::fchmod(parent.directory(Path::new(name))?, mode_of(mode))?)
    }

    pub fn set_directory_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        check(path)?;
        Ok(rustix::fs::fchmod(self.root.directory(path)?, mode_of(mode))?)
    }
}

/// Refuses paths that lead upwards or into a Git directory.
fn check(path: &Path) -> io::Result<()> {
    for part in path.components() {
        match part {
            Component::Normal(name) if !is_git_name(name) => {}
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the path leads out of the workspace or into `.git`",
                ));
            }
        }
    }
    Ok(())
}

fn replace(parent: &UntrustedDir, new: &OsStr, name: &OsStr, expected: Option<Stamp>) -> io::Result<()> {
    check_version(parent, name, expected)?;
    Ok(rustix::fs::renameat(parent, new, parent, name)?)
}

fn check_version(parent: &UntrustedDir, name: &OsStr, expected: Option<Stamp>) -> io::Result<()> {
    let now = Node::at(parent, Path::new(name))?.map(|(_, stat)| Stamp::of(&stat));
    // A new name of a file changes its time.
    let identity = |stamp: Stamp| (stamp.inode, stamp.size);
    if now.map(identity) != expected.map(identity) {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it was changed just now"));
    }
    Ok(())
}

fn temporary_name() -> OsString {
    format!(".sandpen-{}", crate::session_id::random_name()).into()
}

fn remove_temporary(parent: &UntrustedDir, name: &OsStr) {
    let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode((mode & 0o777) as RawMode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_through_links_or_in_git_is_written() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let base = directory.path().canonicalize()?;
        let root = base.join("root");
        fs::create_dir_all(root.join(".git/hooks"))?;
        fs::create_dir_all(base.join("outside"))?;
        symlink(base.join("outside"), root.join("way"))?;
        symlink(base.join("outside/target"), root.join("link"))?;
        let tree = HostTree::open(&root)?;
        let text = || io::Cursor::new(b"text".to_vec());
        for path in ["way/file", "../outside/file", "/etc/x", ".git/hooks/x", "a/.GIT/config", ".git", ""] {
            assert!(tree.write(Path::new(path), &mut text(), 0o644, None, None).is_err(), "{path}");
            assert!(tree.write_link(Path::new(path), b"x", None).is_err(), "{path}");
            assert!(tree.make_directory(Path::new(path), 0o755).is_err(), "{path}");
            assert!(tree.remove(Path::new(path), None).is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(base.join("outside"))?.count(), 0);
        let stamp = tree.look(Path::new("link"))?.map(|(_, stamp)| stamp);
        tree.write(Path::new("link"), &mut text(), 0o4755, None, stamp)?;
        assert!(!root.join("link").is_symlink() && !base.join("outside/target").exists());
        assert!(tree.write(Path::new("link"), &mut text(), 0o644, None, None).is_err(), "it exists by now");
        assert!(HostTree::open(&root.join("way")).is_err());
        let names: Vec<_> = fs::read_dir(&root)?.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names.len(), 3, "no temporary file stays: {names:?}");
        Ok(())
    }
}
