//! What this machine lets the native engine do: whether it can run at all, and which limits it can enforce. Makes nothing.

use rustix::fs::{Access, access};

use crate::error::Error;
use crate::native::diagnose;
use crate::native::error::SetupError;

/// Why no sandbox can be made here; `None` when one can.
pub fn problem() -> Option<Error> {
    if rustix::process::geteuid().is_root() && may_administer() {
        return None;
    }
    let cause = diagnose::obstacle()?;
    // What forbids it on paper may not apply to this program (an AppArmor profile, a permissive container).
    if can_make_namespace() {
        return None;
    }
    Some(launch_error(&SetupError::new(cause)))
}

/// The error a user sees.
pub fn launch_error(error: &SetupError) -> Error {
    let shown = Error::launch(format!("the native sandbox cannot be set up: {error}"));
    let shown = match &error.source {
        Some(source) => shown.cause(source),
        None => shown,
    };
    match error.remedy() {
        Some(remedy) => shown.hint(remedy),
        None => shown,
    }
}

/// Root of a container may lack what root has.
fn may_administer() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Tries it in a child of its own.
fn can_make_namespace() -> bool {
    // SAFETY: the child of a process that has one thread makes one system call and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above; `_exit` runs none of the parent's handlers.
        unsafe {
            libc::_exit(libc::unshare(libc::CLONE_NEWUSER));
        }
    }
    let status = rustix::process::Pid::from_raw(child)
        .and_then(|child| rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).ok().flatten());
    status.and_then(|(_, status)| status.exit_status()) == Some(0)
}

/// The controllers that no control group can be made for. Processes of an ordinary user are counted without one.
pub fn cannot_limit() -> Vec<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    ["cpu", "memory", "pids"].into_iter().filter(|name| !(can_group(name) || *name == "pids" && !is_root)).collect()
}

/// Whether the kernel's Landlock can keep the guest from the host's abstract sockets (ABI 6, Linux 6.12).
pub fn scopes_abstract_sockets() -> bool {
    landlock_version() >= 6
}

/// The ABI of the kernel's Landlock; 0 when there is none.
pub fn landlock_version() -> u32 {
    const VERSION: libc::c_int = 1;
    // SAFETY: with this flag the call reads no memory and only returns a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Whether the default limit of processes costs nothing that matters. Root needs a control group for it, and joining one of
/// version 1 waits for the whole machine (some 10 ms); there it is made only when asked for.
pub fn limits_processes_by_default() -> bool {
    let unified =
        || std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").is_ok_and(|names| names.contains("pids"));
    !rustix::process::geteuid().is_root() || unified()
}

fn can_group(controller: &str) -> bool {
    let classic = format!("/sys/fs/cgroup/{controller}");
    if access(classic.as_str(), Access::WRITE_OK).is_ok() {
        return true;
    }
    // Version 2: a group beside our own, where the controller is handed down.
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = membership.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(own) = own else { return false };
    std::path::Path::new(own).ancestors().skip(1).any(|parent| {
        let parent = std::path::Path::new("/sys/fs/cgroup").join(parent.strip_prefix("/").unwrap_or(parent));
        let handed_down = std::fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        handed_down.split_whitespace().any(|name| name == controller)
            && access(&parent, Access::WRITE_OK).is_ok()
            && access(parent.join("cgroup.procs").as_path(), Access::WRITE_OK).is_ok()
    })
}
