//! Finds the repositories in a workspace. Follows no links, has no limit of depth, and opens
//! directories whose owner took the permission to read them away.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

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
    /// A directory with the files of a Git directory, and another name.
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

/// Searches a directory, without those in `known`. Paths are relative to it.
pub fn repositories(root: &Path, known: &[PathBuf]) -> Vec<Found> {
    let mut found = Vec::new();
    let Ok(top) = UntrustedDir::open(root) else { return vec![Found::Unreadable(root.to_owned())] };
    let top = Rc::new(top);
    let mut open = vec![Pending { parent: None, path: PathBuf::new(), depth: 0 }];
    while let Some(Pending { parent, path, depth }) = open.pop() {
        let opened = match (&parent, path.file_name()) {
            (Some(parent), Some(name)) => open_directory(parent, Path::new(name)),
            (None, Some(_)) => open_directory(&top, &path),
            (_, None) => top.directory(Path::new("")),
        };
        let entries = opened.and_then(|directory| Ok((directory.entries(usize::MAX)?, directory)));
        let (entries, directory) = match entries {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(_) => {
                found.push(Found::Unreadable(root.join(path)));
                continue;
            }
        };
        let has = |name: &str, kind: FileType| entries.iter().any(|(known, found)| known == name && *found == kind);
        if has("objects", FileType::Directory)
            && has("refs", FileType::Directory)
            && entries.iter().any(|(name, _)| name == "HEAD")
        {
            found.push(Found::Bare(root.join(&path)));
            continue;
        }
        let shared = (depth < MAX_OPEN_DEPTH).then(|| Rc::new(directory));
        for (name, kind) in entries {
            let below = path.join(&name);
            if is_dot_git(&name) {
                let absolute = root.join(&below);
                if !known.contains(&absolute) {
                    found.push(match kind {
                        FileType::Directory => Found::GitDir(absolute),
                        FileType::RegularFile => Found::Pointer(absolute),
                        _ => Found::Odd(absolute),
                    });
                }
            } else if kind == FileType::Directory && !known.iter().any(|known| *known == root.join(&below)) {
                open.push(Pending { parent: shared.clone(), path: below, depth: depth + 1 });
            }
        }
    }
    found.sort();
    found
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
        let found = repositories(root, &[root.join("known/.git")]);
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
}
