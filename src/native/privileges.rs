//! Takes every privilege from the calling process, for good.

use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::native::sys::{self, prctl};

/// Root is an id like any other, no change of id brings capabilities, and none of it can be undone.
const SECURE_BITS: libc::c_int = libc::SECBIT_NOROOT
    | libc::SECBIT_NOROOT_LOCKED
    | libc::SECBIT_NO_SETUID_FIXUP
    | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
    | libc::SECBIT_KEEP_CAPS_LOCKED
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

/// No process of the guest may look into this one (pid 1, or an entering process before its exec):
/// through `/proc/PID/exe` it could overwrite sandpen's own program, through `ptrace` act in its
/// name. Not even one with the same id: that takes a capability over the namespace in which
/// sandpen itself was started.
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

fn drop_bounding_set() -> Result<()> {
    // The kernel says where its list ends.
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The kernel kills this process when the thread that made it ends, however that happens. To be
/// called after the last change of credentials, which may undo it.
pub(crate) fn die_with_parent() -> Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// An honest count of processes for an ordinary user: since Linux 5.14 the kernel counts them per
/// user namespace, so that this limit is the sandbox's own. Root is exempt from it.
pub(crate) fn limit_processes(limit: u64) -> Result<()> {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the structure outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
    sys::check(libc::c_long::from(result))?;
    Ok(())
}
