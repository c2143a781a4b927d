//! The native engine's system call filter inside a container, installed by the guest helper.

use crate::native::seccomp::{self, Policy};

/// Denies what the native engine denies, for this process and all that come from it.
pub fn confine_container() -> rustix::io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    seccomp::install(&seccomp::filter(Policy { guard_group: false }))
}
