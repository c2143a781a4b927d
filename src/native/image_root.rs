//! Mounts the files of an image as the root, under a layer for what the guest changes, and finds the
//! places of mounts in it. Nothing is written to the image's layers.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::fmt::Write;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::MountFlags;

use super::blueprint::{Operation, RootLayers};
use super::root::open_place;

/// The kernel's limit for links on the way to one file.
const MOST_LINKS: usize = 40;
/// Covered by the overlay, in the file system of the directories in memory.
const PLACE: &CStr = c"root";
/// The kernel reads one page of options.
const LONGEST_OPTIONS: usize = 4095;

/// The open directories of an overlay.
pub(crate) struct OpenLayers {
    /// Lowest first.
    lowers: Vec<OwnedFd>,
    changes: Option<(OwnedFd, OwnedFd)>,
}

/// Opens the directories of an overlay.
pub(crate) fn open(layers: &RootLayers) -> Result<OpenLayers> {
    let lowers = layers.lowers.iter().map(|path| open_place(path)).collect::<Result<_>>()?;
    let changes = match &layers.changes {
        Some((upper, work)) => Some((open_place(upper)?, open_place(work)?)),
        None => None,
    };
    Ok(OpenLayers { lowers, changes })
}

/// Mounts the overlay, and returns its root. `memory` is the file system of the directories in memory,
/// which is mounted: it serves as the mount point until the caller moves the mount, and for changes that
/// are kept in memory.
///
/// The older system call is used because it takes the names of all layers at once on every kernel;
/// the newer one limits each option to 255 bytes before Linux 6.5.
pub(crate) fn mount(layers: OpenLayers, memory: BorrowedFd<'_>) -> Result<OwnedFd> {
    let make = |name: &CStr| {
        rustix::fs::mkdirat(memory, name, Mode::from_raw_mode(0o755))?;
        open_directory(memory, name)
    };
    let (upper, work) = match layers.changes {
        Some(changes) => changes,
        None => (make(c"upper")?, make(c"work")?),
    };
    let place = make(PLACE)?;
    let mut options = String::from("lowerdir=");
    // The uppermost comes first.
    for (number, lower) in layers.lowers.iter().rev().enumerate() {
        let colon = if number == 0 { "" } else { ":" };
        let _ = write!(options, "{colon}/proc/self/fd/{}", lower.as_raw_fd());
    }
    // `userxattr`: only the host's root could keep the layer's data otherwise. `volatile`: the layer is
    // removed with the session, so it need not reach the disk.
    let _ = write!(
        options,
        ",upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{},userxattr,volatile",
        upper.as_raw_fd(),
        work.as_raw_fd()
    );
    if options.len() > LONGEST_OPTIONS {
        return Err(Errno::NAMETOOLONG);
    }
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let target = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"overlay", &*target, c"overlay", flags, options.as_c_str())?;
    // By its name, which leads to what is mounted there.
    open_directory(memory, PLACE)
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Replaces the targets of operations by those to which the image's own links lead, inside the image.
/// Nothing else is mounted there yet and no guest has run, so that later steps need to follow no link.
pub(crate) fn resolve<'a>(root: BorrowedFd<'_>, operations: &[Operation<'a>]) -> Result<Vec<Operation<'a>>> {
    let resolve_one = |operation: &Operation<'a>| {
        let mut operation = operation.clone();
        match &mut operation {
            Operation::Dir { at, .. }
            | Operation::Bind { at, .. }
            | Operation::Cache { at, .. }
            | Operation::Tmpfs { at, .. } => *at = target(root, at, true)?,
            Operation::Symlink { at, .. } | Operation::File { at, .. } => {
                *at = target(root, at, false)?;
                // What the image has there is replaced in the guest's layer.
                let _ = rustix::fs::unlinkat(root, &*at, AtFlags::empty());
            }
            Operation::Proc | Operation::Dev => {}
        }
        Ok(operation)
    };
    operations.iter().map(resolve_one).collect()
}

/// Follows links by their text, as if the root were `/`. What does not exist is no link.
fn target(root: BorrowedFd<'_>, path: &CStr, follows_last: bool) -> Result<CString> {
    let names = |bytes: &[u8]| {
        bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && name != b".").map(<[u8]>::to_vec).collect()
    };
    let mut pending: VecDeque<Vec<u8>> = names(path.to_bytes());
    let mut real: Vec<Vec<u8>> = Vec::new();
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if name == b".." {
            real.pop();
            continue;
        }
        real.push(name);
        if pending.is_empty() && !follows_last {
            break;
        }
        let here = CString::new(real.join(&b'/')).map_err(|_| Errno::INVAL)?;
        let Ok(to) = rustix::fs::readlinkat(root, &here, Vec::new()) else { continue };
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        real.pop();
        if to.to_bytes().starts_with(b"/") {
            real.clear();
        }
        let mut ahead: VecDeque<Vec<u8>> = names(to.to_bytes());
        ahead.append(&mut pending);
        pending = ahead;
    }
    if real.is_empty() {
        // A mount over the root would hide the image.
        return Err(Errno::LOOP);
    }
    CString::new(real.join(&b'/')).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_an_image_lead_to_places_inside_it() -> std::io::Result<()> {
        let image = tempfile::tempdir()?;
        let at = |name: &str| image.path().join(name);
        std::fs::create_dir_all(at("var/home/me"))?;
        symlink("/var/home", at("home"))?;
        symlink("../../../../../../etc", at("var/up"))?;
        symlink("loop", at("loop"))?;
        symlink("/", at("all"))?;
        symlink("/etc/passwd", at("var/file"))?;
        let root = std::fs::File::open(image.path())?;
        let resolved = |path: &str, follows_last| {
            let path = CString::new(path).expect("a name");
            target(root.as_fd(), &path, follows_last).map(|path| path.into_string().expect("text"))
        };
        assert_eq!(resolved("home/me/work", true).as_deref(), Ok("var/home/me/work"));
        assert_eq!(resolved("home", true).as_deref(), Ok("var/home"));
        assert_eq!(resolved("home", false).as_deref(), Ok("home"));
        assert_eq!(resolved("var/up/passwd", true).as_deref(), Ok("etc/passwd"));
        assert_eq!(resolved("var/file", true).as_deref(), Ok("etc/passwd"));
        assert_eq!(resolved("var/file", false).as_deref(), Ok("var/file"));
        assert_eq!(resolved("missing/x", true).as_deref(), Ok("missing/x"));
        assert_eq!(resolved("loop/x", true), Err(Errno::LOOP));
        assert_eq!(resolved("all", true), Err(Errno::LOOP));
        Ok(())
    }
}
