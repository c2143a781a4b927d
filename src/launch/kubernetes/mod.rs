//! Translates a plan for Kubernetes: a pod with two containers of the image, and the files that are
//! copied into it. No value of a variable is in the pod or in a command line: they go over the link.

mod held_socket;
mod manifest;
mod volumes;

use std::ffi::OsString;

use serde_json::Value;

use super::{Downgrade, DowngradeKind, FileCopy, LaunchError};
use crate::path::HostPath;
use crate::plan::channel;
use crate::plan::{KubernetesPlan, Plan, Source};
use crate::process::Client;

pub use manifest::{GUEST, KEEPER};
use volumes::Volumes;

/// What the engine's client creates, and what is copied before the command starts.
#[derive(Debug, Clone, PartialEq)]
pub struct KubernetesLaunch {
    pub client: Client,
    /// The arguments that select the cluster and the namespace.
    pub cluster: Vec<OsString>,
    /// The same for later commands: the context is named, because the user may choose another one.
    pub recorded_cluster: Vec<OsString>,
    /// Starts the process in the keeper's container that relays sockets; empty if there are none.
    pub channel: Vec<OsString>,
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

pub fn compile(plan: &Plan, client: Client, helper: Option<HostPath>) -> Result<KubernetesLaunch, LaunchError> {
    let kubernetes = plan.kubernetes.as_ref().ok_or(LaunchError::NoKubernetesFacts)?;
    let volumes = Volumes::of(plan)?;
    let recorded_cluster = cluster(kubernetes, kubernetes.asked_context.as_ref().or(kubernetes.context.as_ref()));
    let cluster = cluster(kubernetes, kubernetes.asked_context.as_ref());
    let argv_start: Vec<OsString> = std::iter::once("kubectl".into()).chain(cluster.iter().cloned()).collect();
    let mut argv = argv_start.clone();
    argv.extend(["create", "--filename=-", "--output=json"].map(OsString::from));
    Ok(KubernetesLaunch {
        client,
        cluster,
        recorded_cluster,
        channel: channel(plan, &argv_start),
        argv,
        namespace: kubernetes.namespace.clone(),
        helper,
        manifest: manifest::pod(plan, kubernetes, &volumes)?,
        copies: copies(plan, kubernetes, &volumes),
        downgrades: downgrades(plan),
    })
}

/// Makes the sockets in the keeper's container, where the guest can neither remove nor replace them.
fn channel(plan: &Plan, argv_start: &[OsString]) -> Vec<OsString> {
    if plan.channel.is_empty() {
        return Vec::new();
    }
    let exec = ["exec".into(), "--stdin".into(), format!("--container={KEEPER}"), plan.id.name(), "--".into()];
    let exec = exec.map(OsString::from);
    argv_start.iter().cloned().chain(exec).chain(channel::arguments(&held_socket::of_channel(plan), None)).collect()
}

fn cluster(kubernetes: &KubernetesPlan, context: Option<&String>) -> Vec<OsString> {
    let context = context.iter().map(|context| format!("--context={context}"));
    context.chain([format!("--namespace={}", kubernetes.namespace)]).map(OsString::from).collect()
}

/// Lists what is copied: every mount of a file of the host for which the pod has a place.
fn copies(plan: &Plan, kubernetes: &KubernetesPlan, volumes: &Volumes) -> Vec<FileCopy> {
    let copied = plan.mounts.iter().filter_map(|mount| {
        let (Source::Host(source) | Source::Overlay { host: source, .. }) = &mount.source else { return None };
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
    let mut downgrades = Vec::new();
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
    downgrades.extend(super::remote::copy_downgrades(plan, "a pod"));
    downgrades
}
