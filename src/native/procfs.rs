//! Mounts the guest's `/proc`: it shows the guest's processes only, and nothing through which root
//! could control the machine.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MountAttrFlags, OpenTreeFlags};

use super::mountpoint::{Tree, attach, attach_at};
use super::root::{NO_DEVICES, new_file_system, tmpfs};
use super::skeleton::Part;
use super::sys::{self, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};

const ATTRIBUTES: u64 = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;

const READ_ONLY: [&CStr; 5] = [c"sys", c"sysrq-trigger", c"irq", c"bus", c"fs"];
/// Only root may read the second line, and so may a guest of root.
const EMPTY_FILES: [&CStr; 12] = [
    c"kcore",
    c"keys",
    c"timer_list",
    c"sched_debug",
    c"latency_stats",
    c"interrupts",
    c"kpagecount",
    c"kpageflags",
    c"kpagecgroup",
    c"slabinfo",
    c"vmallocinfo",
    c"pagetypeinfo",
];
const EMPTY_DIRECTORIES: [&CStr; 3] = [c"acpi", c"scsi", c"asound"];

/// The kernel counts the namespaces of a user namespace together with those of all below it.
const NAMESPACE_LIMITS: [&CStr; 7] = [
    c"sys/user/max_user_namespaces",
    c"sys/user/max_mnt_namespaces",
    c"sys/user/max_pid_namespaces",
    c"sys/user/max_net_namespaces",
    c"sys/user/max_ipc_namespaces",
    c"sys/user/max_uts_namespaces",
    c"sys/user/max_cgroup_namespaces",
];
/// A browser has one or two, an agent one for each command that runs.
const MAX_NAMESPACES: &[u8] = b"256";

/// Mounts `/proc` and covers what containers cover. A guest of root owns these files, so that only
/// mounts protect them, not file permissions.
pub(crate) fn mount(guest: &mut Tree) -> Result<()> {
    // The directory under the mount stays empty; directories of `/proc` are covered with it.
    let place = guest.directory(c"proc", 0o555)?;
    let proc = new_file_system(c"proc", &[], NO_DEVICES)?;
    attach(proc.as_fd(), place.as_fd())?;
    for name in READ_ONLY {
        if exists(proc.as_fd(), name)? {
            cover(proc.as_fd(), name, &copy(proc.as_fd(), name)?)?;
        }
    }
    for name in EMPTY_FILES {
        if exists(proc.as_fd(), name)? {
            cover(proc.as_fd(), name, &copy(rustix::fs::CWD, c"/dev/null")?)?;
        }
    }
    for name in EMPTY_DIRECTORIES {
        if exists(proc.as_fd(), name)? {
            cover(proc.as_fd(), name, &copy(place.as_fd(), c"")?)?;
        }
    }
    Ok(())
}

/// Lets namespaces that the guest creates mount `/proc`, as bubblewrap does, and limits their number.
///
/// The kernel permits that only if the namespace contains a `/proc` of which nothing is covered. The
/// one that this function mounts is covered as a whole: it is below a directory that another mount
/// covers, and the kernel locks that mount. What the guest sees at `/proc` stays covered. A `/proc`
/// that it mounts is not, which is why the guest of root must not: an ordinary user may not write to
/// the files of the machine anyway.
pub(crate) fn permit_mounting(guest: &mut Tree) -> Result<()> {
    let proc = new_file_system(c"proc", &[], NO_DEVICES | MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
    for kind in NAMESPACE_LIMITS {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(&proc, kind, flags, Mode::empty()) {
            Ok(file) => drop(rustix::io::write(file, MAX_NAMESPACES)?),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    guest.mount(tmpfs(0o755)?.as_fd(), c"dev/shm")?;
    guest.mount(proc.as_fd(), c"dev/shm/proc")?;
    guest.mount_memory(c"dev/shm", 0o1777, Part::Whole)
}

/// Not every kernel has every file. Checked first, because closing an unused copy of a mount waits
/// for every processor (80 µs each).
fn exists(proc: BorrowedFd<'_>, name: &CStr) -> Result<bool> {
    match rustix::fs::statat(proc, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn copy(at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(at, path, flags)
}

/// Covers it read-only, even with a device: a guest of root must not change the mode of the host's
/// node.
fn cover(proc: BorrowedFd<'_>, name: &CStr, with: &OwnedFd) -> Result<()> {
    sys::mount_setattr(with.as_fd(), c"", false, ATTRIBUTES, 0)?;
    attach_at(with.as_fd(), proc, name)
}
