//! The mark by which a layer says that the user's entry of this name was removed. On Linux it is the
//! kernel's own, so that an overlay can be mounted over the layer.

use std::ffi::OsStr;
use std::io;

use rustix::fs::Stat;

use super::node::Node;
use crate::process::untrusted_dir::UntrustedDir;

/// Where there are no overlays, a link to this path is the mark. A guest that makes such a link only
/// removes what it could remove anyway.
#[cfg(not(target_os = "linux"))]
const REMOVED: &str = "/.sandpen/removed";

/// Makes the mark, where nothing is.
#[cfg(target_os = "linux")]
pub fn mark_as_removed(directory: &UntrustedDir, name: &OsStr) -> io::Result<()> {
    use rustix::fs::{FileType, Mode};
    // Every user may make this device.
    Ok(rustix::fs::mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0)?)
}

#[cfg(not(target_os = "linux"))]
pub fn mark_as_removed(directory: &UntrustedDir, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::symlinkat(REMOVED, directory, name)?)
}

/// Tells whether an entry of a layer is the mark.
#[cfg(target_os = "linux")]
pub fn is_removal_mark(node: &Node, stat: &Stat) -> bool {
    *node == Node::Device && stat.st_rdev == 0
}

#[cfg(not(target_os = "linux"))]
pub fn is_removal_mark(node: &Node, _: &Stat) -> bool {
    matches!(node, Node::Link { target } if target == REMOVED.as_bytes())
}
