//! Makes the private Git directories of a copied workspace, which stay with the copy: nothing comes out
//! of them before `apply`, and the next sandbox over the copy continues with them.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::delayed_copy::{self, DelayedCopy};
use super::host_git::HostGit;
use super::make;
use super::nested_baseline::NestedBaseline;
use super::saved::SavedRef;
use super::watched::Stamps;
use crate::path::HostPath;
use crate::plan::RepositoryGate;
use crate::plan::repository::{PrivateGitDir, PrivateRepository};
use crate::process::untrusted_dir::UntrustedDir;

/// Exists in the directory of a repository once its private directories are complete.
const MADE: &str = "made";

/// The indexes of the private directories, which are large in a large repository.
pub struct KeptIndexes {
    /// Those that the guest gets once it has started.
    delayed: Vec<Arc<DelayedCopy>>,
    copied: Vec<KeptIndex>,
}

/// An index that was copied to a private directory.
struct KeptIndex {
    private_root: PathBuf,
    private: PathBuf,
    given: PathBuf,
}

impl KeptIndexes {
    fn of(gate: &RepositoryGate) -> Self {
        let index = |private_root: &Path, private: &Path, given: &Path| KeptIndex {
            private_root: private_root.to_owned(),
            private: private.to_owned(),
            given: given.to_owned(),
        };
        let copied = gate.repositories.iter().flat_map(|repository| {
            let full = repository.full.iter().map(|dir| index(&dir.private_root, &dir.private, &dir.given_index));
            let linked = repository.worktrees.iter();
            full.chain(linked.map(|tree| index(&tree.private_root, &tree.private, &tree.given_index)))
        });
        let copied = copied.collect();
        KeptIndexes { delayed: Vec::new(), copied }
    }

    #[cfg(target_os = "linux")]
    pub fn are_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Copies large indexes to the guest, which has started.
    pub fn begin(&self) {
        self.delayed.iter().for_each(DelayedCopy::begin);
    }

    /// Lets indexes that the guest has not changed take no space until the next sandbox starts.
    pub fn finish(&self) {
        self.delayed.iter().for_each(|copy| copy.cancel());
        self.delayed.iter().for_each(|copy| copy.complete());
        // An index that stays only takes space.
        let _ = self.for_each(delayed_copy::empty_if_same);
    }

    /// Gives those their content again.
    fn restore(&self) -> io::Result<()> {
        self.for_each(delayed_copy::complete)
    }

    fn for_each(&self, change: impl Fn(&File, &File) -> io::Result<()>) -> io::Result<()> {
        for KeptIndex { private_root, private, given } in &self.copied {
            let Ok(source) = File::open(given) else { continue };
            let Ok(private) = UntrustedDir::open_below(private_root, private) else { continue };
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(copy) = rustix::fs::openat(&private, "index", flags, Mode::empty()) else { continue };
            let copy = File::from(copy);
            let meta = copy.metadata()?;
            // Another name may be a copy that the guest made.
            if meta.is_file() && meta.nlink() == 1 {
                change(&source, &copy)?;
            }
        }
        Ok(())
    }
}

/// Makes the private directories that do not exist yet. `directory` is that of the copy. If `may_delay`
/// is set, large indexes are copied later.
pub fn make_kept(gate: &RepositoryGate, directory: &HostPath, may_delay: bool) -> io::Result<KeptIndexes> {
    let git = HostGit::new(gate, directory.as_path().to_owned());
    let mut indexes = KeptIndexes::of(gate);
    // The launcher of the last sandbox may have been killed.
    indexes.restore()?;
    for repository in &gate.repositories {
        let made = repository.place.join(MADE);
        if made.symlink_metadata().is_err() {
            remove_unfinished(repository)?;
            let delayed = make::make(repository, git.as_ref(), may_delay)?;
            indexes.delayed.extend(delayed.into_iter().map(|(_, copy)| Arc::new(copy)));
            if gate.is_other_user {
                make::open_to_all(repository)?;
            }
            fs::write(made, "")?;
        } else {
            // The numbers of the mounted objects may be others than in the last sandbox.
            repository.full.iter().try_for_each(write_alternates)?;
        }
    }
    let saved = SavedRef { gate, stamps: &Stamps::default(), baseline: &NestedBaseline::default() };
    saved.write(directory)?;
    Ok(indexes)
}

/// Empties the directories of a repository, which a killed launcher may have left half made.
fn remove_unfinished(repository: &PrivateRepository) -> io::Result<()> {
    let mount_points: Vec<PathBuf> = repository.full.iter().map(|dir| dir.private.join("objects")).collect();
    for dir in &repository.full {
        clear(&dir.private_root, &mount_points)?;
        clear(&dir.private_objects, &[])?;
        for path in [&dir.base, &dir.import, &dir.given_index] {
            remove(path)?;
        }
    }
    let worktrees = repository.worktrees.iter();
    worktrees.flat_map(|tree| [&tree.base, &tree.given_index]).try_for_each(|path| remove(path))
}

/// Removes what is in a directory. The directory itself and the mount points stay: the sandbox may be
/// mounting over them already, and the kernel would drop a mount with its mount point.
fn clear(directory: &Path, mount_points: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if mount_points.contains(&path) {
            continue;
        }
        if mount_points.iter().any(|point| point.starts_with(&path)) {
            clear(&path, mount_points)?;
        } else {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn write_alternates(dir: &PrivateGitDir) -> io::Result<()> {
    let lines: Vec<&[u8]> = dir.alternates.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let text = [lines.join(&b'\n'), b"\n".to_vec()].concat();
    let objects = UntrustedDir::open(&dir.private_objects)?;
    objects.create_directory(Path::new("info"))?;
    let lock: PathBuf = "info/alternates.lock".into();
    objects.remove_file(&lock)?;
    objects.replace("info/alternates", &text, || true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_removed_and_mount_points_stay() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        for name in ["objects", "modules/a/objects", "modules/a/refs", "rebase-merge"] {
            fs::create_dir_all(at(name))?;
        }
        fs::write(at("modules/a/HEAD"), "half")?;
        let points = [at("objects"), at("modules/a/objects")];
        let inodes = || points.iter().map(|point| Ok(fs::metadata(point)?.ino())).collect::<io::Result<Vec<_>>>();
        let before = inodes()?;
        clear(directory.path(), &points)?;
        assert_eq!(inodes()?, before);
        assert!(!at("rebase-merge").exists() && !at("modules/a/HEAD").exists() && !at("modules/a/refs").exists());
        Ok(())
    }

    #[test]
    fn an_index_is_not_reached_through_a_link_of_the_guest() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("inside"))?;
        fs::create_dir_all(at("outside/tree"))?;
        let content = vec![b'x'; 1 << 20];
        for name in ["given", "outside/tree/index"] {
            fs::write(at(name), &content)?;
        }
        std::os::unix::fs::symlink(at("outside"), at("inside/worktrees"))?;
        let (private_root, private) = (at("inside"), at("inside/worktrees/tree"));
        let copied = vec![KeptIndex { private_root, private, given: at("given") }];
        KeptIndexes { delayed: Vec::new(), copied }.finish();
        assert!(fs::read(at("outside/tree/index"))? == content);
        Ok(())
    }
}
