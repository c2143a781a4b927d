//! Adds the flags that only Docker has to the common command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::{ContainerLaunch, LaunchError, oci};
use crate::host::ProcessStamp;
use crate::path::HostPath;
use crate::plan::{Plan, Secret};
use crate::process::Client;

/// Docker cannot disable its detach keys, and delays every key that may begin their sequence. This
/// byte is never part of UTF-8, so no terminal sends it: nothing detaches and no key is delayed.
const DETACH_KEYS: &[u8] = b"--detach-keys=\xff";

/// The system calls of a guest that may make sandboxes of its own. Docker's profile denies new namespaces
/// and has no setting for them, so this one replaces it: with the calls for namespaces and mounts, and
/// without those that the native engine denies. The helper adds the native engine's filter, which also
/// tests arguments.
const NESTED_PROFILE: &str = include_str!("nested-seccomp.json");

pub fn compile(
    plan: &Plan,
    owner: ProcessStamp,
    client: Client,
    helper: Option<HostPath>,
) -> Result<ContainerLaunch, LaunchError> {
    let mut flags = Vec::new();
    let mut files = Vec::new();
    if plan.terminal && plan.remote.is_none() {
        flags.push(OsStr::from_bytes(DETACH_KEYS).to_owned());
    }
    if plan.nested.is_allowed() {
        let profile = plan.session_dir.join("seccomp.json");
        let mut option = OsString::from("seccomp=");
        option.push(profile.as_os_str());
        // The kernel mounts a new /proc for the guest's namespaces only if nothing of this one is covered.
        // Docker can uncover /proc only together with /sys, of which only this directory shows more then.
        flags.extend(["--security-opt".into(), option, "--security-opt".into(), "systempaths=unconfined".into()]);
        flags.extend(["--tmpfs", "/sys/firmware:ro"].map(OsString::from));
        files.push((profile, Secret::new(NESTED_PROFILE)));
    }
    let global = client.pin();
    let mut launch = oci::compile(plan, owner, client, oci::Dialect { global, flags }, helper)?;
    launch.files.extend(files);
    Ok(launch)
}

#[cfg(test)]
mod tests {
    use super::NESTED_PROFILE;

    #[test]
    fn the_profile_for_nested_guests_allows_mounts_and_no_other_privileged_call() {
        let profile: serde_json::Value = serde_json::from_str(NESTED_PROFILE).unwrap();
        let rules = profile["syscalls"].as_array().unwrap();
        let allowed: Vec<&str> = rules
            .iter()
            .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW")
            .flat_map(|rule| rule["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()))
            .collect();
        for name in ["mount", "umount2", "pivot_root", "chroot", "unshare", "clone", "setns", "sethostname", "execve"] {
            assert!(allowed.contains(&name), "{name}");
        }
        let denied = "init_module finit_module kexec_load reboot swapon syslog acct quotactl settimeofday adjtimex bpf \
            perf_event_open userfaultfd io_uring_setup io_uring_enter fanotify_init memfd_secret add_key request_key \
            keyctl name_to_handle_at open_by_handle_at process_vm_readv process_vm_writev kcmp pidfd_getfd move_pages \
            open_tree move_mount fsopen fsmount mount_setattr iopl ioperm mbind set_mempolicy clone3";
        for name in denied.split_whitespace() {
            assert!(!allowed.contains(&name), "{name}");
        }
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    }
}
