//! Drops every privilege of the calling process, irrevocably.

use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::sys::{self, prctl};

/// Root is an id like any other, no change of id grants capabilities, and the bits are locked.
const SECURE_BITS: libc::c_int = libc::SECBIT_NOROOT
    | libc::SECBIT_NOROOT_LOCKED
    | libc::SECBIT_NO_SETUID_FIXUP
    | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
    | libc::SECBIT_KEEP_CAPS_LOCKED
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

/// Keeps the guest's processes from inspecting this one (pid 1, or an entering process before its
/// exec): through `/proc/PID/exe` they could overwrite sandpen's program, through `ptrace` act in
/// its name. That holds for processes with the same id, too: they would need a capability over the
/// namespace in which sandpen was started.
pub(crate) fn hide() -> Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Empties all capability sets and forbids regaining any.
pub(crate) fn drop_all() -> Result<()> {
    prctl(libc::PR_SET_SECUREBITS, SECURE_BITS as libc::c_ulong)?;
    drop_bounding_set()?;
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Keeps this thread, and what it starts, from regaining a capability by executing a program.
pub fn drop_bounding_set() -> Result<()> {
    // The kernel answers EINVAL past its last capability.
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Makes the kernel kill this process when the thread that forked it exits, for whatever reason.
/// Must be called after the last change of credentials, which may reset it.
pub(crate) fn die_with_parent() -> Result<()> {
    signal_at_end_of_parent(libc::SIGKILL)
}

/// Likewise with another signal.
pub(crate) fn signal_at_end_of_parent(signal: i32) -> Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong)
}

/// Limits the processes of an ordinary user's sandbox: since Linux 5.14 the kernel counts them per
/// user namespace, so that processes outside do not count. Root is exempt from this limit.
pub(crate) fn limit_processes(limit: u64) -> Result<()> {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the structure outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
    sys::check(libc::c_long::from(result))?;
    Ok(())
}
