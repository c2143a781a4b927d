//! Adds the flags that only Docker has to the common command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{ContainerLaunch, LaunchError, oci};
use crate::host::ProcessStamp;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::process::Client;

/// Docker cannot disable its detach keys, and delays every key that may begin their sequence. This
/// byte is never part of UTF-8, so no terminal sends it: nothing detaches and no key is delayed.
const DETACH_KEYS: &[u8] = b"--detach-keys=\xff";

pub fn compile(
    plan: &Plan,
    owner: ProcessStamp,
    client: Client,
    helper: Option<HostPath>,
) -> Result<ContainerLaunch, LaunchError> {
    let mut flags = Vec::new();
    if plan.terminal && plan.remote.is_none() {
        flags.push(OsStr::from_bytes(DETACH_KEYS).to_owned());
    }
    let global = client.pin();
    oci::compile(plan, owner, client, oci::Dialect { global, flags }, helper)
}
