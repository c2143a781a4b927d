//! Translates a plan for Kubernetes: a pod with two containers of the image, and the files that are
//! copied into it. No value of a variable is in the pod or in a command line: they go over the link.

mod manifest;
mod volumes;

use std::ffi::OsString;

use serde_json::Value;

use super::{Downgrade, DowngradeKind, LaunchError};
use crate::config::value::Access;
use crate::path::{GuestPath, HostPath};
use crate::plan::{KubernetesPlan, Plan, Source, Topic};
use crate::process::Client;

pub use manifest::{GUEST, KEEPER};
use volumes::Volumes;

/// What the engine's client creates, and what is copied before the command starts.
#[derive(Debug, Clone, PartialEq)]
pub struct KubernetesLaunch {
    pub client: Client,
    /// The arguments that select the cluster and the namespace.
    pub cluster: Vec<OsString>,
    /// Creates the pod from stdin.
    pub argv: Vec<OsString>,
    pub namespace: String,
    /// The Linux build of sandpen for this machine's architecture.
    pub helper: Option<HostPath>,
    pub manifest: Value,
    /// Parents come first.
    pub copies: Vec<FileCopy>,
    pub downgrades: Vec<Downgrade>,
}

/// A file or directory of the host, and its path inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCopy {
    pub source: HostPath,
    pub target: GuestPath,
    pub is_directory: bool,
    /// Whether it is a directory of the workspace, of which ignored files are left out.
    pub is_workspace: bool,
}

pub fn compile(plan: &Plan, client: Client, helper: Option<HostPath>) -> Result<KubernetesLaunch, LaunchError> {
    let kubernetes = plan.kubernetes.as_ref().ok_or(LaunchError::NoKubernetesFacts)?;
    let volumes = Volumes::of(plan)?;
    let cluster = cluster(kubernetes);
    let mut argv: Vec<OsString> = vec!["kubectl".into()];
    argv.extend(cluster.iter().cloned());
    argv.extend(["create", "--filename=-", "--output=json"].map(OsString::from));
    Ok(KubernetesLaunch {
        client,
        cluster,
        argv,
        namespace: kubernetes.namespace.clone(),
        helper,
        manifest: manifest::pod(plan, kubernetes, &volumes)?,
        copies: copies(plan, kubernetes, &volumes),
        downgrades: downgrades(plan),
    })
}

fn cluster(kubernetes: &KubernetesPlan) -> Vec<OsString> {
    let context = kubernetes.asked_context.iter().map(|context| format!("--context={context}"));
    context.chain([format!("--namespace={}", kubernetes.namespace)]).map(OsString::from).collect()
}

/// Lists what is copied: every mount of a file of the host for which the pod has a place.
fn copies(plan: &Plan, kubernetes: &KubernetesPlan, volumes: &Volumes) -> Vec<FileCopy> {
    let copied = plan.mounts.iter().filter_map(|mount| {
        let Source::Host(source) = &mount.source else { return None };
        volumes.covers(&mount.target).then(|| FileCopy {
            source: source.clone(),
            target: mount.target.clone(),
            is_directory: mount.is_directory,
            is_workspace: kubernetes.workspace.contains(source),
        })
    });
    copied.collect()
}

fn downgrades(plan: &Plan) -> Vec<Downgrade> {
    let mut downgrades = vec![Downgrade {
        kind: DowngradeKind::Copied,
        asked: "the workspace read-write".into(),
        got: "a copy: changes inside do not come back, and are deleted with the pod".into(),
        reason: "bringing them back is not built yet; push or upload what is to stay".into(),
    }];
    downgrades.extend(super::nested_downgrade(plan));
    if plan.limits.pids.is_asked_for() {
        let asked = format!("pids {} ({})", plan.limits.pids.value, plan.limits.pids.origin);
        let reason = "a pod cannot limit its processes; the node's own limit applies";
        downgrades.push(Downgrade::unlimited(DowngradeKind::Pids, asked, reason));
    }
    if let Some(keep) = &plan.keep {
        downgrades.push(Downgrade {
            kind: DowngradeKind::Keep,
            asked: format!("keep ({})", keep.origin),
            got: "the pod is deleted".into(),
            reason: "an ended pod holds its node's disk".into(),
        });
    }
    let copies = plan.mounts.iter().filter(|mount| {
        let is_copy = matches!(mount.source, Source::Host(_));
        is_copy && matches!(mount.why.topic, Topic::Asked | Topic::Preset)
    });
    for mount in copies {
        let is_read_only = mount.access == Access::Ro;
        downgrades.push(Downgrade {
            kind: DowngradeKind::Copied,
            asked: format!(
                "`{}` {} ({})",
                mount.target,
                if is_read_only { "read-only" } else { "read-write" },
                mount.why.from
            ),
            got: if is_read_only { "a copy as of the start" } else { "a copy; changes do not come back" }.into(),
            reason: "nothing of this machine can be mounted in a pod".into(),
        });
    }
    downgrades
}
