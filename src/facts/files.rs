//! Looks up whether paths exist, their kind, real path and owner. Reads no content.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use serde::Serialize;

use crate::path::HostPath;

/// The kind of a file, with links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Socket,
    /// A device or a named pipe.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFact {
    pub kind: FileKind,
    /// The path with all links resolved; this one is mounted.
    pub real: HostPath,
    pub uid: u32,
}

/// The paths that were looked at; `None` for those that do not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Files(BTreeMap<HostPath, Option<FileFact>>);

impl Files {
    pub fn look(paths: impl IntoIterator<Item = HostPath>) -> Self {
        let mut files = Files::default();
        files.look_further(paths);
        files
    }

    pub fn look_further(&mut self, paths: impl IntoIterator<Item = HostPath>) {
        self.0.extend(paths.into_iter().map(|path| {
            let fact = examine(&path);
            (path, fact)
        }));
    }

    /// Returns `None` for a path that does not exist.
    ///
    /// A path that `plan::questions` did not name was not looked at. Debug builds panic there,
    /// because a mount of it would silently be missing.
    pub fn get(&self, path: &HostPath) -> Option<&FileFact> {
        let known = self.0.get(path);
        debug_assert!(known.is_some(), "`{path}` was not looked at: name it in `plan::questions`");
        known?.as_ref()
    }
}

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
