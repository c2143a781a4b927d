//! What is Podman's own on the command line.

use std::ffi::OsString;

use crate::error::Result;
use crate::host::ProcessStamp;
use crate::launch::{ContainerLaunch, oci};
use crate::plan::{Plan, Secret};
use crate::process::Client;

/// Builds `podman run …`.
pub fn compile(plan: &Plan, owner: ProcessStamp, client: Client) -> Result<ContainerLaunch> {
    // Unasked, Podman passes the host's proxy variables on, logins included.
    let mut flags: Vec<OsString> = vec!["--http-proxy=false".into()];
    let mut files = Vec::new();
    let global = client.pin();
    if plan.terminal {
        flags.push("--detach-keys=".into());
    }
    if plan.engine.abilities.needs_empty_auth {
        // Without logins of its own Podman asks the credential helpers of Docker's configuration, which hang or fail here.
        let file = plan.session_dir.join("auth.json");
        flags.extend(["--authfile".into(), file.as_os_str().into()]);
        files.push((file, Secret::new("{}")));
    }
    let mut launch = oci::compile(plan, owner, client, oci::Dialect { global, flags })?;
    launch.files.extend(files);
    Ok(launch)
}
