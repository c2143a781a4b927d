//! Makes a private Git directory from the host's. Copies regular files only; the guest gets no link
//! to a file of the host. What was given is kept beside it, for the comparison with what the guest
//! makes of it; files that Git replaces as a whole are kept as hard links, so that a large index is
//! copied once.

mod refs;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::base::keep_user_refs;
use super::delayed_copy::{self, DelayedCopy};
use super::host_git::HostGit;
use super::operation;
use crate::plan::repository::{PrivateGitDir, PrivateRepository, PrivateWorktree};
use crate::process::untrusted;

/// Files at the top of a Git directory that are larger are not copied.
const MAX_FILE: u64 = 1 << 20;
/// Reflogs of more branches than this are not copied, apart from those of HEAD and the stash.
const MAX_REFLOGS: usize = 100;
/// Directories deeper than this are not copied.
const MAX_DEPTH: usize = 16;
const INDEX: &str = "index";
/// Files that are compared at the end.
const COMPARED: &[&str] = &["HEAD", "config"];
/// Directories that are copied with everything in them.
const COPIED_DIRECTORIES: &[&str] = &["info", "rebase-merge", "rebase-apply", "sequencer"];

/// Indexes that are copied once the guest has started, with the private directories they are in.
type DelayedIndexes = Vec<(PathBuf, DelayedCopy)>;

/// Makes the private directories of a repository. If `may_delay` is set, large indexes are copied
/// later.
pub fn make(repository: &PrivateRepository, git: Option<&HostGit>, may_delay: bool) -> io::Result<DelayedIndexes> {
    let mut delayed = Vec::new();
    for dir in &repository.full {
        let index = full(dir, git, may_delay)?;
        delayed.extend(index.map(|index| (dir.private.clone(), index)));
    }
    let is_reftable = repository.full.first().is_some_and(|dir| dir.is_reftable);
    for worktree in &repository.worktrees {
        let index = linked(worktree, git.filter(|_| is_reftable), may_delay)?;
        delayed.extend(index.map(|index| (worktree.private.clone(), index)));
    }
    Ok(delayed)
}

/// Lets a guest that is another user write the private directories. The session's directory above
/// them is closed to others on the host.
pub fn open_to_all(repository: &PrivateRepository) -> io::Result<()> {
    let objects = repository.full.iter().map(|dir| &dir.private_objects);
    let private = repository.full.iter().map(|dir| &dir.private);
    private.chain(objects).try_for_each(|path| open_tree(path))
}

fn open_tree(path: &Path) -> io::Result<()> {
    let meta = path.symlink_metadata()?;
    let mode = meta.permissions().mode();
    if meta.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        for entry in fs::read_dir(path)? {
            open_tree(&entry?.path())?;
        }
    } else if meta.is_file() {
        fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o666))?;
    }
    Ok(())
}

/// Makes a private Git directory with objects, refs and configuration.
fn full(dir: &PrivateGitDir, git: Option<&HostGit>, may_delay: bool) -> io::Result<Option<DelayedCopy>> {
    let PrivateGitDir { host, private, base, .. } = dir;
    // Those above first, which saves failed attempts.
    directories(private, &["objects", "refs", "refs/heads", "refs/tags", "logs", "logs/refs"])?;
    directories(&dir.private_objects, &["info", "pack"])?;
    directories(base, &["", "refs"])?;
    let mut alternates = Vec::new();
    for path in &dir.alternates {
        alternates.extend_from_slice(path.as_os_str().as_bytes());
        alternates.push(b'\n');
    }
    let file = dir.private_objects.join("info/alternates");
    // A spare directory often has the right one.
    if untrusted::read_bytes(&file, MAX_FILE).ok().as_ref() != Some(&alternates) {
        fs::write(file, &alternates)?;
    }
    top_files(host, private, base)?;
    let index = index(host, private, &dir.given_index, may_delay)?;
    hooks(&host.join("hooks"), &private.join("hooks"))?;
    match git.filter(|_| dir.is_reftable) {
        Some(git) => convert_reftable(git, dir)?,
        None => refs::give(host, private, base)?,
    }
    keep_user_refs(base)?;
    reflogs(&host.join("logs"), &private.join("logs"))?;
    if private.join("logs/refs/stash").exists() {
        directories(base, &["logs/refs"])?;
        copy_if_regular(&private.join("logs/refs/stash"), &base.join("logs/refs/stash"), MAX_FILE)?;
    }
    Ok(index)
}

/// Makes the private Git directory of a linked worktree.
fn linked(worktree: &PrivateWorktree, reftable: Option<&HostGit>, may_delay: bool) -> io::Result<Option<DelayedCopy>> {
    let PrivateWorktree { host, private, base, .. } = worktree;
    directories(private, &["logs", "refs"])?;
    directories(base, &["refs"])?;
    top_files(host, private, base)?;
    let index = index(host, private, &worktree.given_index, may_delay)?;
    if host.join("refs").is_dir() {
        copy_tree(&host.join("refs"), &private.join("refs"), MAX_DEPTH)?;
    }
    if let Some(git) = reftable {
        write_head(git, host, [private, base])?;
    }
    copy_if_regular(&host.join("logs/HEAD"), &private.join("logs/HEAD"), MAX_FILE)?;
    Ok(index)
}

fn directories(parent: &Path, below: &[&str]) -> io::Result<()> {
    below.iter().try_for_each(|name| DirBuilder::new().recursive(true).mode(0o755).create(parent.join(name)))
}

/// Copies the files at the top of a Git directory, and the directories of an unfinished operation. The
/// base gets what comes out again.
fn top_files(host: &Path, private: &Path, base: &Path) -> io::Result<()> {
    for entry in fs::read_dir(host)?.flatten() {
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let Some(text) = name.to_str() else { continue };
        let from = entry.path();
        if kind.is_dir() && COPIED_DIRECTORIES.contains(&text) {
            copy_tree(&from, &private.join(text), MAX_DEPTH)?;
            if text != "info" {
                copy_tree(&from, &base.join(text), MAX_DEPTH)?;
            }
        }
        if !kind.is_file() || text.ends_with(".lock") || ["gc.pid", INDEX, refs::PACKED_REFS].contains(&text) {
            continue;
        }
        // Both must be the same, so it is read once.
        let Ok(content) = untrusted::read_bytes(&from, MAX_FILE) else { continue };
        write(&private.join(text), &content, 0o644)?;
        if operation::is_part(text) || COMPARED.contains(&text) {
            write(&base.join(text), &content, 0o644)?;
        }
    }
    Ok(())
}

/// Keeps the index, which Git only replaces, and gives the guest a copy of what was kept: the host's
/// may be another one by then.
fn index(host: &Path, private: &Path, given: &Path, may_delay: bool) -> io::Result<Option<DelayedCopy>> {
    let Some(index) = open_index(&host.join(INDEX))? else { return Ok(None) };
    if fs::hard_link(host.join(INDEX), given).is_err() {
        // Another file system, or one without links.
        delayed_copy::copy(index, given, false)?;
    }
    match open_index(given)? {
        Some(kept) => delayed_copy::copy(kept, &private.join(INDEX), may_delay),
        None => Ok(None),
    }
}

/// Opens an index; `None` if there is none, or something else in its place.
fn open_index(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ELOOP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Copies a regular file of at most `largest` bytes; does nothing for anything else.
fn copy_if_regular(from: &Path, to: &Path, largest: u64) -> io::Result<()> {
    match untrusted::read_bytes(from, largest) {
        Ok(content) => write(to, &content, 0o644),
        Err(_) => Ok(()),
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    create(path, mode)?.write_all(content)
}

/// Copies the regular files of a directory and those below it.
fn copy_tree(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let kind = entry.file_type()?;
        let target = to.join(entry.file_name());
        if kind.is_dir() && depth > 0 {
            copy_tree(&entry.path(), &target, depth - 1)?;
        } else if kind.is_file() {
            copy_if_regular(&entry.path(), &target, MAX_FILE)?;
        }
    }
    Ok(())
}

/// Copies hooks, so that they run inside as they do outside. Links stay links; the examples that
/// Git installs are left out.
fn hooks(from: &Path, to: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        Ok(entries) if !from.is_symlink() => entries,
        _ => return Ok(()),
    };
    DirBuilder::new().recursive(true).mode(0o755).create(to)?;
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        if entry.file_name().as_bytes().ends_with(b".sample") {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_dir() {
            copy_tree(&entry.path(), &target, MAX_DEPTH)?;
        } else if let Ok(content) = untrusted::read_bytes(&entry.path(), MAX_FILE) {
            write(&target, &content, entry.metadata()?.permissions().mode() & 0o777)?;
        }
    }
    Ok(())
}

/// Copies the reflogs of HEAD and the stash, and all others if there are few.
fn reflogs(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    list_files(&from.join("refs"), Path::new("refs"), MAX_DEPTH, &mut names);
    if names.len() > MAX_REFLOGS {
        // The stash may not have been reached.
        names = vec!["refs/stash".into()];
    }
    names.push("HEAD".into());
    let mut last = to.to_owned();
    for name in names {
        let target = to.join(&name);
        // The files of a directory follow each other.
        if let Some(above) = target.parent().filter(|above| *above != last) {
            DirBuilder::new().recursive(true).mode(0o755).create(above)?;
            above.clone_into(&mut last);
        }
        copy_if_regular(&from.join(&name), &target, MAX_FILE)?;
    }
    Ok(())
}

/// Lists the files below a directory, until there are more than `MAX_REFLOGS`.
fn list_files(directory: &Path, name: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if found.len() > MAX_REFLOGS {
            return;
        }
        let name = name.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => list_files(&entry.path(), &name, depth - 1, found),
            Ok(kind) if kind.is_file() => found.push(name),
            _ => {}
        }
    }
}

/// Writes the refs of a repository in the `reftable` format as files, which sandpen can read.
fn convert_reftable(git: &HostGit, dir: &PrivateGitDir) -> io::Result<()> {
    let PrivateGitDir { host, private, base, .. } = dir;
    let format = "--format=%(if)%(symref)%(then)%(else)%(objectname) %(refname)%(end)";
    let list = git.call(host, &["for-each-ref", format]).run().map_err(io::Error::other)?;
    let lines = list.split_inclusive(|byte| *byte == b'\n').filter(|line| line.len() > 1);
    let packed: Vec<u8> = refs::HEADER.iter().copied().chain(lines.flatten().copied()).collect();
    for directory in [private, base] {
        write(&directory.join("packed-refs"), &packed, 0o644)?;
    }
    write_head(git, host, [private, base])?;
    for directory in [private, base] {
        let config = directory.join("config");
        let file = config.to_string_lossy().into_owned();
        git.call(host, &["config", "--file", &file, "--unset-all", "extensions.refStorage"])
            .run()
            .map_err(io::Error::other)?;
    }
    Ok(())
}

fn write_head(git: &HostGit, host: &Path, to: [&PathBuf; 2]) -> io::Result<()> {
    let head = match git.call(host, &["symbolic-ref", "--quiet", "HEAD"]).run() {
        Ok(name) => [b"ref: ".as_slice(), &name].concat(),
        Err(_) => git.call(host, &["rev-parse", "--verify", "HEAD"]).run().map_err(io::Error::other)?,
    };
    for directory in to {
        fs::write(directory.join("HEAD"), &head)?;
    }
    Ok(())
}
