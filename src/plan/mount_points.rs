//! Lists mount points inside mounted directories, which are created before the launch. An engine
//! would create them as root, and they would stay.

use std::collections::HashMap;
use std::ffi::OsStr;

use super::entry::{Mount, Source};
use super::prepare::Prepare;
use crate::path::HostPath;

/// Finds, for each mount, the host directory that is mounted closest above its target, and the
/// path there at which the mount point is needed.
pub fn mount_points(mounts: &[Mount], session_dir: &HostPath) -> Vec<Prepare> {
    let by_target: HashMap<&OsStr, &Mount> = mounts.iter().map(|mount| (mount.target.as_os_str(), mount)).collect();
    let mut points = Vec::new();
    for mount in mounts.iter().filter(|mount| !matches!(mount.source, Source::Link(_))) {
        let target = mount.target.as_path();
        let above = target.ancestors().skip(1).find_map(|above| by_target.get(above.as_os_str()));
        let Some((Source::Host(source), above)) = above.map(|above| (&above.source, above.target.as_path())) else {
            continue;
        };
        let Ok(below) = target.strip_prefix(above) else { continue };
        let path = source.join(below);
        // The native engine writes generated files itself.
        if matches!(mount.source, Source::Text(_)) && source.is_within(session_dir) {
            continue;
        }
        points.push(match (source.is_within(session_dir), mount.is_directory) {
            (true, true) => Prepare::Directory { path, mode: 0o755 },
            (true, false) => Prepare::File { path, content: String::new() },
            (false, is_directory) => Prepare::Point { path, root: source.clone(), is_directory },
        });
    }
    points
}
