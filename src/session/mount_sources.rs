//! Tells the guest helper which files the engine has to mount, so that the command does not start
//! with others (attack 33).

use std::fs;

use super::error::SessionError;
use crate::error::Result;
use crate::path::HostPath;
use crate::plan::{Plan, Source, Topic};
use crate::process::lock::OWNER;
use crate::process::mount_identity::{Links, MountIdentities};

/// Writes the identities of all mount sources to the owner's file, which the helper can read.
pub fn note(plan: &Plan) -> Result<()> {
    let mut identities = MountIdentities::new();
    for mount in &plan.mounts {
        let (Source::Host(source), Some(target)) = (&mount.source, mount.target.to_str()) else { continue };
        let noted = identities.note(source.as_path(), target, links(plan, source, mount.why.topic));
        noted.map_err(|error| SessionError::MountSource { path: source.clone(), source: error })?;
    }
    let owner = plan.session_dir.join(OWNER);
    let written = identities.to_json().and_then(|json| fs::write(owner.as_path(), json));
    written.map_err(|source| SessionError::Write { path: owner, source }.into())
}

/// All planned paths are without links but these, in which no guest can replace a directory: those of
/// the session, and those that variables of the user name.
fn links(plan: &Plan, source: &HostPath, topic: Topic) -> Links {
    let is_sessions = plan.session_dir.as_path().parent().is_some_and(|base| source.as_path().starts_with(base));
    if is_sessions || matches!(topic, Topic::Ssh | Topic::Temp) { Links::Follow } else { Links::Refuse }
}
