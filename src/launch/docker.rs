//! What is Docker's own on the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::Result;
use crate::host::ProcessStamp;
use crate::launch::{ContainerLaunch, oci};
use crate::plan::Plan;
use crate::process::Client;

/// Docker cannot switch its detach keys off, and holds back whatever may be their beginning. This byte is never part of UTF-8,
/// so no terminal sends it: nothing detaches, and no key is delayed.
const DETACH_KEYS: &[u8] = b"--detach-keys=\xff";

/// Builds `docker run …`.
pub fn compile(plan: &Plan, owner: ProcessStamp, client: Client) -> Result<ContainerLaunch> {
    let mut flags = Vec::new();
    if plan.terminal {
        flags.push(OsStr::from_bytes(DETACH_KEYS).to_owned());
    }
    oci::compile(plan, owner, client, oci::Dialect { global: Vec::new(), flags })
}
