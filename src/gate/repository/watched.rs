//! Finds files that changed in the sandbox and that tools on the host run or read without asking.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ui::Ui;

/// At most this many entries of a watched directory are checked.
const MAX_ENTRIES: usize = 2000;
/// A directory with more names is not listed to find out which paths exist.
const MAX_LISTED: usize = 200;
/// The summary names at most this many changed files.
const MAX_NAMED: usize = 8;

/// The metadata that every change of a file changes. It is compared with an earlier stamp of the
/// same file, never with a time: a file written just before the launch can have the launch's time,
/// because a file system's clock advances by some milliseconds at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = path.symlink_metadata().ok()?;
        Some(Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// The stamps of files before the launch, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps(Vec<(OsString, Stamp)>);

impl Stamps {
    /// Records the files at and below the paths.
    pub fn of(paths: &[PathBuf]) -> Self {
        let stamp = |path: PathBuf| Stamp::of(&path).map(|stamp| (path.into_os_string(), stamp));
        let mut stamps: Vec<_> = existing(paths).flat_map(files).filter_map(stamp).collect();
        stamps.sort_by(|(one, _), (other, _)| one.cmp(other));
        Stamps(stamps)
    }

    /// Returns a changed or new file for each path that has one.
    pub fn changed(&self, paths: &[PathBuf]) -> Vec<PathBuf> {
        existing(paths).filter_map(|path| files(path).into_iter().find(|file| self.differ_at(file))).collect()
    }

    fn differ_at(&self, path: &Path) -> bool {
        let before = self.0.binary_search_by(|(known, _)| known.as_os_str().cmp(path.as_os_str()));
        let before = before.ok().and_then(|at| self.0.get(at)).map(|(_, stamp)| stamp);
        Stamp::of(path).is_some_and(|now| before != Some(&now))
    }
}

/// Leaves out paths that do not exist, as far as a list of the directory above them tells: in most
/// workspaces nearly all are missing.
fn existing(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let mut lists: BTreeMap<&Path, Option<BTreeSet<OsString>>> = BTreeMap::new();
    paths.iter().map(PathBuf::as_path).filter(move |path| {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return true };
        if is_missing(&lists, above) {
            return false;
        }
        let list = lists.entry(above).or_insert_with(|| names(above));
        list.as_ref().is_none_or(|names| names.contains(name))
    })
}

/// Tells whether a list shows that a path does not exist.
fn is_missing(lists: &BTreeMap<&Path, Option<BTreeSet<OsString>>>, path: &Path) -> bool {
    let list = path.parent().and_then(|above| lists.get(above)?.as_ref());
    list.zip(path.file_name()).is_some_and(|(names, name)| !names.contains(name))
}

/// Lists a directory; `None` if it has so many names that looking for each path is faster, or cannot
/// be read.
fn names(directory: &Path) -> Option<BTreeSet<OsString>> {
    let mut entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(BTreeSet::new()),
        entries => entries.ok()?,
    };
    let names = entries.by_ref().take(MAX_LISTED).map(|entry| Some(entry.ok()?.file_name()));
    let names = names.collect::<Option<_>>()?;
    entries.next().is_none().then_some(names)
}

/// Lists the file, or the files below the directory; none of a directory with too many entries.
fn files(path: &Path) -> Vec<PathBuf> {
    match path.symlink_metadata() {
        Err(_) => return Vec::new(),
        Ok(meta) if !meta.is_dir() => return vec![path.to_owned()],
        Ok(_) => {}
    }
    let mut open = vec![path.to_owned()];
    let mut files = Vec::new();
    let mut checked = 0;
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            checked += 1;
            if checked > MAX_ENTRIES {
                return Vec::new();
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                _ => files.push(entry.path()),
            }
        }
    }
    files
}

pub fn print(changed: &[PathBuf], ui: Ui) {
    if changed.is_empty() {
        return;
    }
    let named: Vec<String> = changed.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
    let more = changed.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    ui.notice(&format!("changed inside, and used by tools on the host: {}{more}", named.join(", ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_a_list_lacks_are_left_out() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        let watched = [".envrc", ".github/workflows", ".missing/deep", ".vscode"].map(|name| root.join(name));
        let found = || existing(&watched).map(Path::to_owned).collect::<Vec<_>>();
        assert_eq!(found(), Vec::<PathBuf>::new());
        fs::create_dir_all(root.join(".github/workflows"))?;
        std::os::unix::fs::symlink("nowhere", root.join(".envrc"))?;
        assert_eq!(found(), [root.join(".envrc"), root.join(".github/workflows")]);
        for number in 0..=MAX_LISTED {
            fs::write(root.join(number.to_string()), "")?;
        }
        assert_eq!(found().len(), watched.len() - 1, "the list of `.missing` is short");
        Ok(())
    }

    /// The clock of a file system advances by some milliseconds at once, so a file that was written
    /// just before the launch often has the time of the launch.
    #[test]
    fn a_file_written_at_the_time_of_the_launch_is_not_reported() -> std::io::Result<()> {
        for _ in 0..50 {
            let directory = tempfile::tempdir()?;
            let root = directory.path();
            let watched = [root.join(".envrc"), root.join(".vscode")];
            fs::create_dir(root.join(".vscode"))?;
            fs::write(root.join(".vscode/tasks.json"), "{}")?;
            fs::write(root.join(".envrc"), "")?;
            let stamps = Stamps::of(&watched);
            assert_eq!(stamps.changed(&watched), Vec::<PathBuf>::new());
            fs::write(root.join(".vscode/new.json"), "{}")?;
            fs::write(root.join(".envrc"), "changed")?;
            assert_eq!(stamps.changed(&watched), [root.join(".envrc"), root.join(".vscode/new.json")]);
        }
        Ok(())
    }
}
