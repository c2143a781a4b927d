//! Who the guest is: ids, host name and network of the new namespaces.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::native::sys;

/// The caller's power over mounts decides the order of things.
///
/// With `CAP_SYS_ADMIN` the file system is set up first and the user namespace entered last: only
/// real root may pass through directories that belong to somebody else, and mounts that a user
/// namespace does not own are mounts it can never change. Without it the user namespace comes
/// first, because it is what permits the rest.
///
/// Either way one single id is mapped to the caller's own. For root that is 0 to 0: a guest with
/// another id in the kernel's eyes would be refused by root's ssh-agent and would leave foreign
/// files in the working directory. Its power is taken by other means: no capability in any set,
/// nothing of the host mounted that root alone may read, `/proc` covered, device nodes read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    Root,
    User,
}

impl Power {
    pub fn of_caller() -> Self {
        use rustix::thread::CapabilitySet;
        let admin = CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID;
        match rustix::thread::capabilities(None) {
            Ok(sets) if sets.effective.contains(admin) && rustix::process::geteuid().is_root() => Self::Root,
            _ => Self::User,
        }
    }
}

/// The one-line maps of the user namespace, written before the fork.
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

    /// Writes them. `own` is `/proc/self` of the host, which outlives the change of root.
    pub fn write(&self, own: BorrowedFd<'_>) -> Result<()> {
        // Without this the kernel lets no ordinary user map a group, for a group can also be what
        // denies access.
        put(own, c"setgroups", b"deny")?;
        put(own, c"uid_map", self.uid.as_bytes())?;
        put(own, c"gid_map", self.gid.as_bytes())
    }
}

/// `/proc/self` as the host's `/proc` shows it.
pub(crate) fn own_proc() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, c"/proc/self", flags, Mode::empty())
}

fn put(own: BorrowedFd<'_>, name: &std::ffi::CStr, value: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(own, name, flags, Mode::empty())?;
    let written = rustix::io::write(file, value)?;
    if written == value.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Enters a user namespace in which root is the only user, once the file system is complete.
pub(crate) fn become_guest_of_root(maps: &Maps, own: BorrowedFd<'_>) -> Result<()> {
    match rustix::thread::set_thread_groups(&[]) {
        // Root of a user namespace that denies it has no groups worth dropping.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    unshare(libc::CLONE_NEWUSER)?;
    maps.write(own)
}

/// Leaves a namespace for a new one.
pub(crate) fn unshare(namespace: libc::c_int) -> Result<()> {
    // SAFETY: called with namespaces only, which touches neither memory nor descriptors.
    sys::check(libc::c_long::from(unsafe { libc::unshare(namespace) }))?;
    Ok(())
}

/// A fresh network namespace has a loopback interface that is down.
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
