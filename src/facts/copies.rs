//! Looks at kept copies of workspaces, and at what could keep the kernel from making a new one.

use std::path::Path;

use serde::Serialize;

use crate::config::value::WorkspaceMode;
use crate::host::Host;
use crate::kept_copy::{CopyStore, KeptCopy};
use crate::path::HostPath;

/// Entries of a workspace whose groups are looked at. More would delay every launch.
#[cfg(target_os = "linux")]
const MAX_ENTRIES: usize = 300;

/// What a plan asks about copies.
pub struct CopyQuestion {
    pub mode: WorkspaceMode,
    /// The directories to copy.
    pub trees: Vec<HostPath>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CopyFacts {
    /// The directory of a new copy is made in this one.
    pub base: Option<HostPath>,
    /// The copy with the id that was asked for.
    #[serde(skip)]
    pub kept: Option<KeptCopy>,
    /// Whether a sandbox uses it.
    pub is_used: bool,
    /// The ids of all copies, if none has the id that was asked for.
    pub others: Vec<String>,
    /// Why the kernel cannot lay a copy over the workspace.
    pub obstacle: Option<String>,
    /// Why a container engine cannot name the directories of an overlay.
    pub odd_name: Option<String>,
    /// Why it cannot do so for a sandbox in which only this user and group exist.
    pub unmapped: Option<String>,
}

impl CopyFacts {
    pub fn look(host: &Host, sessions: &HostPath, question: &CopyQuestion) -> Self {
        let store = CopyStore::beside(sessions);
        match &question.mode {
            WorkspaceMode::Live => CopyFacts { base: Some(store.directory("")), ..CopyFacts::default() },
            WorkspaceMode::Copy => CopyFacts {
                base: Some(store.directory("")),
                obstacle: obstacle(question, store.directory("").as_path()),
                unmapped: unmapped(host, question),
                odd_name: odd_name(question, &store.directory("")),
                ..CopyFacts::default()
            },
            WorkspaceMode::Kept(id) => {
                let id = id.to_string();
                let kept = store.find(&id);
                let others =
                    if kept.is_none() { store.all().into_iter().map(|copy| copy.id).collect() } else { Vec::new() };
                CopyFacts {
                    base: Some(store.directory("")),
                    is_used: store.is_used(&id),
                    kept,
                    others,
                    ..CopyFacts::default()
                }
            }
        }
    }
}

/// Looks for characters that divide the options of an overlay.
fn odd_name(question: &CopyQuestion, base: &HostPath) -> Option<String> {
    let is_odd = |path: &&HostPath| path.to_str().is_none_or(|text| text.contains([':', ',', '\\', '"', '\n']));
    let odd = question.trees.iter().chain([base]).find(is_odd)?;
    Some(format!("the engine cannot lay it over a directory with the name `{odd}`"))
}

#[cfg(target_os = "linux")]
fn obstacle(question: &CopyQuestion, base: &Path) -> Option<String> {
    /// File systems on which the kernel refuses to keep changes of an overlay.
    const UNFIT: &[(i64, &str)] = &[
        (0x794c_7630, "an overlay itself"),
        (0x6969, "NFS"),
        (0x6573_5546, "FUSE"),
        (0x4d44, "FAT"),
        (0x2011_bab0, "exFAT"),
        (0xff53_4d42, "SMB"),
        (0xfe53_4d42, "SMB"),
        (0x0102_1997, "9p"),
        (0xf15f, "eCryptfs"),
    ];
    let existing = base.ancestors().find(|path| path.exists())?;
    let kind = rustix::fs::statfs(existing).ok()?.f_type;
    if let Some((_, name)) = UNFIT.iter().find(|(magic, _)| *magic == kind) {
        return Some(format!("sandpen's state directory is on {name}"));
    }
    if !has_attributes(existing) {
        return Some("sandpen's state directory is on a file system without extended attributes".to_owned());
    }
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    for tree in &question.trees {
        if is_case_insensitive(tree.as_path()) {
            return Some(format!("`{tree}` is case-insensitive"));
        }
        let below = mounts.split(|byte| *byte == b'\n').filter_map(mount_point);
        if let Some(point) =
            below.into_iter().find(|point| point.starts_with(tree.as_path()) && point != tree.as_path())
        {
            return Some(format!("`{}` is a mount of its own", point.display()));
        }
    }
    None
}

#[cfg(not(target_os = "linux"))]
fn obstacle(_: &CopyQuestion, _: &Path) -> Option<String> {
    Some("this system has no overlays".to_owned())
}

/// Returns the mount point in a line of mountinfo.
#[cfg(target_os = "linux")]
fn mount_point(line: &[u8]) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut name = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                name.push(byte);
                rest = &after[3..];
            }
            None => {
                name.push(first);
                rest = after;
            }
        }
    }
    Some(std::ffi::OsString::from_vec(name).into())
}

/// Tells whether a file system has attributes in which the kernel can note what a directory replaces.
/// Without them a directory could not be removed inside.
#[cfg(target_os = "linux")]
fn has_attributes(path: &Path) -> bool {
    rustix::fs::getxattr(path, "user.overlay.opaque", &mut [0; 1][..]) != Err(rustix::io::Errno::OPNOTSUPP)
}

#[cfg(target_os = "linux")]
fn is_case_insensitive(path: &Path) -> bool {
    /// `FS_CASEFOLD_FL` of the kernel.
    const CASEFOLD: u32 = 0x4000_0000;
    const FAT: i64 = 0x4d44;
    const EXFAT: i64 = 0x2011_bab0;
    if rustix::fs::statfs(path).is_ok_and(|kind| matches!(kind.f_type, FAT | EXFAT)) {
        return true;
    }
    let flags = std::fs::File::open(path).and_then(|file| Ok(rustix::fs::ioctl_getflags(file)?));
    flags.is_ok_and(|flags| flags.bits() & CASEFOLD != 0)
}

/// Looks at the groups of the entries near the root: the kernel refuses to copy files of groups that
/// do not exist in the sandbox.
#[cfg(target_os = "linux")]
fn unmapped(host: &Host, question: &CopyQuestion) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let mut pending: std::collections::VecDeque<std::path::PathBuf> =
        question.trees.iter().map(|tree| tree.as_path().to_owned()).collect();
    let mut left = MAX_ENTRIES;
    while let Some(path) = pending.pop_front() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.uid() == host.uid && meta.gid() != host.gid {
            return Some(format!(
                "`{}` belongs to group {}, which does not exist in the sandbox",
                path.display(),
                meta.gid()
            ));
        }
        if meta.is_dir() && path.file_name().is_none_or(|name| name != ".git") && left > 0 {
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(left) {
                left -= 1;
                pending.push_back(entry.path());
            }
        }
    }
    None
}

#[cfg(not(target_os = "linux"))]
fn unmapped(_: &Host, _: &CopyQuestion) -> Option<String> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_spaces_are_read() {
        let line = b"36 35 98:0 /mnt1 /a\\040b\\134 rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line), Some("/a b\\".into()));
        assert_eq!(mount_point(b""), None);
    }
}
