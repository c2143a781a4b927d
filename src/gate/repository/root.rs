//! Opens what is below a root of the workspace. Another guest may replace any directory there by a
//! link at any time, so nothing below a root is opened by its path.

use std::io;
use std::path::{Path, PathBuf};

use crate::process::untrusted_dir::UntrustedDir;

pub fn open_root(root: &Path) -> io::Result<UntrustedDir> {
    UntrustedDir::open_without_links(root)
}

/// Opens the directory that contains a path. Returns the last name as well.
pub fn open_parent(root: &Path, path: &Path) -> io::Result<(UntrustedDir, PathBuf)> {
    let below = path.strip_prefix(root).map_err(|_| io::ErrorKind::InvalidInput)?;
    match below.file_name() {
        Some(name) => {
            let parent = open_root(root)?.directory(below.parent().unwrap_or(Path::new("")))?;
            Ok((parent, name.into()))
        }
        // The root itself.
        None => {
            let (parent, name) = (path.parent().unwrap_or(path), path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
            Ok((open_root(parent)?, name.into()))
        }
    }
}

/// Opens a directory, and grants its owner access first if necessary.
pub fn open_directory(root: &Path, path: &Path) -> io::Result<UntrustedDir> {
    if path == root {
        return open_root(root);
    }
    let (parent, name) = open_parent(root, path)?;
    parent.open_granted(&name)
}

/// Creates a directory and those above it, and opens it.
pub fn create_directory(roots: &[PathBuf], path: &Path) -> io::Result<UntrustedDir> {
    let below = roots.iter().find_map(|root| Some((root, path.strip_prefix(root).ok()?)));
    let (root, below) = below.ok_or(io::ErrorKind::InvalidInput)?;
    open_root(root)?.create_directory(below)
}
