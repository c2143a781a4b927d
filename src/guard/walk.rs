//! Finds what a sandbox may have made: Git directories in known ones, repositories in the workspaces, changed files.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType, Mode, OFlags};

/// Deeper than people nest; a guest that nests deeper hides from Git as well, whose paths have an end.
const DEEPEST: usize = 200;
/// How many entries of a watched directory are looked at.
const MOST_WATCHED: usize = 2000;

/// Something that Git would take for a repository.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A Git directory: `.git`, or a bare repository.
    GitDir(PathBuf),
    /// A `.git` file or link.
    Pointer(PathBuf),
}

/// The Git directories of worktrees and submodules in these, but not these.
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
        if !kind.is_dir() || known.contains(&path.as_path()) || depth > DEEPEST {
            continue;
        }
        if path.join("HEAD").symlink_metadata().is_ok() || path.join("config").symlink_metadata().is_ok() {
            found.push(path.clone());
        }
        collect(&path, known, depth + 1, found);
    }
}

/// How far a walk goes before it is left to someone who has more time.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    until: Option<Instant>,
}

impl Budget {
    /// So many entries are looked at in any case: most workspaces have no more.
    const FREE: usize = 2000;

    /// Until the end.
    pub const UNLIMITED: Budget = Budget { until: None };

    /// A twentieth of the time that the sandbox ran: what it takes is then not noticed.
    pub fn after(session: Duration) -> Self {
        Budget { until: Some(Instant::now() + session / 20) }
    }

    /// Whether a walk through so many entries is worth beginning.
    fn suffices_for(self, expected: usize) -> bool {
        // A microsecond for each is less than it takes: one that might be through in time is begun.
        let end = || Instant::now() + Duration::from_micros(expected.try_into().unwrap_or(u64::MAX));
        expected <= Self::FREE || self.until.is_none_or(|until| end() <= until)
    }

    fn is_spent(self, looked_at: usize) -> bool {
        looked_at > Self::FREE && self.until.is_some_and(|until| Instant::now() > until)
    }
}

/// So many bytes of Git's index stand for a file: its names are seldom longer. An index of another size only decides who walks, and
/// when.
const BYTES_OF_INDEX: u64 = 128;

/// How many files the known repositories have at least, by their indices.
fn expected(known: &[&Path]) -> usize {
    let size = |git_dir: &&Path| git_dir.join("index").symlink_metadata().map_or(0, |meta| meta.len());
    (known.iter().map(size).sum::<u64>() / BYTES_OF_INDEX).try_into().unwrap_or(usize::MAX)
}

/// The repositories in the workspaces, those already known left out; `None` if the budget did not suffice.
pub fn repositories(roots: &[PathBuf], known: &[&Path], budget: Budget) -> Option<Vec<Found>> {
    if !budget.suffices_for(expected(known)) {
        return None;
    }
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut open: Vec<(PathBuf, usize)> = roots.iter().map(|root| (root.clone(), 0)).collect();
    while let Some((directory, depth)) = open.pop() {
        if known.contains(&directory.as_path()) {
            continue;
        }
        let (mut objects, mut refs, mut head, mut common) = (false, false, false, false);
        for (name, is_directory) in names(&directory) {
            looked_at += 1;
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
                    if is_directory && depth < DEEPEST {
                        open.push((directory.join(OsStr::from_bytes(word)), depth + 1));
                    }
                }
            }
        }
        // A Git directory, or the two halves of one: `HEAD` here, objects and settings where `commondir` leads.
        if objects && refs || head && common {
            found.push(Found::GitDir(directory));
        }
        if budget.is_spent(looked_at) {
            return None;
        }
    }
    Some(found)
}

/// The names in a directory, and which are directories. Without a path for each: workspaces have very many files.
fn names(directory: &Path) -> impl Iterator<Item = (CString, bool)> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty()).and_then(Dir::new);
    let directory = directory.to_owned();
    opened.into_iter().flatten().flatten().map(move |entry| {
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            // Some file systems do not say.
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

/// The file, or the files below the directory; none of a directory with too many entries.
pub fn watched_files(path: &Path) -> Vec<PathBuf> {
    match path.symlink_metadata() {
        Err(_) => return Vec::new(),
        Ok(meta) if !meta.is_dir() => return vec![path.to_owned()],
        Ok(_) => {}
    }
    let mut open = vec![path.to_owned()];
    let mut files = Vec::new();
    let mut looked_at = 0;
    while let Some(directory) = open.pop() {
        for (path, kind) in entries(&directory) {
            looked_at += 1;
            if looked_at > MOST_WATCHED {
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
    fn a_large_repository_is_not_begun_after_a_short_session() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let git_dir = directory.path().join(".git");
        let planted = directory.path().join("below/.git");
        fs::create_dir_all(&git_dir)?;
        fs::create_dir_all(&planted)?;
        let look = |budget| repositories(&[directory.path().to_owned()], &[&git_dir], budget);
        let whole = || Some(vec![Found::GitDir(planted.clone())]);
        // Small ones are looked at in any case, also those whose index is not there, or not a file.
        assert_eq!(look(Budget::after(Duration::ZERO)), whole());
        // As large as that of 100,000 files.
        fs::File::create(git_dir.join("index"))?.set_len(100_000 * BYTES_OF_INDEX)?;
        assert_eq!(look(Budget::after(Duration::ZERO)), None);
        assert_eq!(look(Budget::after(Duration::from_secs(600))), whole());
        assert_eq!(look(Budget::UNLIMITED), whole());
        Ok(())
    }
}
