//! Installs the native engine's system call filter inside a container, for the helper.

use super::seccomp::{self, NewNamespaces};

/// Denies this process and its descendants the system calls that the native engine denies. A `nested`
/// guest may make sandboxes of its own, without cgroup namespaces: its control group is the engine's.
pub fn install_container_filter(nested: bool) -> rustix::io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    seccomp::install(&seccomp::filter(NewNamespaces::new(nested, false)))
}
