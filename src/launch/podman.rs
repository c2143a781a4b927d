//! Adds the flags that only Podman has to the common command line.

use std::ffi::OsString;

use super::{ContainerLaunch, LaunchError, oci};
use crate::host::ProcessStamp;
use crate::path::HostPath;
use crate::plan::{Plan, Secret};
use crate::process::Client;

pub fn compile(
    plan: &Plan,
    owner: ProcessStamp,
    client: Client,
    helper: Option<HostPath>,
) -> Result<ContainerLaunch, LaunchError> {
    // By default, Podman passes the host's proxy variables to the container, with their passwords.
    let mut flags: Vec<OsString> = vec!["--http-proxy=false".into()];
    let mut files = Vec::new();
    let global = client.pin();
    if plan.terminal && plan.remote.is_none() {
        flags.push("--detach-keys=".into());
    }
    if plan.nested.is_allowed() {
        // The kernel mounts a new /proc for the guest's namespaces only if nothing of this one is
        // covered. The masks of /sys stay.
        flags.extend(["--security-opt".into(), "unmask=/proc/*".into()]);
    }
    if plan.engine.abilities.needs_empty_auth {
        // Without an auth file, Podman runs the credential helpers of Docker's configuration, which
        // hang or fail here.
        let file = plan.session_dir.join("auth.json");
        flags.extend(["--authfile".into(), file.as_os_str().into()]);
        files.push((file, Secret::new("{}")));
    }
    let mut launch = oci::compile(plan, owner, client, oci::Dialect { global, flags }, helper)?;
    launch.files.extend(files);
    Ok(launch)
}
