//! Mount points inside the session's own directories, made beforehand: an engine would make them as root, and they would stay.

use std::path::Path;

use super::entry::{Mount, Source};
use super::session::Prepare;
use crate::path::HostPath;

/// The mount points to make: for every mount, where its target falls into the session directory mounted closest above it.
pub fn mount_points(mounts: &[Mount], session_dir: &HostPath) -> Vec<Prepare> {
    let mut points = Vec::new();
    for mount in mounts.iter().filter(|mount| !matches!(mount.source, Source::Link(_))) {
        let Some((source, below)) = parent_source(mount, mounts) else { continue };
        if !source.is_within(session_dir) {
            continue;
        }
        let path = source.join(&below);
        points.push(if mount.is_directory {
            Prepare::Directory { path, mode: 0o755 }
        } else {
            Prepare::File { path, content: String::new() }
        });
    }
    points
}

/// The source of the mount closest above, and the rest of the path below it.
fn parent_source(mount: &Mount, mounts: &[Mount]) -> Option<(HostPath, std::path::PathBuf)> {
    let above = mounts
        .iter()
        .filter(|other| other.target != mount.target && mount.target.is_within(&other.target))
        .max_by_key(|other| other.target.as_path().components().count())?;
    let Source::Host(source) = &above.source else { return None };
    let below: &Path = mount.target.as_path().strip_prefix(above.target.as_path()).ok()?;
    Some((source.clone(), below.to_owned()))
}
