//! What is Docker's own on the command line.

use std::path::PathBuf;

use super::{Launch, oci};
use crate::error::Result;
use crate::host::ProcessStamp;
use crate::plan::Plan;

/// Docker cannot switch its detach keys off. A sequence nobody types takes their place; held back by none of its prefixes,
/// because it starts with a key that terminals do not send (Ctrl-_ twice would be undo, so the rare Ctrl-^ leads).
const DETACH_KEYS: &str = "ctrl-^,ctrl-@,ctrl-^,ctrl-@,ctrl-^,ctrl-@";

/// Builds `docker run …`.
pub fn compile(plan: &Plan, owner: ProcessStamp, path: PathBuf) -> Result<Launch> {
    let mut flags = Vec::new();
    if plan.terminal {
        flags.extend(["--detach-keys".into(), DETACH_KEYS.into()]);
    }
    oci::compile(plan, owner, path, oci::Dialect { global: Vec::new(), flags })
}
