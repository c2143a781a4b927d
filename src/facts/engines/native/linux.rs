//! Asks the Linux kernel what it lets the native engine do, and reads `/proc` and `/sys/fs/cgroup`.

use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::CapabilitySet;

use super::NativeUnavailable;
use crate::error::Error;
use crate::facts::engines::Controller;

const MAX_USER_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";
/// Only kernels of Debian and its descendants have this switch.
const USERNS_CLONE: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const APPARMOR_USERNS: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Keeps unprivileged processes of this machine from creating user namespaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceRestriction {
    #[error("user namespaces are disabled (`{sysctl}` is `{value}`)")]
    Sysctl { sysctl: &'static str, value: String },
    #[error("AppArmor restricts unprivileged user namespaces")]
    AppArmor,
    #[error("this looks like a container that forbids namespaces: {evidence}")]
    Container { evidence: String },
    #[error("the kernel refuses to create user namespaces, as it does in a chroot")]
    Unknown,
}

impl NamespaceRestriction {
    pub fn remedy(&self) -> String {
        match self {
            Self::Sysctl { sysctl, .. } => {
                let name = sysctl.trim_start_matches("/proc/sys/").replace('/', ".");
                let value = if *sysctl == USERNS_CLONE { 1 } else { 15000 };
                format!("run `sudo sysctl -w {name}={value}`, or use a container engine")
            }
            Self::AppArmor => "run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give this \
                 program an AppArmor profile with `userns,`, or use a container engine"
                .into(),
            Self::Container { .. } => "start the container with `--security-opt seccomp=unconfined --security-opt \
                 systempaths=unconfined`, or run on the host"
                .into(),
            Self::Unknown => "run sandpen outside of the chroot, or use a container engine".into(),
        }
    }
}

/// Tells why no native sandbox can be created here. Forks to find out, so the process must have one
/// thread.
pub fn problem() -> Option<Error> {
    if rustix::process::geteuid().is_root() && has_sys_admin() {
        return None;
    }
    let restriction = namespace_restriction().or_else(|| is_chroot().then_some(NamespaceRestriction::Unknown))?;
    // The restriction may not apply to this program: an AppArmor profile or a permissive container
    // exempts it.
    if can_create_user_namespace() { None } else { Some(NativeUnavailable::Restricted(restriction).into()) }
}

/// Tells whether the root directory is no mount, as in most chroots. One that is a mount cannot be told
/// from a container, and its launches explain why they fail.
fn is_chroot() -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let root = statx(CWD, "/", AtFlags::empty(), StatxFlags::empty());
    root.is_ok_and(|root| {
        root.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            && !root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// Root of a container may lack capabilities.
fn has_sys_admin() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn can_create_user_namespace() -> bool {
    // SAFETY: the child makes one system call and exits; it uses no lock or buffer of the parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above; `_exit` runs none of the parent's exit handlers.
        unsafe {
            libc::_exit(libc::unshare(libc::CLONE_NEWUSER));
        }
    }
    let status = Pid::from_raw(child)
        .and_then(|child| rustix::process::waitpid(Some(child), WaitOptions::empty()).ok().flatten());
    status.and_then(|(_, status)| status.exit_status()) == Some(0)
}

/// Finds a setting or a container that keeps an ordinary user from creating user namespaces. Called
/// by `doctor`, and to explain a launch that has failed; a successful launch never asks.
pub fn namespace_restriction() -> Option<NamespaceRestriction> {
    restriction_below(Path::new("/"))
}

fn restriction_below(root: &Path) -> Option<NamespaceRestriction> {
    let value = |path: &str| {
        let text = std::fs::read_to_string(root.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim().to_owned())
    };
    for sysctl in [USERNS_CLONE, MAX_USER_NAMESPACES] {
        if let Some(value) = value(sysctl).filter(|value| value == "0") {
            return Some(NamespaceRestriction::Sysctl { sysctl, value });
        }
    }
    if value(APPARMOR_USERNS).is_some_and(|value| value == "1") {
        return Some(NamespaceRestriction::AppArmor);
    }
    let filtered = value("/proc/self/status")
        .is_some_and(|status| status.lines().any(|line| line == "Seccomp:\t2"))
        .then(|| "a system call filter is active".to_owned());
    let container = ["/.dockerenv", "/run/.containerenv"]
        .into_iter()
        .find(|path| root.join(path.trim_start_matches('/')).exists())
        .map(|path| format!("`{path}` exists"));
    filtered.or(container).map(|evidence| NamespaceRestriction::Container { evidence })
}

/// Lists the controllers for which no control group can be created. The processes of an ordinary
/// user are counted without one.
pub fn cannot_limit() -> Vec<Controller> {
    let is_root = rustix::process::geteuid().is_root();
    let can_limit =
        |controller: &Controller| can_create_cgroup(controller.name()) || *controller == Controller::Pids && !is_root;
    Controller::ALL.into_iter().filter(|controller| !can_limit(controller)).collect()
}

/// Whether Landlock can keep the guest from the host's abstract sockets.
pub fn scopes_abstract_sockets() -> bool {
    landlock_abi() >= super::LANDLOCK_SCOPES_ABI
}

/// Returns the ABI version of the kernel's Landlock; 0 when there is none.
pub fn landlock_abi() -> u32 {
    const VERSION: libc::c_int = 1;
    // SAFETY: with this flag the call reads no memory and only returns a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Whether the default limit of processes is cheap. Root needs a control group for it, and joining
/// one of version 1 waits for the whole machine (some 10 ms): there it is created only on request.
pub fn limits_processes_by_default() -> bool {
    let unified = || {
        std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")
            .is_ok_and(|names| names.split_whitespace().any(|name| name == "pids"))
    };
    !rustix::process::geteuid().is_root() || unified()
}

fn can_create_cgroup(controller: &str) -> bool {
    let version_1 = format!("/sys/fs/cgroup/{controller}");
    if access(version_1.as_str(), Access::WRITE_OK).is_ok() {
        return true;
    }
    // Version 2: the group is created next to the caller's, where the controller is enabled.
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = membership.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(own) = own else { return false };
    Path::new(own).ancestors().skip(1).any(|parent| {
        let parent = Path::new("/sys/fs/cgroup").join(parent.strip_prefix("/").unwrap_or(parent));
        let enabled = std::fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        enabled.split_whitespace().any(|name| name == controller)
            && access(&parent, Access::WRITE_OK).is_ok()
            && access(parent.join("cgroup.procs").as_path(), Access::WRITE_OK).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Option<NamespaceRestriction> {
        let root = tempfile::tempdir().expect("directory");
        for (path, content) in files {
            let path = root.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
            std::fs::write(path, content).expect("write");
        }
        restriction_below(root.path())
    }

    #[test]
    fn a_disabled_sysctl_is_named_with_its_value() {
        let found = machine(&[(USERNS_CLONE, "0\n"), (MAX_USER_NAMESPACES, "100\n")]).expect("restriction");
        assert_eq!(found, NamespaceRestriction::Sysctl { sysctl: USERNS_CLONE, value: "0".into() });
        assert_eq!(
            found.remedy(),
            "run `sudo sysctl -w kernel.unprivileged_userns_clone=1`, or use a container engine"
        );
    }

    #[test]
    fn ubuntus_apparmor_rule_is_recognised() {
        let found = machine(&[(APPARMOR_USERNS, "1\n"), (MAX_USER_NAMESPACES, "100\n")]);
        assert_eq!(found, Some(NamespaceRestriction::AppArmor));
    }

    #[test]
    fn a_container_is_recognised_last() {
        let evidence = |files: &[(&str, &str)]| match machine(files) {
            Some(NamespaceRestriction::Container { evidence }) => evidence,
            other => panic!("{other:?}"),
        };
        assert_eq!(evidence(&[("/.dockerenv", "")]), "`/.dockerenv` exists");
        let status = ("/proc/self/status", "Name:\tx\nSeccomp:\t2\n");
        assert_eq!(evidence(&[status]), "a system call filter is active");
    }

    #[test]
    fn a_machine_without_restrictions_has_none() {
        assert_eq!(machine(&[(MAX_USER_NAMESPACES, "96343\n")]), None);
    }
}
