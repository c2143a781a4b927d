//! Keeps the projects' layers of package caches: one sandbox at a time writes to a layer, a layer
//! that has become too large is removed at the next start, and `prune --cache` removes all.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::directory::remove_all;
use crate::path::HostPath;
use crate::process::{Client, lock};

const LOCK: &str = "lock";
/// Is part of the names of Podman's layers.
const PODMAN: &str = ".podman";
/// Exists if the layers of a project have become too large.
const FULL: &str = "full";
/// The size up to which the layers of a project are kept.
const MAX_SIZE: u64 = 5 << 30;
/// Enough files to reach the size; more are not counted.
const MAX_ENTRIES: usize = 500_000;
/// Tells that another sandbox has the layers.
pub const NOT_KEPT: &str = "another sandbox of this project runs: what this one adds to package caches is not kept";
/// A sandbox that has run for a shorter time has not added much, and its end must not take long.
const MIN_TIME: Duration = Duration::from_secs(10);

/// The layers of one project while a sandbox uses them.
pub struct CacheLayers {
    directory: PathBuf,
    /// `None` if another sandbox of the project writes to them.
    lock: Option<File>,
    start: Instant,
}

impl CacheLayers {
    /// Takes the layers in `directory`; removes their content if they were too large.
    pub fn take(directory: &Path) -> io::Result<Self> {
        let path = directory.join(LOCK);
        File::options().create(true).append(true).open(&path)?;
        let lock = match lock::take(&path) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => return Err(error),
        };
        if lock.is_some() && directory.join(FULL).exists() {
            empty(directory)?;
            fs::remove_file(directory.join(FULL))?;
        }
        Ok(CacheLayers { directory: directory.to_owned(), lock, start: Instant::now() })
    }

    /// Returns the directory in which a layer is written: the layer itself, or one in the session's
    /// directory, which is removed with it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only the native engine places layers"))]
    pub fn place<'a>(&self, layer: &'a Path, session: &HostPath) -> io::Result<Cow<'a, Path>> {
        if self.lock.is_some() {
            return Ok(layer.into());
        }
        let name = layer.file_name().unwrap_or_default();
        let private = session.as_path().join("cache").join(name);
        for part in ["upper", "work"] {
            fs::create_dir_all(private.join(part))?;
        }
        Ok(private.into())
    }

    pub fn is_shared(&self) -> bool {
        self.lock.is_none()
    }

    /// Notes at the end of the sandbox whether the layers have become too large.
    pub fn finish(self) {
        if self.lock.is_some() && self.start.elapsed() >= MIN_TIME {
            let mut entries = MAX_ENTRIES;
            if size(&self.directory, &mut entries) > MAX_SIZE || entries == 0 {
                let _ = fs::write(self.directory.join(FULL), "");
            }
        }
    }
}

/// Removes the content of the layers, and keeps their directories, which are about to be mounted.
pub fn empty(directory: &Path) -> io::Result<()> {
    for layer in fs::read_dir(directory)? {
        let layer = layer?.path();
        for part in ["upper", "work"].map(|part| layer.join(part)) {
            if part.is_dir() {
                remove_all(&part);
                fs::create_dir_all(&part)?;
            }
        }
    }
    Ok(())
}

/// Returns the bytes on disk. Follows no link and stops when no `entries` are left.
fn size(path: &Path, entries: &mut usize) -> u64 {
    let mut total = 0;
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if *entries == 0 {
                return total;
            }
            *entries -= 1;
            let Ok(meta) = entry.metadata() else { continue };
            total += meta.blocks() * 512;
            if meta.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    total
}

/// What `remove` did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many projects had layers that are gone.
    pub projects: usize,
    /// What an engine left as another user.
    pub left: Vec<PathBuf>,
}

/// How long Podman may take to remove a layer.
const PODMAN_TIMEOUT: Duration = Duration::from_secs(60);

/// Removes the layers of all projects that no sandbox uses. Only Podman can remove what a rootless
/// Podman's root owns.
pub fn remove(base: &HostPath, podman: &Client) -> Removed {
    let mut projects = BTreeSet::new();
    let mut left = Vec::new();
    for project in fs::read_dir(base.as_path()).into_iter().flatten().flatten() {
        let path = project.path();
        // Held until the directory is gone, so that no sandbox takes the layers meanwhile.
        let lock = match lock::take(&path.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => continue,
        };
        remove_all(&path);
        if path.exists() && path.to_string_lossy().contains(PODMAN) && podman.program.is_some() {
            let words = ["unshare", "rm", "-rf", "--"].map(OsStr::new);
            podman.run_quietly(words.into_iter().chain([path.as_os_str()]), PODMAN_TIMEOUT);
        }
        drop(lock);
        if path.exists() {
            left.push(path);
        } else {
            // The layers of other engines have a suffix, spare layers a second one.
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut parts = name.split('.').map(str::to_owned);
            if let (Some(project), None) = (parts.next(), parts.nth(1)) {
                projects.insert(project);
            }
        }
    }
    Removed { projects: projects.len(), left }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_became_too_large_are_emptied_at_the_next_start() {
        let directory = tempfile::tempdir().expect("directory");
        let upper = directory.path().join("npm/upper");
        fs::create_dir_all(upper.join("a")).expect("upper");
        fs::create_dir_all(directory.path().join("npm/work")).expect("work");
        drop(CacheLayers::take(directory.path()).expect("layers"));
        assert!(upper.join("a").exists());
        fs::write(directory.path().join(FULL), "").expect("note");
        let layers = CacheLayers::take(directory.path()).expect("layers");
        assert!(upper.exists() && !upper.join("a").exists() && !directory.path().join(FULL).exists());
        assert!(!layers.is_shared());
        // While it is held, another sandbox writes elsewhere.
        let other = CacheLayers::take(directory.path()).expect("layers");
        let session = HostPath::new(directory.path().join("session")).expect("absolute");
        let layer = directory.path().join("npm");
        assert_eq!(other.place(&layer, &session).expect("place"), directory.path().join("session/cache/npm"));
        assert_eq!(layers.place(&layer, &session).expect("place"), layer);
    }

    #[test]
    fn size_counts_files_and_follows_no_link() {
        let directory = tempfile::tempdir().expect("directory");
        fs::create_dir(directory.path().join("a")).expect("directory");
        fs::write(directory.path().join("a/file"), vec![1; 1 << 20]).expect("file");
        std::os::unix::fs::symlink("/usr", directory.path().join("link")).expect("link");
        let found = size(directory.path(), &mut 1000);
        assert!((1 << 20..3 << 20).contains(&found), "{found}");
        let mut entries = 1;
        size(directory.path(), &mut entries);
        assert_eq!(entries, 0);
    }
}
