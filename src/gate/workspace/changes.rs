//! Lists what differs between a copy and the directory of the user: names, kinds and modes, without
//! reading the content of any file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::node::{Node, Stamp, is_git_name};
use super::removal_mark::is_removal_mark;
use crate::kept_copy::{CopiedTree, CopyHow, FileTime, KeptCopy};
use crate::process::untrusted_dir::UntrustedDir;

/// A copy with more changes than this is not shown: nobody could look at it.
const MAX_CHANGES: usize = 1_000_000;
/// A directory that is deeper is not entered.
const MAX_DEPTH: usize = 512;

/// A path whose version in the copy may differ from the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The number of the directory.
    pub tree: usize,
    /// The path below that directory.
    pub path: PathBuf,
    /// The version in the copy; `None` if the guest removed it.
    pub new: Option<Node>,
    pub new_stamp: Option<Stamp>,
    /// The version of the user, as it is now.
    pub host: Option<(Node, Stamp)>,
}

/// The changes of a copy.
#[derive(Debug, Default)]
pub struct Changes {
    /// Sorted by directory and path.
    pub list: Vec<Change>,
    /// Git directories that the guest made. They stay in the copy.
    pub git_dirs: Vec<(usize, PathBuf)>,
}

/// Lists the changes of a copy.
pub fn list(copy: &KeptCopy) -> io::Result<Changes> {
    let mut changes = Changes::default();
    for (number, tree) in copy.trees.iter().enumerate() {
        let mut walk = Walk { copy, tree, number, changes: &mut changes };
        let host = UntrustedDir::open(&tree.host)?;
        match copy.how {
            CopyHow::Overlay => {
                walk.overlay(&UntrustedDir::open(&tree.upper())?, Some(&host), Path::new(""), 0)?;
            }
            CopyHow::Files => walk.files(&UntrustedDir::open(&tree.files())?, &host, Path::new(""), 0)?,
        }
    }
    changes.list.sort_by(|one, other| (one.tree, &one.path).cmp(&(other.tree, &other.path)));
    Ok(changes)
}

/// Returns the directory with the guest's versions of changed files.
pub fn changed_files(copy: &KeptCopy, tree: usize) -> io::Result<UntrustedDir> {
    let tree = copy.trees.get(tree).ok_or(io::ErrorKind::NotFound)?;
    UntrustedDir::open(&match copy.how {
        CopyHow::Overlay => tree.upper(),
        CopyHow::Files => tree.files(),
    })
}

struct Walk<'a> {
    copy: &'a KeptCopy,
    tree: &'a CopiedTree,
    number: usize,
    changes: &'a mut Changes,
}

impl Walk<'_> {
    fn add(&mut self, path: &Path, new: Option<(Node, Stat)>, host: Option<(Node, Stat)>) -> io::Result<()> {
        let (new, new_stamp) = new.map(|(node, stat)| (node, Stamp::of(&stat))).unzip();
        let host = host.map(|(node, stat)| (node, Stamp::of(&stat)));
        if new.is_none() && host.is_none() {
            return Ok(());
        }
        if self.changes.list.len() >= MAX_CHANGES {
            return Err(io::Error::other(format!("more than {MAX_CHANGES} files changed")));
        }
        self.changes.list.push(Change { tree: self.number, path: path.to_owned(), new, new_stamp, host });
        Ok(())
    }

    /// Notes a Git directory; returns whether the name is that of one.
    fn is_git(&mut self, path: &Path, name: &OsStr) -> bool {
        let is_git = is_git_name(name);
        if is_git && !self.copy.git_dirs.iter().any(|known| *known == self.tree.host.join(path)) {
            self.changes.git_dirs.push((self.number, path.to_owned()));
        }
        is_git
    }

    /// Lists what an overlay keeps: files that were changed or made, directories that contain such, and
    /// marks of what was removed.
    fn overlay(
        &mut self,
        upper: &UntrustedDir,
        host: Option<&UntrustedDir>,
        path: &Path,
        depth: usize,
    ) -> io::Result<()> {
        check_depth(path, depth)?;
        let is_replaced = depth > 0 && is_opaque(upper);
        let entries = upper.entries(MAX_CHANGES)?;
        for (name, _) in &entries {
            let below = path.join(name);
            if self.is_git(&below, name) {
                continue;
            }
            let Some((new, stat)) = Node::at(upper, Path::new(name))? else { continue };
            let old = match host {
                Some(host) => Node::at(host, Path::new(name))?,
                None => None,
            };
            if is_removal_mark(&new, &stat) {
                self.removed(host, name, &below, depth)?;
            } else if new.is_directory() {
                let is_merged = old.as_ref().is_some_and(|(old, _)| old.is_directory());
                let host_below = match host.filter(|_| is_merged) {
                    Some(host) => Some(host.directory(Path::new(name))?),
                    None => None,
                };
                if old.as_ref().map(|(old, _)| old) != Some(&new) {
                    self.add(&below, Some((new, stat)), old)?;
                }
                self.overlay(&upper.directory(Path::new(name))?, host_below.as_ref(), &below, depth + 1)?;
            } else {
                if old.as_ref().is_some_and(|(old, _)| old.is_directory()) {
                    self.removed_below(host, name, &below, depth)?;
                }
                self.add(&below, Some((new, stat)), old)?;
            }
        }
        if let Some(host) = host.filter(|_| is_replaced) {
            let kept: BTreeSet<&OsString> = entries.iter().map(|(name, _)| name).collect();
            for (name, _) in host.entries(MAX_CHANGES)? {
                if !kept.contains(&name) && !is_git_name(&name) {
                    self.removed(Some(host), &name, &path.join(&name), depth)?;
                }
            }
        }
        Ok(())
    }

    /// Adds an entry of the user's that the guest removed, and everything below it.
    fn removed(&mut self, host: Option<&UntrustedDir>, name: &OsStr, path: &Path, depth: usize) -> io::Result<()> {
        let Some(host) = host else { return Ok(()) };
        let Some((old, stat)) = Node::at(host, Path::new(name))? else { return Ok(()) };
        if old.is_directory() {
            self.removed_below(Some(host), name, path, depth)?;
        }
        self.add(path, None, Some((old, stat)))
    }

    fn removed_below(
        &mut self,
        host: Option<&UntrustedDir>,
        name: &OsStr,
        path: &Path,
        depth: usize,
    ) -> io::Result<()> {
        check_depth(path, depth)?;
        let Some(host) = host else { return Ok(()) };
        let directory = host.directory(Path::new(name))?;
        for (name, _) in directory.entries(MAX_CHANGES)? {
            if !is_git_name(&name) {
                self.removed(Some(&directory), &name, &path.join(&name), depth + 1)?;
            }
        }
        Ok(())
    }

    /// Compares all files of a plain copy with the user's. A guest cannot set the time at which the
    /// kernel last changed a file, so what is older than the copy is unchanged.
    fn files(&mut self, copied: &UntrustedDir, host: &UntrustedDir, path: &Path, depth: usize) -> io::Result<()> {
        check_depth(path, depth)?;
        let entries = copied.entries(MAX_CHANGES)?;
        for (name, _) in &entries {
            let below = path.join(name);
            if self.is_git(&below, name) {
                continue;
            }
            let Some((new, stat)) = Node::at(copied, Path::new(name))? else { continue };
            let old = Node::at(host, Path::new(name))?;
            let is_changed = Stamp::of(&stat).changed > self.copy.made;
            if new.is_directory() {
                if let Some((Node::Directory { .. }, _)) = &old {
                    if is_changed && old.as_ref().map(|(old, _)| old) != Some(&new) {
                        self.add(&below, Some((new, stat)), old)?;
                    }
                    let (copied, host) = (copied.directory(Path::new(name))?, host.directory(Path::new(name))?);
                    self.files(&copied, &host, &below, depth + 1)?;
                } else if is_changed {
                    self.add(&below, Some((new, stat)), old)?;
                    self.made(&copied.directory(Path::new(name))?, &below, depth + 1)?;
                }
            } else if is_changed {
                if old.as_ref().is_some_and(|(old, _)| old.is_directory()) {
                    self.removed_below(Some(host), name, &below, depth)?;
                }
                self.add(&below, Some((new, stat)), old)?;
            }
        }
        let kept: BTreeSet<&OsString> = entries.iter().map(|(name, _)| name).collect();
        for (name, kind) in host.entries(MAX_CHANGES)? {
            // These were not copied, or were made by the user since.
            let is_copied = !matches!(kind, FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice);
            if is_copied && !kept.contains(&name) && !is_git_name(&name) && !self.is_young(host, &name) {
                self.removed(Some(host), &name, &path.join(&name), depth)?;
            }
        }
        Ok(())
    }

    /// Adds what is in a directory that the guest made or renamed. Files in a renamed one keep their times.
    fn made(&mut self, copied: &UntrustedDir, path: &Path, depth: usize) -> io::Result<()> {
        check_depth(path, depth)?;
        for (name, _) in copied.entries(MAX_CHANGES)? {
            let below = path.join(&name);
            if self.is_git(&below, &name) {
                continue;
            }
            let Some((new, stat)) = Node::at(copied, Path::new(&name))? else { continue };
            let is_directory = new.is_directory();
            self.add(&below, Some((new, stat)), None)?;
            if is_directory {
                self.made(&copied.directory(Path::new(&name))?, &below, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Tells whether an entry of the user's was made after the copy.
    fn is_young(&self, host: &UntrustedDir, name: &OsStr) -> bool {
        let made = time_of_creation(host, name).or_else(|| host.stat(name).ok().map(|stat| Stamp::of(&stat).changed));
        made.is_some_and(|made| made > self.copy.made)
    }
}

fn check_depth(path: &Path, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::Error::other(format!("`{}` is too deep", path.display())));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn time_of_creation(directory: &UntrustedDir, name: &OsStr) -> Option<FileTime> {
    use rustix::fs::{AtFlags, StatxFlags};
    let stat = rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
    let time = FileTime { seconds: stat.stx_btime.tv_sec, nanoseconds: stat.stx_btime.tv_nsec.into() };
    StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME).then_some(time)
}

#[cfg(not(target_os = "linux"))]
fn time_of_creation(_: &UntrustedDir, _: &OsStr) -> Option<FileTime> {
    None
}

/// Tells whether a directory of an overlay replaces the user's. Guests cannot set these attributes.
#[cfg(target_os = "linux")]
fn is_opaque(directory: &UntrustedDir) -> bool {
    ["user.overlay.opaque", "trusted.overlay.opaque"].iter().any(|name| {
        let mut value = [0; 8];
        rustix::fs::fgetxattr(directory, *name, &mut value[..]).is_ok_and(|length| value[..length] == *b"y")
    })
}

#[cfg(not(target_os = "linux"))]
fn is_opaque(_: &UntrustedDir) -> bool {
    false
}
