//! Sends the files of the plan into the sandbox: directories are walked without following links, and what
//! another copy puts in a place is left out.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::RemoteError;
use crate::gate::repository::listed_files;
use crate::launch::FileCopy;
use crate::link::{Entry, EntryKind, LinkFrame, LinkWriter, WatchRequest};
use crate::plan::Plan;

const BUFFER: usize = 128 * 1024;

/// What was sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub files: u64,
    pub bytes: u64,
}

/// Sends everything, names what comes back, and says that it was all.
pub fn send(
    plan: &Plan,
    copies: &[FileCopy],
    watched: Option<&WatchRequest>,
    link: &LinkWriter,
) -> Result<Sent, RemoteError> {
    let targets = copies.iter().map(|copy| copy.target.as_path().to_owned()).collect();
    let mut sender = Sender { link, targets, sent: Sent::default() };
    for copy in copies {
        let failed = |source| RemoteError::ReadFile { path: copy.source.to_string(), source };
        let (from, to) = (copy.source.as_path(), copy.target.as_path());
        let listed = match copy.is_workspace {
            true => listed_files(&plan.repository_gate, from, plan.session_dir.as_path())
                .map_err(|error| failed(io::Error::other(error)))?,
            false => None,
        };
        match listed {
            Some(files) => sender.listed(from, to, &files),
            None => sender.tree(from, to, true),
        }
        .map_err(failed)?;
    }
    if let Some(watched) = watched {
        let json = serde_json::to_string(watched).map_err(|error| lost(error.into()))?;
        link.send(&LinkFrame::Watch(json)).map_err(lost)?;
    }
    link.send(&LinkFrame::EntriesEnd).map_err(lost)?;
    Ok(sender.sent)
}

fn lost(error: io::Error) -> RemoteError {
    RemoteError::Copy { message: format!("the connection was lost: {error}") }
}

struct Sender<'a> {
    link: &'a LinkWriter,
    /// The places of all copies.
    targets: HashSet<PathBuf>,
    sent: Sent,
}

impl Sender<'_> {
    /// Sends some files of a directory, and the directories that they are in.
    fn listed(&mut self, from: &Path, to: &Path, files: &[PathBuf]) -> io::Result<()> {
        self.entry(from, to)?;
        let mut made: HashSet<&Path> = HashSet::new();
        for file in files {
            let above: Vec<&Path> = file.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
            // What another copy puts in a place is not sent here.
            if above.iter().any(|above| self.targets.contains(&to.join(above))) {
                continue;
            }
            for directory in above.into_iter().rev().filter(|directory| !made.contains(directory)).collect::<Vec<_>>() {
                made.insert(directory);
                self.entry(&from.join(directory), &to.join(directory))?;
            }
            // A submodule is listed as one name.
            self.tree(&from.join(file), &to.join(file), false)?;
        }
        Ok(())
    }

    /// Sends a file, or a directory with all that is in it.
    fn tree(&mut self, from: &Path, to: &Path, is_copy: bool) -> io::Result<()> {
        if !is_copy && self.targets.contains(to) {
            return Ok(());
        }
        let meta = match from.symlink_metadata() {
            Ok(meta) => meta,
            // A file that is tracked and does not exist, or that was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_copy => return Ok(()),
            Err(error) => return Err(error),
        };
        self.send(from, to, &meta)?;
        if !meta.is_dir() {
            return Ok(());
        }
        let mut names: Vec<_> = fs::read_dir(from)?.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names.iter().try_for_each(|name| self.tree(&from.join(name), &to.join(name), false))
    }

    fn entry(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let meta = from.symlink_metadata()?;
        self.send(from, to, &meta)
    }

    fn send(&mut self, from: &Path, to: &Path, meta: &Metadata) -> io::Result<()> {
        let entry = |kind| Entry {
            path: to.to_owned(),
            kind,
            // The sticky bit is that of a directory for temporary files.
            mode: meta.permissions().mode() & 0o1777,
            modified: (meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or_default()),
        };
        if meta.is_dir() {
            return self.link.send(&LinkFrame::Entry(entry(EntryKind::Directory)));
        }
        if meta.is_symlink() {
            return self.link.send(&LinkFrame::Entry(entry(EntryKind::Link { to: fs::read_link(from)? })));
        }
        // Sockets, devices and pipes are left out.
        if !meta.is_file() {
            return Ok(());
        }
        let file = File::open(from)?;
        let size = file.metadata()?.len();
        self.link.send(&LinkFrame::Entry(entry(EntryKind::File { size })))?;
        self.content(file, size)?;
        self.sent.files += 1;
        self.sent.bytes += size;
        Ok(())
    }

    /// Sends exactly as many bytes as were announced, although the file may change meanwhile.
    fn content(&mut self, mut file: File, size: u64) -> io::Result<()> {
        let mut left = size;
        let mut buffer = vec![0; BUFFER.min(usize::try_from(size).unwrap_or(BUFFER).max(1))];
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = match file.read(buffer.get_mut(..most).unwrap_or_default()) {
                Ok(0) => {
                    // It became shorter.
                    buffer.fill(0);
                    most
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.link.send(&LinkFrame::Content(buffer.get(..count).unwrap_or_default().to_vec()))?;
            left -= count as u64;
        }
        Ok(())
    }
}
