//! Translates what is special about a container on another machine: it mounts nothing of this one. Its first
//! process takes the helper and the files from stdin. It is root with the rights to give the files to the
//! guest's user, and starts the command without any.

use std::ffi::OsString;

use super::oci::Builder;
use super::{Downgrade, DowngradeKind, FileCopy, LaunchError};
use crate::config::Origin;
use crate::config::value::{Access, WorkspaceMode};
use crate::path::HostPath;
use crate::plan::{CONTROL_DIR, ImagePlan, KeeperConfig, Mount, Plan, Source, Topic};

/// What the first process needs to write files, to give them to the guest's user, and to become that user
/// without the right to anything.
const CAPABILITIES: [&str; 7] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"];
/// Takes the helper from stdin and becomes it. A line with its size comes first.
const TAKE: &str = r#"mkdir -p "${0%/*}" && uname -m && read -r size && head -c "$size" >"$0.new" && chmod 755 "$0.new" && mv "$0.new" "$0" && exec "$0" pod alone "$1""#;

/// What is sent to the container before the command starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The Linux build of sandpen for this machine's architecture.
    pub helper: HostPath,
    /// Parents come first.
    pub copies: Vec<FileCopy>,
    /// The address of the engine, for messages.
    pub address: String,
}

/// Returns what is sent, if the engine is on another machine.
pub fn transfer(plan: &Plan, helper: Option<HostPath>) -> Result<Option<Transfer>, LaunchError> {
    let (Some(remote), Some(helper)) = (&plan.remote, helper) else { return Ok(None) };
    let copies = plan.mounts.iter().map(|mount| match &mount.source {
        Source::Host(source) | Source::Overlay { host: source, .. } => Ok(FileCopy {
            source: source.clone(),
            target: mount.target.clone(),
            is_directory: mount.is_directory,
            is_workspace: remote.workspace.contains(source),
        }),
        _ => Err(LaunchError::UnsupportedSource { target: mount.target.to_string(), engine: plan.engine.kind }),
    });
    Ok(Some(Transfer { helper, copies: copies.collect::<Result<_, _>>()?, address: remote.address.clone() }))
}

/// Adds the user of the first process, and its rights.
pub fn privileges(builder: &mut Builder) {
    builder.pair("--user", "0:0");
    for capability in CAPABILITIES {
        builder.pair("--cap-add", capability);
    }
}

/// Replaces the image's ENTRYPOINT with a shell that takes the helper.
pub fn entry(plan: &Plan, image: &ImagePlan, builder: &mut Builder) -> Result<(), LaunchError> {
    let read_only = plan.mounts.iter().filter(|mount| mount.access == Access::Ro);
    let keeper = KeeperConfig {
        user: plan.user.uid.zip(plan.user.gid).unwrap_or_default(),
        read_only: read_only.map(|mount| mount.target.to_string()).collect(),
    };
    let keeper = serde_json::to_string(&keeper).map_err(|source| LaunchError::HelperConfig { source })?;
    builder.pair("--entrypoint", "sh");
    builder.flag(image.reference.as_str());
    let helper = format!("{CONTROL_DIR}/sandpen");
    builder.argv.extend(["-c", TAKE, helper.as_str(), keeper.as_str()].map(OsString::from));
    Ok(())
}

/// Lists what is copied although it was asked for as a mount.
pub fn copy_downgrades(plan: &Plan, place: &str) -> Vec<Downgrade> {
    let mut downgrades = Vec::new();
    let reason = format!("nothing of this machine can be mounted in {place}");
    if plan.workspace.asked == WorkspaceMode::Live && plan.workspace.from != Origin::Default {
        downgrades.push(Downgrade {
            kind: DowngradeKind::Copied,
            asked: format!("workspace live ({})", plan.workspace.from),
            got: "a copy: its changes wait to be applied".into(),
            reason: reason.clone(),
        });
    }
    let is_asked = |mount: &&Mount| matches!(mount.why.topic, Topic::Asked | Topic::Preset);
    let copies = plan.mounts.iter().filter(|mount| matches!(mount.source, Source::Host(_))).filter(is_asked);
    downgrades.extend(copies.map(|mount| {
        let is_read_only = mount.access == Access::Ro;
        let access = if is_read_only { "read-only" } else { "read-write" };
        Downgrade {
            kind: DowngradeKind::Copied,
            asked: format!("`{}` {access} ({})", mount.target, mount.why.from),
            got: if is_read_only { "a copy as of the start" } else { "a copy; changes do not come back" }.into(),
            reason: reason.clone(),
        }
    }));
    downgrades
}
