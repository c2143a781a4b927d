//! The records of copied workspaces: which directories were copied, how, and where the changes are.
//! A copy outlives the sandbox that made it, and only `discard` removes it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::config::value::{Name, Value};
use crate::path::HostPath;
use crate::process::lock;
use crate::process::remove_tree::remove_tree;

/// The file with the record, in the directory of the copy.
const RECORD: &str = "copy.json";
/// The file that a sandbox locks while it changes the copy.
const LOCK: &str = "lock";
/// Ends the name of a directory that is being removed.
const REMOVED: &str = ".removed";
/// No record of sandpen's is larger.
const MAX_RECORD: u64 = 1 << 20;

/// How a copy keeps the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyHow {
    /// The kernel writes changed files to a directory beside the original.
    Overlay,
    /// All files were copied.
    Files,
}

/// Which extended attributes the kernel uses to mark a directory that replaces another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverlayMarks {
    /// `user.overlay.*`, which every user can read.
    User,
    /// `trusted.overlay.*`, which only root can read.
    Trusted,
}

/// A time of the file system's clock, which a guest cannot set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct FileTime {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl FileTime {
    /// Returns when the content or the attributes of a file changed last.
    pub fn of_change(meta: &fs::Metadata) -> Self {
        FileTime { seconds: meta.ctime(), nanoseconds: meta.ctime_nsec() }
    }
}

/// A directory and the place of its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedTree {
    /// The directory of the user.
    #[serde(with = "crate::saved_path")]
    pub host: PathBuf,
    /// Contains `upper` and `work` of an overlay, or `files`.
    #[serde(with = "crate::saved_path")]
    pub place: PathBuf,
}

impl CopiedTree {
    /// Returns the directory with the changed files of an overlay.
    pub fn upper(&self) -> PathBuf {
        self.place.join("upper")
    }

    pub fn work(&self) -> PathBuf {
        self.place.join("work")
    }

    /// Returns the directory with all files of a plain copy.
    pub fn files(&self) -> PathBuf {
        self.place.join("files")
    }
}

/// A copied workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCopy {
    pub id: String,
    pub how: CopyHow,
    pub marks: OverlayMarks,
    /// The working directory of the sandbox that made it.
    #[serde(with = "crate::saved_path")]
    pub workdir: PathBuf,
    /// The repository or working directory first, then the included directories.
    pub trees: Vec<CopiedTree>,
    /// Git directories of the user, which no change reaches as files.
    #[serde(with = "crate::saved_path")]
    pub git_dirs: Vec<PathBuf>,
    /// When it was made. What changed later on the host was changed by somebody else.
    pub made: FileTime,
    /// The engine and the command of the last sandbox.
    pub engine: String,
    pub command: Vec<String>,
}

impl KeptCopy {
    /// Returns the first directory, by which a copy is found.
    pub fn root(&self) -> &Path {
        self.trees.first().map_or(&self.workdir, |tree| &tree.host)
    }

    /// Returns the time since it was made, in seconds.
    pub fn age(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        now.saturating_sub(u64::try_from(self.made.seconds).unwrap_or(0))
    }
}

/// The directory of all copies of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStore {
    base: HostPath,
}

impl CopyStore {
    /// Takes the directory of all sessions, beside which the copies are.
    pub fn beside(sessions: &HostPath) -> Self {
        let above = sessions.as_path().parent().and_then(|above| HostPath::new(above).ok());
        CopyStore { base: above.unwrap_or_else(|| sessions.clone()).join("copies") }
    }

    pub fn directory(&self, id: &str) -> HostPath {
        self.base.join(id)
    }

    /// Creates the directory of a copy, which only this user may enter, and locks it.
    pub fn create(&self, id: &str) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.base.as_path())?;
        let meta = fs::symlink_metadata(self.base.as_path())?;
        if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
            return Err(io::Error::other(format!("`{}` belongs to another user", self.base)));
        }
        DirBuilder::new().mode(0o700).create(self.directory(id).as_path())?;
        self.lock(id)
    }

    /// Locks a copy. Fails with `WouldBlock` if a sandbox uses it.
    pub fn lock(&self, id: &str) -> io::Result<File> {
        let path = self.directory(id).join(LOCK);
        File::options().create(true).append(true).open(path.as_path())?;
        lock::take(path.as_path())
    }

    /// Tells whether a sandbox uses a copy.
    pub fn is_used(&self, id: &str) -> bool {
        lock::is_held(self.directory(id).join(LOCK).as_path()) == Some(true)
    }

    pub fn write(&self, copy: &KeptCopy) -> io::Result<()> {
        let directory = self.directory(&copy.id);
        let new = directory.join(format!("{RECORD}.new"));
        fs::write(new.as_path(), serde_json::to_vec(copy)?)?;
        fs::rename(new.as_path(), directory.join(RECORD).as_path())
    }

    /// Finds a copy by its id.
    pub fn find(&self, id: &str) -> Option<KeptCopy> {
        Name::parse(id).ok()?;
        let path = self.directory(id).join(RECORD);
        let text = crate::process::untrusted::read_bytes(path.as_path(), MAX_RECORD).ok()?;
        serde_json::from_slice(&text).ok().filter(|copy: &KeptCopy| copy.id == id)
    }

    /// Lists all copies, the newest first.
    pub fn all(&self) -> Vec<KeptCopy> {
        let entries = fs::read_dir(self.base.as_path()).into_iter().flatten().flatten();
        let mut copies: Vec<KeptCopy> = entries.filter_map(|entry| self.find(entry.file_name().to_str()?)).collect();
        copies.sort_by(|one, other| other.made.cmp(&one.made).then_with(|| one.id.cmp(&other.id)));
        copies
    }

    /// Removes a copy, whose lock the caller holds. It is renamed first, so that no other process finds
    /// half of it. Returns the directory with what belongs to other users and cannot be removed: in a user
    /// namespace of an engine, the kernel makes files of an overlay for its root.
    pub fn remove(&self, id: &str) -> io::Result<Option<PathBuf>> {
        let aside = self.base.join(format!("{id}{REMOVED}-{}", std::process::id()));
        fs::rename(self.directory(id).as_path(), aside.as_path())?;
        let _ = remove_tree(aside.as_path());
        let is_left = aside.as_path().symlink_metadata().is_ok();
        Ok(is_left.then(|| aside.as_path().to_owned()))
    }

    /// Removes what a killed process left while it created or removed a copy.
    pub fn remove_unfinished(&self) {
        for entry in fs::read_dir(self.base.as_path()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            // A directory that is being created has no record yet.
            let is_unfinished = || {
                let is_empty =
                    |mut files: fs::ReadDir| files.all(|file| file.is_ok_and(|file| file.file_name() == LOCK));
                self.find(name).is_none()
                    && !self.is_used(name)
                    && entry.metadata().and_then(|meta| meta.modified()).is_ok_and(is_old)
                    && fs::read_dir(entry.path()).is_ok_and(is_empty)
            };
            if name.contains(REMOVED) || is_unfinished() {
                let _ = remove_tree(&entry.path());
            }
        }
    }
}

fn is_old(time: SystemTime) -> bool {
    time.elapsed().is_ok_and(|age| age.as_secs() > 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_again_and_removed() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let sessions = HostPath::new(directory.path().join("sessions")).expect("absolute");
        let store = CopyStore::beside(&sessions);
        let copy = |id: &str, seconds| KeptCopy {
            id: id.into(),
            how: CopyHow::Overlay,
            marks: OverlayMarks::User,
            workdir: "/w/sub".into(),
            trees: vec![CopiedTree { host: "/w".into(), place: "/s/tree-0".into() }],
            git_dirs: Vec::new(),
            made: FileTime { seconds, nanoseconds: 0 },
            engine: "native".into(),
            command: vec!["true".into()],
        };
        for (id, seconds) in [("old", 1), ("new", 2)] {
            let lock = store.create(id)?;
            assert!(store.create(id).is_err(), "the name is taken");
            store.write(&copy(id, seconds))?;
            assert!(store.is_used(id));
            drop(lock);
        }
        assert!(!store.is_used("old"));
        assert_eq!(store.find("old"), Some(copy("old", 1)));
        assert_eq!(store.all().iter().map(|copy| copy.id.as_str()).collect::<Vec<_>>(), ["new", "old"]);
        assert_eq!(store.find("../copies/old"), None);
        store.remove("old")?;
        assert_eq!(store.all().len(), 1);
        Ok(())
    }
}
