//! Moves files to sandpen's state directory, where Git does not find them, and restores the previous
//! state.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::state::State;

/// The directory with the files of one sandbox that were set aside.
#[derive(Debug)]
pub struct Quarantine {
    directory: PathBuf,
    count: usize,
}

impl Quarantine {
    /// The directory is created with the first file.
    pub fn new(directory: PathBuf) -> Self {
        Quarantine { directory, count: 0 }
    }

    /// Returns an unused path for a file of this name.
    fn free_path(&mut self, name: &Path) -> io::Result<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        loop {
            self.count += 1;
            let place = self.directory.join(format!("{}-{name}", self.count));
            if place.symlink_metadata().is_err() {
                return Ok(place);
            }
        }
    }

    /// Writes a copy.
    pub fn keep(&mut self, name: &Path, content: &[u8]) -> io::Result<PathBuf> {
        let place = self.free_path(name)?;
        write_new(&place, content, 0o600)?;
        Ok(place)
    }

    /// Moves a file, link or directory away.
    pub fn take(&mut self, path: &Path) -> io::Result<PathBuf> {
        refuse_links(path)?;
        let place = self.free_path(path)?;
        match fs::rename(path, &place) {
            // Across file systems, a file is copied; anything else is renamed in its directory, so that
            // Git ignores it.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                if let State::File(content) = State::of(path) {
                    write_new(&place, &content, 0o600)?;
                    fs::remove_file(path)?;
                    return Ok(place);
                }
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let beside = path.with_file_name(format!("{name}.set-aside-by-sandpen-{}", std::process::id()));
                fs::rename(path, &beside)?;
                Ok(beside)
            }
            other => other.map(|()| place),
        }
    }
}

/// Restores the previous state.
pub fn put_back(path: &Path, before: &State) -> io::Result<()> {
    match before {
        State::File(content) => install(path, content),
        State::Link(to) => std::os::unix::fs::symlink(to, path),
        State::Directory => fs::create_dir(path),
        State::Missing | State::Other => Ok(()),
    }
}

/// Replaces a file atomically. A link that is created there meanwhile is replaced, not followed.
pub fn install(path: &Path, content: &[u8]) -> io::Result<()> {
    let parent = refuse_links(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = parent.join(format!(".{name}.sandpen-{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    write_new(&draft, content, 0o644)?;
    fs::rename(&draft, path)
}

/// Another sandbox may run over the same directory and replace a parent directory by a link.
fn refuse_links(path: &Path) -> io::Result<&Path> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    if fs::canonicalize(parent)? == parent { Ok(parent) } else { Err(io::Error::other("its path contains a link")) }
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content)
}
