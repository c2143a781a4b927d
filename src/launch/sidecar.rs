//! The proxy's container: the sandbox's image with the helper as its first process, beside the guest and never in its place. It
//! shares one directory with the guest, through which it gets the guest's proxy port, and has the engine's ordinary network.

use std::ffi::OsString;

use crate::config::value::Access;
use crate::error::{Error, Result};
use crate::host::ProcessStamp;
use crate::launch::oci::{self, Dialect};
use crate::launch::{labels, volume};
use crate::path::GuestPath;
use crate::plan::{CONTROL_DIR, HANDOVER, Mount, Plan, ProxyPlan, Source};
use crate::proxy::{ProxyJob, READY_TIMEOUT};
use crate::vars;

/// The proxy's container, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// The command that starts it.
    pub argv: Vec<OsString>,
    /// The commands that remove it, and what it alone used.
    pub remove: Vec<Vec<OsString>>,
}

/// The sidecar's name.
pub fn name(plan: &Plan) -> String {
    format!("{}-proxy", plan.id.name())
}

/// Makes the sidecar of a plan, if its proxy lives in one.
pub fn compile(plan: &Plan, owner: ProcessStamp, dialect: &Dialect) -> Result<Option<Sidecar>> {
    let (command, rules) = match &plan.network.proxy {
        Some(ProxyPlan::Command { words, .. }) => (words.as_slice(), None),
        Some(ProxyPlan::Sidecar) => {
            (&[][..], Some(plan.network.allow_hosts.iter().map(|rule| rule.value.clone()).collect()))
        }
        Some(ProxyPlan::Launcher) | None => return Ok(None),
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
    match is_volume {
        // A new volume is root's.
        true => builder.pair("--user", "0:0"),
        false => oci::user(plan, &mut builder),
    }
    for mount in mounts(plan) {
        builder.argv.extend(volume::arguments(&mount, kind)?);
    }
    if !command.is_empty() {
        builder.pair("--workdir", plan.workdir.as_os_str());
    }
    // R2.1 speaks of every container.
    builder.pair("--env", format!("{}=1", vars::GIT_DISCOVERY));
    if image.reference.is_local() {
        builder.pair("--pull", "never");
    }
    builder.pair("--entrypoint", helper.as_os_str());
    builder.flag(image.reference.as_str());
    builder.flag("proxy");
    let directory =
        GuestPath::new(CONTROL_DIR).map(|control_dir| control_dir.join(HANDOVER).to_string()).unwrap_or_default();
    let job = ProxyJob { directory, rules, owner: plan.helper_config.owner, timeout: READY_TIMEOUT.as_secs() };
    let job =
        serde_json::to_string(&job).map_err(|error| Error::launch("cannot write the proxy's job").cause(error))?;
    builder.flag(job);
    builder.argv.extend(command.iter().map(OsString::from));
    let about = |words: &[&str], name: String| {
        client().chain(words.iter().map(OsString::from)).chain([OsString::from(name)]).collect()
    };
    let mut remove = vec![about(&["rm", "--force"], name(plan))];
    if let Some(Source::Volume(volume)) = handover.map(|mount| &mount.source) {
        remove.push(about(&["volume", "rm", "--force"], volume.clone()));
    }
    Ok(Some(Sidecar { argv: builder.argv, remove }))
}

/// What the proxy sees: the helper, the launcher's lock, the meeting place; and for a proxy of the user's the workspace, where it may be.
fn mounts(plan: &Plan) -> Vec<Mount> {
    let of_pen = |mount: &&Mount| {
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
    plan.mounts.iter().filter(of_pen).chain(workspace).map(adapt).collect()
}
