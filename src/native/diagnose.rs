//! Turns a failed system call into the cause a user can act on; reads `/proc` and nothing else.

use std::path::Path;

use crate::launch::native::step::{Sandbox, Step};
use crate::native::error::{Cause, Fault, SetupError, Stage};

const MAX_USER_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";
/// Debian's and its descendants' own switch.
const USERNS_CLONE: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const APPARMOR_USERNS: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// What is known of the machine to keep an ordinary user from making namespaces. For `doctor`,
/// and for the error once a launch has failed; a successful launch never asks.
pub fn obstacle() -> Option<Cause> {
    obstacle_below(Path::new("/"))
}

fn obstacle_below(root: &Path) -> Option<Cause> {
    let value = |path: &str| {
        let text = std::fs::read_to_string(root.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim().to_owned())
    };
    for sysctl in [USERNS_CLONE, MAX_USER_NAMESPACES] {
        if let Some(value) = value(sysctl).filter(|value| value == "0") {
            return Some(Cause::UserNamespacesDisabled { sysctl, value });
        }
    }
    if value(APPARMOR_USERNS).is_some_and(|value| value == "1") {
        return Some(Cause::AppArmorRestricted);
    }
    let filtered = value("/proc/self/status")
        .is_some_and(|status| status.lines().any(|line| line == "Seccomp:\t2"))
        .then(|| "a system call filter is in force".to_owned());
    let container = ["/.dockerenv", "/run/.containerenv"]
        .into_iter()
        .find(|path| root.join(path.trim_start_matches('/')).exists())
        .map(|path| format!("`{path}` exists"));
    filtered.or(container).map(|evidence| Cause::InsideContainer { evidence })
}

/// Names the cause of what the child (or `clone3` itself) reported.
pub(crate) fn explain(fault: Fault, sandbox: &Sandbox) -> SetupError {
    let index = fault.step as usize;
    let step = sandbox.steps.get(index);
    let cause = match (fault.stage, fault.errno) {
        // Docker's filter answers ENOSYS to clone3; AppArmor lets the namespace be made but gives
        // no capabilities in it, so that the first privileged act fails.
        (
            Stage::Namespaces | Stage::Identity,
            libc::EPERM | libc::ENOSPC | libc::ENOSYS | libc::EUSERS | libc::EACCES,
        )
        | (Stage::Hostname | Stage::Root, libc::EPERM | libc::EACCES) => {
            obstacle().unwrap_or(Cause::Stage(fault.stage))
        }
        (Stage::Root | Stage::Source | Stage::Step, libc::ENOSYS) => Cause::KernelTooOld { missing: "mount_setattr" },
        (Stage::Proc, libc::EPERM) => Cause::NoProc,
        (Stage::Source, errno) => match step {
            Some(Step::Bind(bind)) => {
                let path = bind.source.clone();
                match errno {
                    libc::ELOOP => Cause::LinkInSource { index, path },
                    _ => Cause::Source { index, path },
                }
            }
            _ => Cause::Stage(fault.stage),
        },
        (Stage::Step, errno) => match step {
            Some(step) => {
                let path = step.target().to_owned();
                match errno {
                    libc::ELOOP => Cause::LinkInTarget { index, path },
                    _ => Cause::Step { index, path },
                }
            }
            None => Cause::Stage(fault.stage),
        },
        (stage, _) => Cause::Stage(stage),
    };
    SetupError::with(cause, fault.errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Option<Cause> {
        let root = std::env::temp_dir().join(format!(
            "diagnose-{}-{}",
            std::process::id(),
            files.iter().map(|(path, _)| path.len()).sum::<usize>()
        ));
        for (path, content) in files {
            let path = root.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
            std::fs::write(path, content).expect("write");
        }
        let found = obstacle_below(&root);
        std::fs::remove_dir_all(&root).ok();
        found
    }

    #[test]
    fn a_switched_off_sysctl_is_named_with_its_value() {
        let found = machine(&[(USERNS_CLONE, "0\n"), (MAX_USER_NAMESPACES, "100\n")]);
        assert_eq!(found, Some(Cause::UserNamespacesDisabled { sysctl: USERNS_CLONE, value: "0".into() }));
        let error = SetupError::new(found.expect("cause"));
        assert_eq!(
            error.remedy().expect("remedy"),
            "sudo sysctl -w kernel.unprivileged_userns_clone=1, or use a container engine"
        );
    }

    #[test]
    fn ubuntus_apparmor_rule_is_recognised() {
        let found = machine(&[(APPARMOR_USERNS, "1\n"), (MAX_USER_NAMESPACES, "100\n")]);
        assert_eq!(found, Some(Cause::AppArmorRestricted));
    }

    #[test]
    fn a_container_is_recognised_last() {
        let evidence = |files: &[(&str, &str)]| match machine(files) {
            Some(Cause::InsideContainer { evidence }) => evidence,
            other => panic!("{other:?}"),
        };
        assert_eq!(evidence(&[("/.dockerenv", "")]), "`/.dockerenv` exists");
        let status = ("/proc/self/status", "Name:\tx\nSeccomp:\t2\n");
        assert_eq!(evidence(&[status]), "a system call filter is in force");
    }

    #[test]
    fn a_machine_without_obstacles_has_none() {
        assert_eq!(machine(&[(MAX_USER_NAMESPACES, "96343\n")]), None);
    }
}
