//! Wraps the few system calls that rustix does not.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::process::Pid;

pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;

const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `struct clone_args` as of Linux 5.7. libc has it for some targets only, and its constants of the
/// two flags above overflow to zero.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Returns the calling thread's last error, for calls through libc.
pub fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

pub fn check(result: libc::c_long) -> Result<libc::c_long> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// The side of a `fork` that the caller is on.
pub enum Forked {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

/// Forks into new namespaces, with a pidfd; the child has none of the parent's signal handlers.
///
/// # Safety
/// The process must be single-threaded: the child is a copy with one thread, and a lock that
/// another thread held at the fork would never be released in it.
pub unsafe fn fork_with(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Forked> {
    let mut pidfd: libc::c_int = -1;
    let mut args = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND,
        pidfd: (&raw mut pidfd) as u64,
        // With CLONE_PARENT the kernel uses the caller's.
        exit_signal: match flags & libc::CLONE_PARENT as u64 {
            0 => libc::SIGCHLD as u64,
            _ => 0,
        },
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: no stack is given and CLONE_VM is not set, so this behaves like fork(2); the caller
    // guarantees the single thread.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) })?;
    match Pid::from_raw(pid as i32) {
        None => Ok(Forked::Child),
        Some(pid) => {
            // SAFETY: the kernel has stored a new descriptor that no other value owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid, pidfd })
        }
    }
}

/// Sets attributes of a mount, or of the whole tree of mounts below it.
pub fn mount_setattr(mount: BorrowedFd<'_>, path: &CStr, recursive: bool, set: u64, propagation: u64) -> Result<()> {
    let attributes = MountAttr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the pointers live across the call and the size is that of the structure.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Closes every descriptor from `first` on.
///
/// # Safety
/// No value that owns one of them may be used or dropped afterwards.
pub unsafe fn close_from(first: u32) -> Result<()> {
    // SAFETY: no memory is involved; the caller guarantees that the owners are not used.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })?;
    Ok(())
}

/// Calls `prctl` with one number.
pub fn prctl(option: libc::c_int, value: libc::c_ulong) -> Result<()> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: called only with options whose arguments are numbers.
    check(libc::c_long::from(unsafe { libc::prctl(option, value, NONE, NONE, NONE) }))?;
    Ok(())
}

/// Blocks every signal and returns the previous mask.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are initialised by the calls before they are read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

pub fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: `mask` is a set that sigprocmask returned.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}
