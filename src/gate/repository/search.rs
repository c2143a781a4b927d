//! Finds the repositories in a workspace. Follows no links, has no limit of depth, and opens
//! directories whose owner took the permission to read them away.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

use super::root::open_root;
use super::seen_directories::{DirectoryStamp, Record, SeenDirectories, stamps};
use crate::process::bounded_work::{self, Stopped};
use crate::process::untrusted_dir::UntrustedDir;

/// So many directories above the current one are open, and one of each `ANCHOR_DISTANCE` above them
/// as far as `MAX_ANCHOR_DEPTH`, so that the search neither uses up the descriptors of the process
/// nor opens all directories above each one again.
const MAX_OPEN_ABOVE: usize = 50;
const ANCHOR_DISTANCE: usize = 100;
const MAX_ANCHOR_DEPTH: usize = 10_000;

/// A path that Git treats as a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    pub kind: FoundKind,
    pub path: PathBuf,
    /// The time in seconds at which it was created or last changed, whichever is earlier, before
    /// sandpen changed its permissions; `None` if it is not known.
    pub since: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FoundKind {
    /// A directory `.git`.
    GitDir,
    /// A directory that Git takes for a Git directory, or nearly so, with another name.
    Bare,
    /// A `.git` that is a file.
    Pointer,
    /// A `.git` that is neither a file nor a directory.
    Odd,
    /// A directory that cannot be searched.
    Unreadable,
}

/// A directory that is still to be searched.
struct Pending {
    name: OsString,
    depth: usize,
    /// Its record in the list of an earlier search.
    seen: Option<usize>,
}

/// Searches a directory, without those in `known`. Directories that `seen` contains and that did not
/// change since are not listed again; it must come from a search with the same `known`. Returns the
/// list for the next search as well. Fails if it is stopped.
pub fn repositories(
    root: &Path,
    known: &[PathBuf],
    seen: &SeenDirectories,
) -> Result<(Vec<Found>, SeenDirectories), Stopped> {
    let mut found = Vec::new();
    let mut now = SeenDirectories::default();
    let unreadable = |path: PathBuf| Found { kind: FoundKind::Unreadable, path, since: None };
    let Ok(top) = open_root(root) else { return Ok((vec![unreadable(root.to_owned())], now)) };
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let clock = i64::try_from(clock).unwrap_or(0);
    let known_below: Vec<Vec<&OsStr>> =
        known.iter().filter_map(|known| Some(known.strip_prefix(root).ok()?.iter().collect())).collect();
    let records = seen.records();
    let stamps = stamps(&top, &records);
    let first = (!records.is_empty()).then_some(0);
    let mut way = Way { top, above: Vec::new() };
    let mut open = vec![Pending { name: OsString::new(), depth: 0, seen: first }];
    while let Some(Pending { name, depth, seen }) = open.pop() {
        way.leave(depth);
        bounded_work::check()?;
        if known_below.iter().any(|known| way.leads_to(&name, known)) {
            now.push(depth, &name, None, 0);
            continue;
        }
        let record = seen.and_then(|number| records.get(number));
        let stamp = match seen.and_then(|number| stamps.get(number)) {
            Some(stamp) => *stamp,
            None => way.stat(&name).ok().and_then(|stat| DirectoryStamp::of(&stat)),
        };
        if let Some(record) = record.filter(|record| stamp.is_some() && record.stamp == stamp) {
            now.push(depth, &name, stamp, record.children.len());
            let below = record.children.iter().filter_map(|child| Some((*child, records.get(*child)?)));
            let pending = |(child, record): (usize, &Record<'_>)| Pending {
                name: record.name.to_owned(),
                depth: depth + 1,
                seen: Some(child),
            };
            open.extend(below.map(pending));
            way.enter(name, None);
            continue;
        }
        let opened = way.open(&name);
        let entries = opened.and_then(|directory| Ok((directory.entries(usize::MAX)?, directory)));
        let (entries, directory) = match entries {
            Ok(read) => read,
            Err(error) => {
                now.push(depth, &name, None, 0);
                if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                    found.push(unreadable(way.path(root, &name)));
                }
                continue;
            }
        };
        let has = |name: &str| entries.iter().any(|(known, _)| known == name);
        let is_bare = has("HEAD") && (has("objects") || has("refs") || has("commondir"));
        if is_bare {
            let changed = stamp.map(|stamp| stamp.changed.0);
            let since = changed.map(|changed| earlier(changed, directory.time_of_creation("")));
            found.push(Found { kind: FoundKind::Bare, path: way.path(root, &name), since });
        }
        let before: HashMap<&OsStr, usize> = record
            .iter()
            .flat_map(|record| &record.children)
            .filter_map(|child| Some((records.get(*child)?.name, *child)))
            .collect();
        let (mut below, mut has_repository) = (Vec::new(), is_bare);
        for (entry, kind) in entries {
            if is_dot_git(&entry) {
                let path = way.path(root, &name).join(&entry);
                if !known.contains(&path) {
                    has_repository = true;
                    let kind = match kind {
                        FileType::Directory => FoundKind::GitDir,
                        FileType::RegularFile => FoundKind::Pointer,
                        _ => FoundKind::Odd,
                    };
                    found.push(Found { kind, path, since: since(&directory, &entry) });
                }
            } else if kind == FileType::Directory {
                let seen = before.get(entry.as_os_str()).copied();
                below.push(Pending { name: entry, depth: depth + 1, seen });
            }
        }
        now.push(depth, &name, stamp.filter(|stamp| !has_repository && stamp.is_settled(clock)), below.len());
        open.append(&mut below);
        way.enter(name, Some(directory));
    }
    found.sort();
    Ok((found, now))
}

/// The directories from the root to the one that is searched.
struct Way {
    top: UntrustedDir,
    /// Those below the root, with a descriptor if they are open.
    above: Vec<(OsString, Option<UntrustedDir>)>,
}

impl Way {
    /// Returns to the directory that contains those of a depth.
    fn leave(&mut self, depth: usize) {
        self.above.truncate(depth.saturating_sub(1));
    }

    /// Adds a directory; the root has no name.
    fn enter(&mut self, name: OsString, directory: Option<UntrustedDir>) {
        if name.is_empty() {
            return;
        }
        self.above.push((name, directory));
        let closed = self.above.len().checked_sub(MAX_OPEN_ABOVE + 1).filter(|at| !is_anchor(*at));
        if let Some((_, directory)) = closed.and_then(|at| self.above.get_mut(at)) {
            *directory = None;
        }
    }

    fn leads_to(&self, name: &OsStr, names: &[&OsStr]) -> bool {
        let above = self.above.iter().map(|(name, _)| name.as_os_str());
        let way = above.chain((!name.is_empty()).then_some(name));
        names.len() <= self.above.len() + 1 && way.eq(names.iter().copied())
    }

    fn path(&self, root: &Path, name: &OsStr) -> PathBuf {
        let mut path = root.to_owned();
        path.extend(self.above.iter().map(|(name, _)| name));
        if !name.is_empty() {
            path.push(name);
        }
        path
    }

    /// Opens a directory of the current one; without a name, the root.
    fn open(&mut self, name: &OsStr) -> io::Result<UntrustedDir> {
        if name.is_empty() {
            return self.top.directory(Path::new(""));
        }
        self.current()?.open_granted(Path::new(name))
    }

    fn stat(&mut self, name: &OsStr) -> io::Result<Stat> {
        if name.is_empty() { Ok(rustix::fs::fstat(&self.top)?) } else { self.current()?.stat(name) }
    }

    /// Opens those directories again that were closed, from the last one that is open.
    fn current(&mut self) -> io::Result<&UntrustedDir> {
        let first = self.above.iter().rposition(|(_, directory)| directory.is_some()).map_or(0, |at| at + 1);
        let count = self.above.len();
        let mut last: Option<UntrustedDir> = None;
        for at in first..count {
            let above = match (&last, at.checked_sub(1).and_then(|at| self.above.get(at))) {
                (Some(last), _) | (None, Some((_, Some(last)))) => last,
                _ => &self.top,
            };
            let name = self.above.get(at).map(|(name, _)| name.as_os_str()).unwrap_or_default();
            let opened = above.open_granted(Path::new(name))?;
            if let Some(last) = last.take()
                && let Some((_, kept)) = self.above.get_mut(at - 1)
                && (at + MAX_OPEN_ABOVE > count || is_anchor(at - 1))
            {
                *kept = Some(last);
            }
            last = Some(opened);
        }
        if let (Some(last), Some((_, kept))) = (last, self.above.last_mut()) {
            *kept = Some(last);
        }
        Ok(self.above.last().and_then(|(_, directory)| directory.as_ref()).unwrap_or(&self.top))
    }
}

fn is_anchor(depth: usize) -> bool {
    depth.is_multiple_of(ANCHOR_DISTANCE) && depth <= MAX_ANCHOR_DEPTH
}

/// Returns the earlier one of the times at which an entry was created and last changed.
fn since(directory: &UntrustedDir, name: &OsStr) -> Option<i64> {
    Some(earlier(directory.stat(name).ok()?.st_ctime, directory.time_of_creation(name)))
}

fn earlier(changed: i64, created: Option<i64>) -> i64 {
    created.map_or(changed, |created| created.min(changed))
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

    fn kinds(found: Vec<Found>) -> Vec<(FoundKind, PathBuf)> {
        found.into_iter().map(|found| (found.kind, found.path)).collect()
    }

    /// Directories beside the deep ones are searched on the way back, when those above are closed.
    #[test]
    fn many_levels_are_searched_with_few_descriptors() -> io::Result<()> {
        const LEVELS: usize = 3 * ANCHOR_DISTANCE;
        let directory = tempfile::tempdir()?;
        let root = directory.path().canonicalize()?;
        let mut way = vec![UntrustedDir::open(&root)?];
        for _ in 0..LEVELS {
            let above = way.pop().ok_or(ErrorKind::NotFound)?;
            above.create_directory(Path::new("a/.git"))?;
            above.create_directory(Path::new("z/.git"))?;
            way.push(above.create_directory(Path::new("m"))?);
        }
        let (found, _) = repositories(&root, &[], &SeenDirectories::default())?;
        assert_eq!(found.len(), 2 * LEVELS);
        let mut way = Way { top: UntrustedDir::open(&root)?, above: Vec::new() };
        for _ in 0..LEVELS {
            way.enter("m".into(), None);
        }
        for depth in (1..=LEVELS).rev() {
            way.leave(depth + 1);
            way.current()?;
            let open = way.above.iter().filter(|(_, directory)| directory.is_some()).count();
            assert!(open <= MAX_OPEN_ABOVE + LEVELS / ANCHOR_DISTANCE + 1, "{open} are open at {depth}");
        }
        Ok(())
    }

    #[test]
    fn the_time_of_a_repository_is_not_that_of_a_changed_mode() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path().canonicalize()?;
        fs::create_dir_all(root.join("a/.git"))?;
        let created = UntrustedDir::open(&root.join("a"))?.time_of_creation(".git");
        let search =
            || repositories(&root, &[], &SeenDirectories::default()).map(|(found, _)| found).unwrap_or_default();
        let before = search();
        assert!(before.iter().all(|found| found.since.is_some()));
        if created.is_some() {
            fs::set_permissions(root.join("a/.git"), fs::Permissions::from_mode(0o500))?;
            assert_eq!(search(), before);
        }
        Ok(())
    }

    #[test]
    fn repositories_are_found_at_any_depth_and_behind_closed_directories() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = &directory.path().canonicalize()?;
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
        let known = [root.join("known/.git")];
        let (found, seen) = repositories(root, &known, &SeenDirectories::default())?;
        let found = kinds(found);
        let at = |path: &str| root.join(path);
        for expected in [
            (FoundKind::GitDir, at("new/.git")),
            (FoundKind::GitDir, at("closed/in/.git")),
            (FoundKind::GitDir, root.join(below).join(".git")),
            (FoundKind::Bare, at("bare")),
            (FoundKind::Pointer, at("worktree/.git")),
            (FoundKind::Odd, at("linked/.git")),
        ] {
            assert!(found.contains(&expected), "{expected:?}");
        }
        assert_eq!(kinds(repositories(root, &known, &seen)?.0), found);
        assert_eq!(found.len(), 6, "{found:?}");
        Ok(())
    }

    #[test]
    fn a_directory_that_was_seen_is_listed_again_if_it_changed() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = &directory.path().canonicalize()?;
        fs::create_dir_all(root.join("a/b"))?;
        let top = UntrustedDir::open(root)?;
        let mut seen = SeenDirectories::default();
        for (path, count) in [("", 1), ("a", 1), ("a/b", 0)] {
            // As if they had been seen some seconds later.
            let stamp = DirectoryStamp::at(&top, Path::new(path));
            seen.push(0, Path::new(path).file_name().unwrap_or_default(), stamp, count);
        }
        let file = root.with_extension("seen");
        seen.save(&file, &[])?;
        let search = || repositories(root, &[], &SeenDirectories::load(&file, &[])).unwrap_or_default();
        assert_eq!(search(), (Vec::new(), seen.clone()));
        // A search that left out another repository may not have listed a directory with this one.
        assert_eq!(SeenDirectories::load(&file, &[root.join("a/.git")]), SeenDirectories::default());
        // The clock of the file system must have advanced for the change to have another time.
        loop {
            fs::create_dir(root.join("a/b/.git"))?;
            if DirectoryStamp::at(&top, Path::new("a/b")) != seen.records().last().and_then(|record| record.stamp) {
                break;
            }
            fs::remove_dir(root.join("a/b/.git"))?;
        }
        assert_eq!(kinds(search().0), [(FoundKind::GitDir, root.join("a/b/.git"))]);
        fs::write(&file, b"damaged")?;
        assert_eq!(kinds(search().0), [(FoundKind::GitDir, root.join("a/b/.git"))]);
        fs::remove_file(file)
    }
}
