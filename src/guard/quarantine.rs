//! Sets things aside: keeps them out of Git's reach in sandpen's own state, and puts back what was there.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::state::State;

/// Where the things that one sandbox left are kept.
#[derive(Debug)]
pub struct Quarantine {
    directory: PathBuf,
    count: usize,
}

impl Quarantine {
    /// A place that is made when something needs to be put there.
    pub fn new(directory: PathBuf) -> Self {
        Quarantine { directory, count: 0 }
    }

    /// A free place for something of this name.
    fn place(&mut self, name: &Path) -> io::Result<PathBuf> {
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

    /// Keeps a copy of these bytes.
    pub fn keep(&mut self, name: &Path, content: &[u8]) -> io::Result<PathBuf> {
        let place = self.place(name)?;
        write_new(&place, content, 0o600)?;
        Ok(place)
    }

    /// Moves something away, whatever it is.
    pub fn take(&mut self, path: &Path) -> io::Result<PathBuf> {
        refuse_links(path)?;
        let place = self.place(path)?;
        match fs::rename(path, &place) {
            // Another file system: a file is copied; anything else stays beside its place, under a name Git does not know.
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

/// Puts back what was there before.
pub fn put_back(path: &Path, before: &State) -> io::Result<()> {
    match before {
        State::File(content) => install(path, content),
        State::Link(to) => std::os::unix::fs::symlink(to, path),
        State::Directory => fs::create_dir(path),
        State::Missing | State::Other => Ok(()),
    }
}

/// Replaces a file in one step; a link that someone puts there meanwhile is replaced, not followed.
pub fn install(path: &Path, content: &[u8]) -> io::Result<()> {
    let parent = refuse_links(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = parent.join(format!(".{name}.sandpen-{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    write_new(&draft, content, 0o644)?;
    fs::rename(&draft, path)
}

/// Another sandbox over the same directory may run, and try to lead this one elsewhere.
fn refuse_links(path: &Path) -> io::Result<&Path> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    match fs::canonicalize(parent)? == parent {
        true => Ok(parent),
        false => Err(io::Error::other("a link leads to it")),
    }
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content)
}
