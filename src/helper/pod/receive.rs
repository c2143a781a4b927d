//! Writes the files that the launcher sends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::link::{Entry, EntryKind, LinkFrame};
use crate::plan::KeeperConfig;

/// What was received so far.
#[derive(Default)]
pub struct Receiver {
    /// Gives what is written to the command's user, if that is another one.
    owner: Option<Owner>,
    open: Option<OpenFile>,
    /// The first failure: everything after it is left out.
    failure: Option<String>,
}

struct OpenFile {
    file: File,
    entry: Entry,
    left: u64,
}

impl Receiver {
    pub fn for_owner(owner: Owner) -> Self {
        Receiver { owner: Some(owner), ..Receiver::default() }
    }

    /// Handles a frame that is not for the guest; returns the frame to answer with.
    pub fn handle(&mut self, frame: LinkFrame) -> Option<LinkFrame> {
        let done = match frame {
            LinkFrame::Entry(entry) => {
                let path = entry.path.clone();
                self.take_entry(entry).map_err(|error| (path, error))
            }
            LinkFrame::Content(bytes) => self.take_content(&bytes),
            LinkFrame::EntriesEnd => {
                return Some(match self.failure.take() {
                    None => LinkFrame::Received,
                    Some(failure) => LinkFrame::Failed(failure),
                });
            }
            _ => return None,
        };
        if let Err((path, error)) = done {
            self.open = None;
            self.failure.get_or_insert_with(|| format!("cannot write `{}`: {error}", path.display()));
        }
        None
    }

    fn take_entry(&mut self, entry: Entry) -> io::Result<()> {
        let path = entry.path.as_path();
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match &entry.kind {
            EntryKind::Directory => {
                if !path.is_dir() {
                    fs::create_dir(path)?;
                }
                // The root of a volume belongs to the cluster, which has made it writable to all.
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(self.mode(&entry)));
                self.give(path)?;
            }
            EntryKind::Link { to } => {
                remove(path)?;
                symlink(to, path)?;
                self.give(path)?;
                set_times(&entry)?;
            }
            EntryKind::File { size } => {
                remove(path)?;
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                let left = *size;
                self.open = Some(OpenFile { file, entry, left });
                self.close_if_complete()?;
            }
        }
        Ok(())
    }

    fn take_content(&mut self, bytes: &[u8]) -> Result<(), (PathBuf, io::Error)> {
        // After a failure the rest of a file is still on its way.
        let Some(open) = &mut self.open else { return Ok(()) };
        let path = open.entry.path.clone();
        open.left = open.left.saturating_sub(bytes.len() as u64);
        let written = open.file.write_all(bytes);
        written.and_then(|()| self.close_if_complete()).map_err(|error| (path, error))
    }

    fn close_if_complete(&mut self) -> io::Result<()> {
        let Some(open) = self.open.take_if(|open| open.left == 0) else { return Ok(()) };
        self.give(&open.entry.path)?;
        open.file.set_permissions(fs::Permissions::from_mode(self.mode(&open.entry)))?;
        drop(open.file);
        set_times(&open.entry)
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        self.owner.as_ref().map_or(Ok(()), |owner| owner.give(path))
    }

    fn mode(&self, entry: &Entry) -> u32 {
        self.owner.as_ref().map_or(entry.mode, |owner| owner.mode(entry))
    }
}

/// The user of the command, to whom the files belong, except those that it may only read.
pub struct Owner(pub KeeperConfig);

impl Owner {
    fn may_write(&self, path: &Path) -> bool {
        !self.0.read_only.iter().any(|only| path.starts_with(only))
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        let (user, group) = self.0.user;
        if self.may_write(path) { lchown(path, Some(user), Some(group)) } else { Ok(()) }
    }

    /// What its owner may do with a file on the host, the command may do with one that stays root's.
    fn mode(&self, entry: &Entry) -> u32 {
        if self.may_write(&entry.path) { entry.mode } else { entry.mode | (entry.mode >> 6 & 0o5) }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn set_times(entry: &Entry) -> io::Result<()> {
    let (seconds, nanoseconds) = entry.modified;
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, &entry.path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
