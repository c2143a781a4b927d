//! Builds the command line of the proxy's container: the sandbox's image with the helper as its first
//! process. It has the engine's default network and shares one directory with the guest, through which
//! the guest passes it a listening socket.

use std::ffi::OsString;

use super::oci::{self, Dialect};
use super::{LaunchError, labels, volume};
use crate::config::value::Access;
use crate::host::ProcessStamp;
use crate::path::constant;
use crate::plan::{CONTROL_DIR, HANDOVER, Mount, Plan, ProxyPlan, Source};
use crate::proxy::{ProxyJob, READY_TIMEOUT};
use crate::vars;

/// The command lines of the proxy's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    pub argv: Vec<OsString>,
    /// Remove the container and the volume that it shares with the guest.
    pub remove: Vec<Vec<OsString>>,
}

pub fn name(plan: &Plan) -> String {
    format!("{}-proxy", plan.id.name())
}

/// Builds the sidecar, or returns `None` if the launcher runs the proxy or there is none.
pub fn compile(plan: &Plan, owner: ProcessStamp, dialect: &Dialect) -> Result<Option<Sidecar>, LaunchError> {
    let (command, rules) = match &plan.network.proxy {
        Some(ProxyPlan::Command { words, .. }) => (words.as_slice(), None),
        Some(ProxyPlan::Sidecar) => {
            (&[][..], Some(plan.network.allow_hosts.iter().map(|rule| rule.value.clone()).collect()))
        }
        Some(ProxyPlan::Launcher | ProxyPlan::ForSecrets { .. }) | None => return Ok(None),
    };
    let kind = plan.engine.kind;
    let (Some(image), Some(helper)) = (&plan.image, &plan.helper) else { return Ok(None) };
    let client = || std::iter::once(kind.name().into()).chain(dialect.global.iter().cloned());
    let mut builder = oci::Builder::default();
    builder.argv.extend(client());
    builder.flag("run");
    builder.flag("--rm");
    builder.pair("--name", name(plan));
    builder.argv.extend(dialect.flags.iter().cloned());
    for (name, value) in labels(plan, owner) {
        builder.pair("--label", format!("{name}={value}"));
    }
    oci::hardening(plan, &mut builder);
    let handover = plan.mounts.iter().find(|mount| mount.target.as_path().ends_with(HANDOVER));
    let is_volume = handover.is_some_and(|mount| matches!(mount.source, Source::Volume(_)));
    if is_volume {
        // Root owns a new volume.
        builder.pair("--user", "0:0");
    } else {
        oci::user(plan, &mut builder);
    }
    for mount in mounts(plan) {
        builder.argv.extend(volume::arguments(&mount, kind)?);
    }
    if !command.is_empty() {
        builder.pair("--workdir", plan.workdir.as_os_str());
    }
    // R2.1 requires it in every container.
    builder.pair("--env", format!("{}=1", vars::GIT_DISCOVERY));
    if image.reference.is_local() {
        builder.pair("--pull", "never");
    }
    builder.pair("--entrypoint", helper.as_os_str());
    builder.flag(image.reference.as_str());
    builder.flag("proxy");
    let directory = constant!(GuestPath, CONTROL_DIR).join(HANDOVER).to_string();
    let job = ProxyJob { directory, rules, owner: plan.helper_config.owner, timeout: READY_TIMEOUT.as_secs() };
    builder.flag(serde_json::to_string(&job).map_err(|source| LaunchError::HelperConfig { source })?);
    builder.argv.extend(command.iter().map(OsString::from));
    let engine_call = |words: &[&str], name: String| {
        client().chain(words.iter().map(OsString::from)).chain([OsString::from(name)]).collect()
    };
    let mut remove = vec![engine_call(&["rm", "--force"], name(plan))];
    if let Some(Source::Volume(volume)) = handover.map(|mount| &mount.source) {
        remove.push(engine_call(&["volume", "rm", "--force"], volume.clone()));
    }
    Ok(Some(Sidecar { argv: builder.argv, remove }))
}

/// Lists the proxy's mounts: the helper, the launcher's lock, the shared directory, and for a proxy
/// command the workspace, which may contain its program.
fn mounts(plan: &Plan) -> Vec<Mount> {
    let is_control_file = |mount: &&Mount| {
        ["sandpen", "owner", HANDOVER]
            .iter()
            .any(|name| mount.target.as_os_str() == format!("{CONTROL_DIR}/{name}").as_str())
    };
    let is_command = matches!(plan.network.proxy, Some(ProxyPlan::Command { .. }));
    // Mounts are sorted: the last one above the working directory is the closest.
    let workspace = plan.mounts.iter().rfind(|mount| is_command && plan.workdir.to_guest().is_within(&mount.target));
    let adapt = |mount: &Mount| {
        let access = if mount.target.as_path().ends_with(HANDOVER) { Access::Rw } else { Access::Ro };
        Mount { access, ..mount.clone() }
    };
    plan.mounts.iter().filter(is_control_file).chain(workspace).map(adapt).collect()
}
