//! Looks up whether paths exist, their kind, real path and owner. Reads no content.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use crate::path::HostPath;

/// The kernel follows no more in one path.
const MAX_LINKS: usize = 40;

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
    /// The symbolic links on the way, each with the real path of its directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<HostPath>,
    pub uid: u32,
}

impl FileFact {
    /// Tells whether whoever can write to one of these directories chose the file, by a link.
    pub fn is_chosen_in<'a>(&self, roots: impl Iterator<Item = &'a HostPath> + Clone) -> bool {
        let is_inside = |path: &HostPath| roots.clone().any(|root| path.is_within(root));
        !is_inside(&self.real) && self.links.iter().any(is_inside)
    }
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
    let links = if real == *path { Vec::new() } else { links(path.as_path()) };
    Some(FileFact { kind, real, links, uid: meta.uid() })
}

/// Follows a path as the kernel does, and lists the links in it.
fn links(path: &Path) -> Vec<HostPath> {
    let mut found = Vec::new();
    let mut place = PathBuf::from("/");
    let mut rest: Vec<OsString> = names(path);
    while let Some(name) = rest.pop() {
        if name == ".." {
            place.pop();
            continue;
        }
        let next = place.join(name);
        let target = if found.len() < MAX_LINKS { fs::read_link(&next).ok() } else { None };
        let Some(target) = target else {
            place = next;
            continue;
        };
        found.extend(HostPath::new(&next));
        if target.is_absolute() {
            place = PathBuf::from("/");
        }
        rest.extend(names(&target));
    }
    found
}

/// Lists the components of a path from the last to the first.
fn names(path: &Path) -> Vec<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_listed_where_they_are() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path().canonicalize()?;
        let path = |name: &str| HostPath::new(root.join(name)).expect("a path");
        for name in ["shared/deep", "private"] {
            fs::create_dir_all(root.join(name))?;
        }
        fs::write(root.join("private/key"), "")?;
        std::os::unix::fs::symlink("shared", root.join("way"))?;
        std::os::unix::fs::symlink("../../private", root.join("shared/deep/out"))?;
        let fact = examine(&path("way/deep/out/key")).expect("a file");
        assert_eq!(fact.real, path("private/key"));
        assert_eq!(fact.links, [path("way"), path("shared/deep/out")]);
        assert!(fact.is_chosen_in([path("shared")].iter()));
        assert!(!fact.is_chosen_in([path("private")].iter()));
        assert!(!fact.is_chosen_in([path("shared"), path("private")].iter()));
        Ok(())
    }
}
