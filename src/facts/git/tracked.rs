//! Tells whether Git tracks a file, by the index of the repository around it. Runs no Git.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::index;
use crate::path::HostPath;
use crate::process::untrusted;

/// The files that the indexes of repositories list.
#[derive(Default)]
pub struct TrackedFiles {
    /// By the root of the working tree.
    indexes: BTreeMap<PathBuf, BTreeSet<Vec<u8>>>,
}

impl TrackedFiles {
    /// Returns a tracked file at a path or below it. The error is an index that cannot be read.
    pub fn at(&mut self, path: &HostPath) -> Result<Option<PathBuf>, PathBuf> {
        let Some(root) = repository(path) else { return Ok(None) };
        let Ok(below) = path.as_path().strip_prefix(&root).map(|below| below.as_os_str().as_bytes().to_vec()) else {
            return Ok(None);
        };
        if !self.indexes.contains_key(&root) {
            let paths = read_index(&root)?;
            self.indexes.insert(root.clone(), paths);
        }
        let directory = [below.as_slice(), b"/"].concat();
        let paths = self.indexes.get(&root);
        let first = paths.and_then(|paths| {
            let below_it = paths.range(directory.clone()..).next().filter(|path| path.starts_with(&directory));
            // A sparse index lists directories, with a slash at their end.
            let around = below.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &below[..=at]);
            paths.get(&below).or(below_it).or_else(|| around.filter_map(|directory| paths.get(directory)).next())
        });
        Ok(first.map(|path| root.join(Path::new(OsStr::from_bytes(path)))))
    }
}

/// Returns the root of the working tree that a path belongs to.
fn repository(path: &HostPath) -> Option<PathBuf> {
    let mut above = path.as_path().ancestors().skip(1).map(Path::to_owned);
    above.find(|above| above.join(".git").symlink_metadata().is_ok())
}

/// Reads the paths in the index of a working tree.
fn read_index(root: &Path) -> Result<BTreeSet<Vec<u8>>, PathBuf> {
    let pointer = root.join(".git");
    let git_dir = match untrusted::read(&pointer, 8 << 10) {
        Ok(text) => root.join(text.strip_prefix("gitdir: ").unwrap_or_default().trim_end()),
        Err(_) => pointer,
    };
    let file = git_dir.join("index");
    let problem = || file.clone();
    let content = match untrusted::read_bytes(&file, index::MAX_INDEX) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(_) => return Err(problem()),
    };
    let parse =
        |content: &[u8]| index::parse(content, 20).or_else(|_| index::parse(content, 32)).map_err(|_| problem());
    let own = parse(&content)?;
    let mut paths: BTreeSet<Vec<u8>> = own.entries.into_keys().map(|(path, _)| path).collect();
    if own.is_split {
        let links = index::gitlinks(content.as_slice(), content.len() as u64, 20).map_err(|_| problem())?;
        if let Some(shared) = links.shared {
            let shared = untrusted::read_bytes(&git_dir.join(shared), index::MAX_INDEX).map_err(|_| problem())?;
            paths.extend(parse(&shared)?.entries.into_keys().map(|(path, _)| path));
        }
    }
    Ok(paths)
}
