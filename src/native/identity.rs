//! Sets up the user and network namespaces of a new sandbox: id maps and the loopback interface.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result};

use super::sys;

/// Whether the caller may mount without a user namespace, which decides the order of the set-up.
///
/// With `CAP_SYS_ADMIN` the file system is set up first and the user namespace entered last: only
/// real root may traverse directories of other users, and mounts that a user namespace does not own
/// are mounts it can never change. Without it the user namespace comes first, because it permits
/// everything else.
///
/// In both cases a single id is mapped to the caller's. For root that is 0 to 0: root's ssh-agent
/// would refuse a guest with another id in the kernel's eyes, and the guest would leave files of
/// another user in the working directory. Root's privileges are removed by other means: no
/// capability in any set, nothing of the host mounted that only root may read, `/proc` covered,
/// device nodes read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Root,
    User,
}

impl Caller {
    pub fn current() -> Self {
        use rustix::thread::CapabilitySet;
        let admin = CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID;
        match rustix::thread::capabilities(None) {
            Ok(sets) if sets.effective.contains(admin) && rustix::process::geteuid().is_root() => Self::Root,
            _ => Self::User,
        }
    }
}

/// The one-line id maps of the user namespace, made before the fork.
pub(crate) struct Maps {
    uid: String,
    gid: String,
}

impl Maps {
    pub fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid: format!("{uid} {} 1", rustix::process::geteuid().as_raw()),
            gid: format!("{gid} {} 1", rustix::process::getegid().as_raw()),
        }
    }

    /// Writes the maps. `own_proc` is `/proc/self` of the host, which stays valid when the root
    /// changes.
    pub fn write(&self, own_proc: BorrowedFd<'_>) -> Result<()> {
        // The kernel requires this before an ordinary user maps a group, because a process could
        // otherwise drop a group that denies it access.
        put(own_proc, c"setgroups", b"deny")?;
        put(own_proc, c"uid_map", self.uid.as_bytes())?;
        put(own_proc, c"gid_map", self.gid.as_bytes())
    }
}

/// Opens `/proc/self` of the host.
pub(crate) fn open_own_proc() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, c"/proc/self", flags, Mode::empty())
}

fn put(own_proc: BorrowedFd<'_>, name: &std::ffi::CStr, value: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(own_proc, name, flags, Mode::empty())?;
    let written = rustix::io::write(file, value)?;
    if written == value.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Moves a process of real root, whose file system is complete, into a user namespace in which root
/// is the only user.
pub(crate) fn enter_user_namespace(maps: &Maps, own_proc: BorrowedFd<'_>) -> Result<()> {
    match rustix::thread::set_thread_groups(&[]) {
        // Root of a user namespace that denies `setgroups` has no groups to drop.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    unshare(libc::CLONE_NEWUSER)?;
    maps.write(own_proc)
}

/// Moves the calling process into a new namespace.
pub(crate) fn unshare(namespace: libc::c_int) -> Result<()> {
    // SAFETY: called with flags of namespaces only, which change neither memory nor descriptors.
    sys::check(libc::c_long::from(unsafe { libc::unshare(namespace) }))?;
    Ok(())
}

/// Brings up the loopback interface, which is down in a new network namespace.
pub(crate) fn loopback_up() -> Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the request is initialised and outlives the call.
    let result = unsafe { libc::ioctl(descriptor, libc::SIOCSIFFLAGS as _, &raw const request) };
    sys::check(libc::c_long::from(result))?;
    Ok(())
}
