//! Finds Git directories in known ones, repositories in the workspaces, and changed files.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType, Mode, OFlags};

/// Deeper directories are not searched. Paths of that depth exceed the limits of Git as well.
const MAX_DEPTH: usize = 200;
/// At most this many entries of a watched directory are checked.
const MAX_WATCHED: usize = 2000;

/// A path that Git treats as a repository.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A Git directory: `.git`, or a bare repository.
    GitDir(PathBuf),
    /// A `.git` file or link.
    Pointer(PathBuf),
}

/// Lists the Git directories of worktrees and submodules below the known ones.
pub fn git_dirs_below(known: &[&Path]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in known {
        for kind in ["worktrees", "modules"] {
            collect(&dir.join(kind), known, 0, &mut found);
        }
    }
    found
}

fn collect(directory: &Path, known: &[&Path], depth: usize, found: &mut Vec<PathBuf>) {
    for (path, kind) in entries(directory) {
        if !kind.is_dir() || known.contains(&path.as_path()) || depth > MAX_DEPTH {
            continue;
        }
        if path.join("HEAD").symlink_metadata().is_ok() || path.join("config").symlink_metadata().is_ok() {
            found.push(path.clone());
        }
        collect(&path, known, depth + 1, found);
    }
}

/// The time that a search may take before it is left to the background.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    until: Option<Instant>,
}

impl Budget {
    /// This many entries are checked regardless of the time; most workspaces have no more.
    const ALWAYS: usize = 2000;

    pub const UNLIMITED: Budget = Budget { until: None };

    /// Permits a twentieth of the time that the sandbox ran.
    pub fn after(session: Duration) -> Self {
        Budget { until: Some(Instant::now() + session / 20) }
    }

    /// Tells whether a search of this many entries may finish in time.
    fn suffices_for(self, expected: usize) -> bool {
        // An entry takes more than a microsecond, so this underestimates.
        let end = || Instant::now() + Duration::from_micros(expected.try_into().unwrap_or(u64::MAX));
        expected <= Self::ALWAYS || self.until.is_none_or(|until| end() <= until)
    }

    fn is_spent(self, checked: usize) -> bool {
        checked > Self::ALWAYS && self.until.is_some_and(|until| Instant::now() > until)
    }
}

/// Estimated bytes of Git's index per file; used only to decide whether to search now or in the
/// background.
const INDEX_BYTES_PER_FILE: u64 = 128;

/// Estimates the number of files in the known repositories from their indices.
fn estimated_files(known: &[&Path]) -> usize {
    let size = |git_dir: &&Path| git_dir.join("index").symlink_metadata().map_or(0, |meta| meta.len());
    (known.iter().map(size).sum::<u64>() / INDEX_BYTES_PER_FILE).try_into().unwrap_or(usize::MAX)
}

/// Finds the repositories in the workspaces that are not known. Returns `None` if the budget does not
/// suffice.
pub fn repositories(roots: &[PathBuf], known: &[&Path], budget: Budget) -> Option<Vec<Found>> {
    if !budget.suffices_for(estimated_files(known)) {
        return None;
    }
    let mut found = Vec::new();
    let mut checked = 0;
    let mut open: Vec<(PathBuf, usize)> = roots.iter().map(|root| (root.clone(), 0)).collect();
    while let Some((directory, depth)) = open.pop() {
        if known.contains(&directory.as_path()) {
            continue;
        }
        let (mut objects, mut refs, mut head, mut common) = (false, false, false, false);
        for (name, is_directory) in names(&directory) {
            checked += 1;
            match name.to_bytes() {
                b"." | b".." => {}
                b".git" => {
                    let path = directory.join(".git");
                    if !is_directory {
                        found.push(Found::Pointer(path));
                    } else if !known.contains(&path.as_path()) {
                        found.push(Found::GitDir(path));
                    }
                }
                word => {
                    objects |= word == b"objects";
                    refs |= word == b"refs";
                    head |= word == b"HEAD";
                    common |= word == b"commondir";
                    if is_directory && depth < MAX_DEPTH {
                        open.push((directory.join(OsStr::from_bytes(word)), depth + 1));
                    }
                }
            }
        }
        // A Git directory has its objects here or where `commondir` points.
        if objects && refs || head && common {
            found.push(Found::GitDir(directory));
        }
        if budget.is_spent(checked) {
            return None;
        }
    }
    Some(found)
}

/// Lists the names in a directory and whether they are directories. Allocates no path for each,
/// because workspaces have many files.
fn names(directory: &Path) -> impl Iterator<Item = (CString, bool)> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty()).and_then(Dir::new);
    let directory = directory.to_owned();
    opened.into_iter().flatten().flatten().map(move |entry| {
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            // Some file systems do not report the type.
            FileType::Unknown => {
                let path = directory.join(OsStr::from_bytes(entry.file_name().to_bytes()));
                path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
            }
            _ => false,
        };
        (entry.file_name().to_owned(), is_directory)
    })
}

fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, fs::FileType)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.file_type().ok()?)))
}

/// Lists the file, or the files below the directory; none of a directory with too many entries.
pub fn watched_files(path: &Path) -> Vec<PathBuf> {
    match path.symlink_metadata() {
        Err(_) => return Vec::new(),
        Ok(meta) if !meta.is_dir() => return vec![path.to_owned()],
        Ok(_) => {}
    }
    let mut open = vec![path.to_owned()];
    let mut files = Vec::new();
    let mut checked = 0;
    while let Some(directory) = open.pop() {
        for (path, kind) in entries(&directory) {
            checked += 1;
            if checked > MAX_WATCHED {
                return Vec::new();
            }
            if kind.is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_repository_is_not_searched_after_a_short_session() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let git_dir = directory.path().join(".git");
        let planted = directory.path().join("below/.git");
        fs::create_dir_all(&git_dir)?;
        fs::create_dir_all(&planted)?;
        let look = |budget| repositories(&[directory.path().to_owned()], &[&git_dir], budget);
        let whole = || Some(vec![Found::GitDir(planted.clone())]);
        // Small workspaces are always searched, also if the index is missing or not a file.
        assert_eq!(look(Budget::after(Duration::ZERO)), whole());
        // The index of 100,000 files.
        fs::File::create(git_dir.join("index"))?.set_len(100_000 * INDEX_BYTES_PER_FILE)?;
        assert_eq!(look(Budget::after(Duration::ZERO)), None);
        assert_eq!(look(Budget::after(Duration::from_secs(600))), whole());
        assert_eq!(look(Budget::UNLIMITED), whole());
        Ok(())
    }
}
