//! Makes the id by which this installation knows its pods, before the first one.

use std::fs;

use crate::error::{Diagnostic, Kind};
use crate::facts::Facts;
use crate::facts::engines::kubernetes::OWNER_FILE;
use crate::host::Host;
use crate::session_id::random_name;

#[derive(Debug, thiserror::Error)]
#[error("cannot write the id of this installation to `{path}`")]
pub struct OwnerError {
    path: String,
    source: std::io::Error,
}

impl Diagnostic for OwnerError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        vec!["check its permissions, or set XDG_STATE_HOME to another directory of yours".into()]
    }
}

/// Does nothing on other engines than Kubernetes, and if there is an id.
pub fn ensure(host: &Host, facts: &mut Facts) -> Result<(), OwnerError> {
    let Some(kubernetes) = facts.kubernetes.as_mut().filter(|known| known.owner.is_none()) else { return Ok(()) };
    let path = host.state_dir().join(OWNER_FILE);
    let id = random_name();
    let written = fs::create_dir_all(host.state_dir().as_path()).and_then(|()| fs::write(path.as_path(), &id));
    written.map_err(|source| OwnerError { path: path.to_string(), source })?;
    kubernetes.owner = Some(id);
    Ok(())
}
