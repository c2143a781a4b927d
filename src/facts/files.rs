//! Which of the paths that planning may care about exist, and what they are.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use serde::Serialize;

use crate::path::HostPath;

/// What a path is, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A Unix socket.
    Socket,
    /// Anything else.
    Other,
}

/// One existing path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFact {
    /// What it is.
    pub kind: FileKind,
    /// The path with all links resolved; this is what is mounted.
    pub real: HostPath,
    /// Its owner.
    pub uid: u32,
}

/// The paths that were looked at; `None` for those that do not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Files(BTreeMap<HostPath, Option<FileFact>>);

impl Files {
    /// Looks at every path once.
    pub fn look(paths: impl IntoIterator<Item = HostPath>) -> Self {
        let mut files = Files::default();
        files.look_further(paths);
        files
    }

    /// Looks at more of them.
    pub fn look_further(&mut self, paths: impl IntoIterator<Item = HostPath>) {
        self.0.extend(paths.into_iter().map(|path| {
            let fact = examine(&path);
            (path, fact)
        }));
    }

    /// Returns what a path is; `None` when it does not exist.
    ///
    /// A path that `plan::questions` did not name was not looked at. Debug builds stop there, because a mount of it would
    /// silently be missing.
    pub fn get(&self, path: &HostPath) -> Option<&FileFact> {
        let known = self.0.get(path);
        debug_assert!(known.is_some(), "`{path}` was not looked at: name it in `plan::questions`");
        known?.as_ref()
    }
}

/// Looks at one path.
pub fn examine(path: &HostPath) -> Option<FileFact> {
    let meta = fs::metadata(path.as_path()).ok()?;
    let real = HostPath::new(fs::canonicalize(path.as_path()).ok()?).ok()?;
    let kind = match meta.file_type() {
        kind if kind.is_file() => FileKind::File,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_socket() => FileKind::Socket,
        _ => FileKind::Other,
    };
    Some(FileFact { kind, real, uid: meta.uid() })
}
