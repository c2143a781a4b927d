//! Proves inside a container that the engine mounted the files that the launcher saw (attack 33). An
//! engine opens a path again that the launcher has checked, and a guest of another sandbox that can
//! write to a directory of that path can replace it by a link in between.
//!
//! Device and inode are the same inside and outside on one kernel. Behind another kernel, in a virtual
//! machine, they are not, and nothing is compared.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Identifies the running kernel, inside containers as well.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The files that an engine is to mount, by their places inside.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountIdentities {
    boot: String,
    mounts: Vec<MountIdentity>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MountIdentity {
    target: String,
    device: u64,
    inode: u64,
}

/// Whether a path may lead through symbolic links.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    Follow,
    Refuse,
}

impl MountIdentities {
    #[cfg(target_os = "linux")]
    pub fn new() -> Self {
        MountIdentities { boot: boot_id(), mounts: Vec::new() }
    }

    /// Notes what `source` is now.
    #[cfg(target_os = "linux")]
    pub fn note(&mut self, source: &Path, target: &str, links: Links) -> io::Result<()> {
        use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat2, statat};
        let resolve = match links {
            Links::Follow => ResolveFlags::empty(),
            Links::Refuse => ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        };
        let file = openat2(CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        let meta = statat(&file, c"", AtFlags::EMPTY_PATH)?;
        self.mounts.push(MountIdentity { target: target.to_owned(), device: meta.st_dev, inode: meta.st_ino });
        Ok(())
    }

    #[cfg(target_os = "linux")]
    pub fn to_json(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Returns the first place where another file is mounted, or that cannot be looked at.
    pub fn replaced(&self) -> Option<&str> {
        if self.boot.is_empty() || self.boot != boot_id() {
            return None;
        }
        let is_same = |mount: &MountIdentity| {
            fs::metadata(&mount.target).is_ok_and(|meta| (meta.dev(), meta.ino()) == (mount.device, mount.inode))
        };
        self.mounts.iter().find(|mount| !is_same(mount)).map(|mount| mount.target.as_str())
    }
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn attack_33_another_file_and_a_link_are_noticed() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        fs::write(at("planned"), "")?;
        fs::write(at("other"), "")?;
        let target = at("planned").display().to_string();
        let mut identities = MountIdentities::new();
        identities.note(&at("planned"), &target, Links::Refuse)?;
        let written: MountIdentities = serde_json::from_slice(&identities.to_json()?)?;
        assert_eq!(written.replaced(), None);
        fs::remove_file(at("planned"))?;
        assert_eq!(written.replaced(), Some(target.as_str()));
        std::os::unix::fs::symlink(at("other"), at("planned"))?;
        assert_eq!(written.replaced(), Some(target.as_str()));
        assert!(identities.note(&at("planned"), &target, Links::Refuse).is_err());
        assert!(identities.note(&at("missing"), &target, Links::Follow).is_err());
        let elsewhere = MountIdentities { boot: "another kernel".into(), ..written };
        assert_eq!(elsewhere.replaced(), None);
        Ok(())
    }
}
