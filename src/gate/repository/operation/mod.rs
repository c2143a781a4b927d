//! Brings an unfinished merge, cherry-pick, revert, bisect or rebase of one worktree out of the
//! guest's Git directory, and removes it from the host's once the guest has finished it.
//!
//! Only files on the list in `list.rs` come out, each with content that Git reads but does not
//! execute. If one file is not on the list, the whole operation stays inside.

mod list;
mod quoted;
mod todo;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::process::untrusted_dir::UntrustedDir;
use list::{Checker, Content, DIRECTORIES, REQUIRED, TOP_LEVEL};

/// Git keeps at most some thirty files of an operation in one directory.
const MAX_ENTRIES: usize = 64;
const MAX_TOTAL: usize = 16 << 20;
/// A session of `git am`. It contains options of `git apply` and the patches themselves.
const MAIL_DIRECTORY: &str = "rebase-apply";
/// Exists in the host's Git directory only while `apply` runs, or after it was killed.
const TEMPORARY: &str = "sandpen-operation.tmp";
/// Git takes the operation to be in progress as soon as one of these exists.
const MARKERS: &[&str] = &[
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "BISECT_START",
    "sequencer",
    "rebase-merge",
    MAIL_DIRECTORY,
];

/// The files of an unfinished operation, each checked to contain nothing that Git executes, by
/// their path relative to the worktree's Git directory.
#[derive(Default, PartialEq, Eq, Clone, Debug)]
pub struct Operation {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Operation {
    /// Lists the ids of the objects that Git needs to continue or abort the operation. Abbreviated
    /// ids are not among them. `AUTO_MERGE` names a tree, all others name commits.
    pub fn ids(&self) -> BTreeSet<String> {
        let files = self.files.iter().filter_map(|(path, content)| {
            Some(list::content_of(path.to_str()?)?.ids(std::str::from_utf8(content).unwrap_or_default()))
        });
        files.flatten().collect()
    }

    fn is_below(&self, directory: &str) -> bool {
        self.files.keys().any(|path| path.starts_with(directory))
    }
}

/// Tells whether an operation is in progress. Without one there may still be a message for the next
/// commit (`git merge --squash`, `git cherry-pick --no-commit`), which [`read`] returns.
pub fn is_in_progress(git_dir: &UntrustedDir) -> bool {
    MARKERS.iter().any(|name| git_dir.stat(name).is_ok())
}

/// Tells whether a file at the top of a Git directory belongs to an operation.
pub fn is_part(name: &str) -> bool {
    TOP_LEVEL.iter().any(|(known, _)| *known == name)
}

/// Reads the operation; the result is empty if there is none. Returns the reason if it contains a
/// command or anything else that is not on the list; then all of it stays inside.
pub fn read(git_dir: &UntrustedDir, id_len: usize, is_valid_ref: fn(&str) -> bool) -> Result<Operation, String> {
    if git_dir.stat(MAIL_DIRECTORY).is_ok() {
        return Err(format!("`{MAIL_DIRECTORY}` contains patches that are being applied"));
    }
    let checker = Checker { id_digits: id_len * 2, is_valid_ref };
    let mut operation = Operation::default();
    let mut total = 0;
    for (path, content) in listed(git_dir)? {
        if content == Content::Unused {
            continue;
        }
        let bytes =
            git_dir.read(&path, content.max_size()).map_err(|error| format!("cannot read `{path}`: {error}"))?;
        let Some(bytes) = bytes else { continue };
        total += bytes.len();
        if total > MAX_TOTAL {
            return Err(format!("it is larger than {} MiB", MAX_TOTAL >> 20));
        }
        checker.check(content, &bytes).map_err(|problem| format!("`{path}` {problem}"))?;
        operation.files.insert(PathBuf::from(path), bytes);
    }
    for path in REQUIRED {
        let directory = path.split('/').next().unwrap_or_default();
        if operation.is_below(directory) && !operation.files.contains_key(Path::new(path)) {
            return Err(format!("`{path}` is missing"));
        }
    }
    Ok(operation)
}

/// Lists the paths to read: all names that the list has at the top level, whether they exist or
/// not, and all existing names of the directories.
fn listed(git_dir: &UntrustedDir) -> Result<Vec<(String, Content)>, String> {
    let mut found: Vec<(String, Content)> =
        TOP_LEVEL.iter().map(|&(name, content)| (name.to_owned(), content)).collect();
    for directory in DIRECTORIES {
        let entries = match git_dir.directory(Path::new(directory)) {
            Ok(opened) => opened.entries(MAX_ENTRIES),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => Err(error),
        };
        for (name, _) in entries.map_err(|error| format!("cannot read `{directory}`: {error}"))? {
            let path = format!("{directory}/{}", name.to_string_lossy());
            let content = name.to_str().and_then(|_| list::content_of(&path));
            let content = content.ok_or_else(|| format!("`{}` is not a file that comes out", path.escape_debug()))?;
            found.push((path, content));
        }
    }
    Ok(found)
}

/// Writes an operation into the host's Git directory and removes the files of `before` that are not
/// in `now`. Returns `false` and changes nothing if the host's operation is not `before`.
///
/// After a kill another call with the same arguments completes the change: each file is then as in
/// `before` or as in `now`. The caller records `now` before the call, and prevents that two calls
/// for the same directory overlap.
pub fn apply(host_git_dir: &Path, before: &Operation, now: &Operation) -> io::Result<bool> {
    if let Some(path) = now.files.keys().find(|path| path.to_str().and_then(list::content_of).is_none()) {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("`{}` is not on the list", path.display())));
    }
    remove_temporary(host_git_dir)?;
    let Some(present) = present(host_git_dir)? else { return Ok(false) };
    let paths: BTreeSet<&PathBuf> = present.files.keys().chain(before.files.keys()).chain(now.files.keys()).collect();
    let is_expected = |path: &&PathBuf| {
        let content = present.files.get(*path);
        content == before.files.get(*path) || content == now.files.get(*path)
    };
    if !paths.iter().all(is_expected) {
        return Ok(false);
    }
    remove_finished(host_git_dir, &present, now)?;
    write_changed(host_git_dir, &present, now)?;
    Ok(true)
}

/// Reads the host's operation without checking contents; `None` if it has files that are not on the
/// list, or a session of `git am`. Fails if there is a link.
fn present(host_git_dir: &Path) -> io::Result<Option<Operation>> {
    let git_dir = UntrustedDir::open(host_git_dir)?;
    if git_dir.stat(MAIL_DIRECTORY).is_ok() {
        return Ok(None);
    }
    let mut operation = Operation::default();
    for directory in DIRECTORIES {
        match git_dir.stat(directory) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {}
            Ok(_) => return Err(io::Error::new(ErrorKind::InvalidData, format!("`{directory}` is not a directory"))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let Ok(listed) = listed(&git_dir) else { return Ok(None) };
    for (path, content) in listed {
        if content == Content::Unused {
            continue;
        }
        match git_dir.read(&path, content.max_size()) {
            Ok(Some(bytes)) => drop(operation.files.insert(PathBuf::from(path), bytes)),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::FileTooLarge => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(operation))
}

fn remove_finished(host_git_dir: &Path, present: &Operation, now: &Operation) -> io::Result<()> {
    let mut gone: Vec<&PathBuf> = present.files.keys().filter(|path| !now.files.contains_key(*path)).collect();
    gone.sort_by_key(|path| !is_marker(path));
    for directory in DIRECTORIES {
        if present.is_below(directory) && !now.is_below(directory) {
            fs::rename(host_git_dir.join(directory), host_git_dir.join(TEMPORARY))?;
            remove_temporary(host_git_dir)?;
            gone.retain(|path| !path.starts_with(directory));
        }
    }
    gone.into_iter().try_for_each(|path| fs::remove_file(host_git_dir.join(path)))
}

/// Writes markers last, so that Git never sees an operation without its other files.
fn write_changed(host_git_dir: &Path, present: &Operation, now: &Operation) -> io::Result<()> {
    let mut changed: Vec<(&PathBuf, &Vec<u8>)> =
        now.files.iter().filter(|(path, content)| present.files.get(*path) != Some(content)).collect();
    changed.sort_by_key(|(path, _)| is_marker(path));
    let temporary = host_git_dir.join(TEMPORARY);
    for directory in DIRECTORIES {
        if !now.is_below(directory) || host_git_dir.join(directory).exists() {
            continue;
        }
        fs::create_dir(&temporary)?;
        let (below, rest) = changed.into_iter().partition(|(path, _)| path.starts_with(directory));
        changed = rest;
        for (path, content) in below {
            write_new(&temporary.join(path.file_name().unwrap_or_default()), content)?;
        }
        fs::rename(&temporary, host_git_dir.join(directory))?;
    }
    for (path, content) in changed {
        write_new(&temporary, content)?;
        fs::rename(&temporary, host_git_dir.join(path))?;
    }
    Ok(())
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?.write_all(content)
}

fn remove_temporary(host_git_dir: &Path) -> io::Result<()> {
    let path = host_git_dir.join(TEMPORARY);
    let removed = match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
        Ok(_) => fs::remove_file(&path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is_marker(path: &Path) -> bool {
    path.to_str().is_some_and(|path| MARKERS.contains(&path))
}
