//! Finds the repositories in a workspace. Follows no links, has no limit of depth, and opens
//! directories whose owner took the permission to read them away.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FileType;

use crate::process::untrusted_dir::UntrustedDir;

/// Below this depth directories are opened from the root again, so that the search does not use up
/// the descriptors of the process.
const MAX_OPEN_DEPTH: usize = 200;

/// A path that Git treats as a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// A directory `.git`.
    GitDir(PathBuf),
    /// A directory that Git takes for a Git directory, or nearly so, with another name.
    Bare(PathBuf),
    /// A `.git` that is a file.
    Pointer(PathBuf),
    /// A `.git` that is neither a file nor a directory.
    Odd(PathBuf),
    /// A directory that cannot be searched.
    Unreadable(PathBuf),
}

struct Pending {
    parent: Option<Rc<UntrustedDir>>,
    path: PathBuf,
    depth: usize,
}

/// Searches a directory, without those in `known`. Directories that `seen` contains and that did not
/// change since are not listed again.
pub fn repositories(root: &Path, known: &[PathBuf], seen: &mut SeenDirectories) -> Vec<Found> {
    let mut found = Vec::new();
    let mut now = SeenDirectories::default();
    let Ok(top) = UntrustedDir::open(root) else { return vec![Found::Unreadable(root.to_owned())] };
    let top = Rc::new(top);
    let mut open = vec![Pending { parent: None, path: PathBuf::new(), depth: 0 }];
    while let Some(Pending { parent, path, depth }) = open.pop() {
        let absolute = root.join(&path);
        if known.contains(&absolute) {
            continue;
        }
        let stamp = DirectoryStamp::of(&absolute);
        if let Some(below) = stamp.and_then(|stamp| seen.unchanged(&path, stamp)) {
            open.extend(below.iter().map(|name| Pending { parent: None, path: path.join(name), depth: depth + 1 }));
            now.insert(path, stamp, below.to_vec());
            continue;
        }
        let opened = match (&parent, path.file_name()) {
            (Some(parent), Some(name)) => open_directory(parent, Path::new(name)),
            (None, Some(_)) => open_directory(&top, &path),
            (_, None) => top.directory(Path::new("")),
        };
        let entries = opened.and_then(|directory| Ok((directory.entries(usize::MAX)?, directory)));
        let (entries, directory) = match entries {
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(_) => {
                found.push(Found::Unreadable(absolute));
                continue;
            }
        };
        let has = |name: &str| entries.iter().any(|(known, _)| known == name);
        let is_bare = has("HEAD") && (has("objects") || has("refs") || has("commondir"));
        if is_bare {
            found.push(Found::Bare(absolute.clone()));
        }
        let shared = (depth < MAX_OPEN_DEPTH).then(|| Rc::new(directory));
        let (mut below, mut has_repository) = (Vec::new(), is_bare);
        for (name, kind) in entries {
            let place = absolute.join(&name);
            if is_dot_git(&name) {
                has_repository = true;
                if !known.contains(&place) {
                    found.push(match kind {
                        FileType::Directory => Found::GitDir(place),
                        FileType::RegularFile => Found::Pointer(place),
                        _ => Found::Odd(place),
                    });
                }
            } else if kind == FileType::Directory {
                open.push(Pending { parent: shared.clone(), path: path.join(&name), depth: depth + 1 });
                below.push(name);
            }
        }
        if !has_repository {
            now.insert(path, stamp, below);
        }
    }
    *seen = now;
    found.sort();
    found
}

/// The identity of a directory, which changes whenever an entry is added, removed or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryStamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl DirectoryStamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = path.symlink_metadata().ok().filter(std::fs::Metadata::is_dir)?;
        Some(DirectoryStamp { device: meta.dev(), inode: meta.ino(), changed: (meta.ctime(), meta.ctime_nsec()) })
    }

    /// Tells whether a later change would have another time: a file system's clock advances by some
    /// milliseconds at once.
    fn is_settled(self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        i64::try_from(now).is_ok_and(|now| self.changed.0 + 2 <= now)
    }
}

/// Directories without a repository, as an earlier search has seen them, with their subdirectories.
/// The kernel sets the change time of a directory, so a guest cannot hide a new entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenDirectories(HashMap<PathBuf, (DirectoryStamp, Vec<OsString>)>);

impl SeenDirectories {
    /// Reads the list of an earlier search; an empty one if there is none, or if it cannot be read.
    pub fn load(file: &Path) -> Self {
        let content = std::fs::read(file).unwrap_or_default();
        let mut seen = SeenDirectories::default();
        let mut fields = content.split(|byte| *byte == 0);
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<i64>().ok();
        // A record: path, device, inode, seconds, nanoseconds, and the names of subdirectories up to
        // an empty one.
        while let (Some(path), Some(device), Some(inode), Some(seconds), Some(nanos)) =
            (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
        {
            let numbers = (number(device), number(inode), number(seconds), number(nanos));
            let (Some(device), Some(inode), Some(seconds), Some(nanos)) = numbers else {
                return SeenDirectories::default();
            };
            let names = fields.by_ref().take_while(|name| !name.is_empty());
            let names = names.map(|name| OsStr::from_bytes(name).to_owned()).collect();
            let stamp = DirectoryStamp {
                device: device.cast_unsigned(),
                inode: inode.cast_unsigned(),
                changed: (seconds, nanos),
            };
            seen.0.insert(PathBuf::from(OsStr::from_bytes(path)), (stamp, names));
        }
        seen
    }

    pub fn save(&self, file: &Path) -> std::io::Result<()> {
        let mut content = Vec::new();
        for (path, (stamp, names)) in &self.0 {
            content.extend_from_slice(path.as_os_str().as_bytes());
            let (device, inode) = (stamp.device.cast_signed(), stamp.inode.cast_signed());
            let numbers = format!("\0{device}\0{inode}\0{}\0{}\0", stamp.changed.0, stamp.changed.1);
            content.extend_from_slice(numbers.as_bytes());
            for name in names {
                content.extend_from_slice(name.as_bytes());
                content.push(0);
            }
            content.push(0);
        }
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let new = file.with_extension(crate::session_id::random_name());
        std::fs::write(&new, content)?;
        std::fs::rename(new, file)
    }

    fn unchanged(&self, path: &Path, stamp: DirectoryStamp) -> Option<&[OsString]> {
        self.0.get(path).filter(|(known, _)| *known == stamp).map(|(_, names)| names.as_slice())
    }

    fn insert(&mut self, path: PathBuf, stamp: Option<DirectoryStamp>, names: Vec<OsString>) {
        if let Some(stamp) = stamp.filter(|stamp| stamp.is_settled()) {
            self.0.insert(path, (stamp, names));
        }
    }
}

/// Opens a directory, and grants its owner access first if necessary.
fn open_directory(parent: &UntrustedDir, path: &Path) -> std::io::Result<UntrustedDir> {
    match parent.directory(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            parent.grant_access(path)?;
            parent.directory(path)
        }
        opened => opened,
    }
}

/// File systems of macOS do not tell cases apart.
fn is_dot_git(name: &OsString) -> bool {
    if cfg!(target_os = "macos") { name.eq_ignore_ascii_case(".git") } else { name == ".git" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn repositories_are_found_at_any_depth_and_behind_closed_directories() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        // Deeper than the limit of open directories, and longer than a path may be.
        let deep = UntrustedDir::open(root)?;
        let below: PathBuf = std::iter::repeat_n("a-long-name-of-a-directory", 400).collect();
        deep.create_directory(&below.join(".git"))?;
        for path in ["known/.git", "new/.git", "closed/in/.git", "bare/objects", "bare/refs", "linked"] {
            fs::create_dir_all(root.join(path))?;
        }
        fs::write(root.join("bare/HEAD"), "")?;
        fs::create_dir(root.join("worktree"))?;
        fs::write(root.join("worktree/.git"), "gitdir: x")?;
        symlink(root.join("new"), root.join("linked/elsewhere"))?;
        symlink(root.join("new/.git"), root.join("linked/.git"))?;
        fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o311))?;
        let found = repositories(root, &[root.join("known/.git")], &mut SeenDirectories::default());
        let at = |path: &str| root.join(path);
        for expected in [
            Found::GitDir(at("new/.git")),
            Found::GitDir(at("closed/in/.git")),
            Found::GitDir(root.join(below).join(".git")),
            Found::Bare(at("bare")),
            Found::Pointer(at("worktree/.git")),
            Found::Odd(at("linked/.git")),
        ] {
            assert!(found.contains(&expected), "{expected:?}");
        }
        assert_eq!(found.len(), 6, "{found:?}");
        Ok(())
    }

    #[test]
    fn a_directory_that_was_seen_is_listed_again_if_it_changed() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        fs::create_dir_all(root.join("a/b"))?;
        let mut seen = SeenDirectories::default();
        for path in ["", "a", "a/b"] {
            let stamp = DirectoryStamp::of(&root.join(path)).expect("a directory");
            let below = match path {
                "" => vec!["a".into()],
                "a" => vec!["b".into()],
                _ => Vec::new(),
            };
            // As if they had been seen some seconds later.
            seen.0.insert(path.into(), (stamp, below));
        }
        let file = root.with_extension("seen");
        seen.save(&file)?;
        assert_eq!(SeenDirectories::load(&file), seen);
        let search = || repositories(root, &[], &mut SeenDirectories::load(&file));
        assert_eq!(search(), []);
        // The clock of the file system must have advanced for the change to have another time.
        loop {
            fs::create_dir(root.join("a/b/.git"))?;
            if DirectoryStamp::of(&root.join("a/b")) != seen.0.get(Path::new("a/b")).map(|(stamp, _)| *stamp) {
                break;
            }
            fs::remove_dir(root.join("a/b/.git"))?;
        }
        assert_eq!(search(), [Found::GitDir(root.join("a/b/.git"))]);
        fs::remove_file(file)
    }
}
