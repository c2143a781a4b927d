//! Finds what the guest has changed in the directories that come back, and sends it to the launcher. The
//! guest may change them at the same time, so no link is followed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, Stat};

use crate::link::{Entry, EntryKind, LinkFrame, LinkWriter, WatchRequest};
use crate::process::untrusted_dir::{UntrustedDir, permissions};

/// With more entries than this nothing comes back: the list of them is in memory.
const MAX_ENTRIES: usize = 2_000_000;
const MAX_DEPTH: usize = 512;
const BUFFER: usize = 128 * 1024;

/// A version of an entry. That of a directory does not depend on what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    kind: FileType,
    mode: u32,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

type Listing = BTreeMap<PathBuf, Seen>;

#[derive(Default)]
struct State {
    request: WatchRequest,
    /// What the launcher has.
    known: Listing,
    /// What it has once it says that it received the last changes.
    pending: Option<Listing>,
}

/// The directories that come back, as the launcher knows them.
#[derive(Default)]
pub struct Changes(Mutex<State>);

impl Changes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which directories come back.
    pub fn watch(&self, request: WatchRequest) {
        self.lock().request = request;
    }

    /// Notes the state that needs no transfer: the launcher has just sent it.
    pub fn begin(&self) -> io::Result<()> {
        let mut state = self.lock();
        let mut walk = Walk { state: &state, link: None, now: Listing::new() };
        walk.all()?;
        state.known = walk.now;
        Ok(())
    }

    /// Sends everything that differs from what the launcher has. One call waits for another.
    pub fn send(&self, link: &LinkWriter) -> io::Result<()> {
        let mut state = self.lock();
        let mut walk = Walk { state: &state, link: Some(link), now: Listing::new() };
        let done = walk.all();
        let now = walk.now;
        if let Err(error) = done {
            link.send(&LinkFrame::Unreadable(error.to_string()))?;
            return link.send(&LinkFrame::EntriesEnd);
        }
        for gone in state.known.keys().filter(|path| !now.contains_key(*path)) {
            link.send(&LinkFrame::Removed(gone.clone()))?;
        }
        state.pending = Some(now);
        link.send(&LinkFrame::EntriesEnd)
    }

    /// The launcher has the changes that were sent last.
    pub fn received(&self) {
        let mut state = self.lock();
        if let Some(now) = state.pending.take() {
            state.known = now;
        }
    }
}

struct Walk<'a> {
    state: &'a State,
    /// `None` to look only.
    link: Option<&'a LinkWriter>,
    now: Listing,
}

impl Walk<'_> {
    fn all(&mut self) -> io::Result<()> {
        let state = self.state;
        let others: BTreeSet<&Path> =
            state.request.roots.iter().chain(&state.request.left_out).map(PathBuf::as_path).collect();
        for root in &state.request.roots {
            match UntrustedDir::open_without_links(root) {
                Ok(directory) => self.directory(&directory, root, &others, 0)?,
                // The guest has removed or replaced it.
                Err(error) if is_changed_by_guest(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn directory(
        &mut self,
        directory: &UntrustedDir,
        path: &Path,
        others: &BTreeSet<&Path>,
        depth: usize,
    ) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return self.unreadable(path, &io::Error::other("it is too deep"));
        }
        let mut entries = match directory.entries(MAX_ENTRIES - self.now.len().min(MAX_ENTRIES)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                return Err(io::Error::other(format!("there are more than {MAX_ENTRIES} files")));
            }
            Err(error) => return self.unreadable(path, &error),
        };
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, _) in entries {
            let below = path.join(&name);
            if others.contains(below.as_path()) {
                continue;
            }
            match self.entry(directory, &name, &below, others, depth) {
                Err(error) if is_changed_by_guest(&error) => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied => self.unreadable(&below, &error)?,
                done => done?,
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        directory: &UntrustedDir,
        name: &OsStr,
        path: &Path,
        others: &BTreeSet<&Path>,
        depth: usize,
    ) -> io::Result<()> {
        let stat = directory.stat(name)?;
        let seen = Seen::of(&stat);
        let is_new = self.state.known.get(path) != Some(&seen);
        let link = self.link.filter(|_| is_new);
        match seen.kind {
            FileType::Directory => {
                if let Some(link) = link {
                    link.send(&LinkFrame::Entry(entry(path, EntryKind::Directory, &stat)))?;
                }
                self.now.insert(path.to_owned(), seen);
                self.directory(&directory.directory(Path::new(name))?, path, others, depth + 1)
            }
            FileType::RegularFile => {
                if let Some(link) = link {
                    let Some(file) = directory.file(Path::new(name))? else { return Ok(()) };
                    send_file(file, path, &stat, link)?;
                }
                self.now.insert(path.to_owned(), seen);
                Ok(())
            }
            FileType::Symlink => {
                if let Some(link) = link {
                    use std::os::unix::ffi::OsStringExt;
                    let to = rustix::fs::readlinkat(directory, name, Vec::new())?.into_bytes();
                    let to = std::ffi::OsString::from_vec(to).into();
                    link.send(&LinkFrame::Entry(entry(path, EntryKind::Link { to }, &stat)))?;
                }
                self.now.insert(path.to_owned(), seen);
                Ok(())
            }
            // Pipes, sockets and devices stay.
            _ => Ok(()),
        }
    }

    /// Says that something does not come back, and keeps what the launcher has of it.
    fn unreadable(&mut self, path: &Path, error: &io::Error) -> io::Result<()> {
        let known = self.state.known.range(path.to_owned()..).take_while(|(below, _)| below.starts_with(path));
        self.now.extend(known.map(|(below, seen)| (below.clone(), *seen)));
        match self.link {
            Some(link) => link.send(&LinkFrame::Unreadable(format!("`{}`: {error}", path.display()))),
            None => Ok(()),
        }
    }
}

impl Seen {
    fn of(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mode = permissions(stat);
        if kind == FileType::Directory {
            return Seen { kind, mode, inode: 0, size: 0, changed: (0, 0) };
        }
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        Seen {
            kind,
            mode,
            inode: stat.st_ino,
            size,
            changed: (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or_default()),
        }
    }
}

/// Tells whether an error comes from a change that the guest has made meanwhile.
fn is_changed_by_guest(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidData)
        || error.raw_os_error() == Some(libc::ELOOP)
}

fn entry(path: &Path, kind: EntryKind, stat: &Stat) -> Entry {
    let modified = (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or_default());
    Entry { path: path.to_owned(), kind, mode: permissions(stat), modified }
}

/// Sends as many bytes as the file has now. If it shrinks meanwhile, zeros follow: the next time it is
/// sent again, because it has changed.
fn send_file(mut file: File, path: &Path, stat: &Stat, link: &LinkWriter) -> io::Result<()> {
    let size = file.metadata()?.len();
    link.send(&LinkFrame::Entry(entry(path, EntryKind::File { size }, stat)))?;
    let mut left = size;
    let mut buffer = vec![0; BUFFER.min(usize::try_from(size).unwrap_or(BUFFER))];
    while left > 0 {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = match file.read(buffer.get_mut(..most).unwrap_or_default()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => {
                buffer.fill(0);
                most
            }
            Ok(count) => count,
        };
        link.send(&LinkFrame::Content(buffer.get(..count).unwrap_or_default().to_vec()))?;
        left -= count as u64;
    }
    Ok(())
}
