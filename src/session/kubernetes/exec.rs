//! Starts processes in the guest's container of a running pod.

use std::ffi::OsString;
use std::process::Child;

use super::error::ClusterError;
use super::kubectl::Kubectl;
use super::pod::Pod;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::launch::GUEST;
use crate::process::Outcome;
use crate::session::registry::Record;
use crate::session::remote;

/// Runs a command with the restrictions of the first one.
pub fn exec(host: &Host, record: &Record, command: &[OsString], is_detached: bool) -> Result<Outcome> {
    let client = start(host, record, &remote::exec_command())?;
    let namespace = record.pod.as_ref().map(|pod| pod.namespace.clone()).unwrap_or_default();
    let lost = |message: String| -> Error {
        ClusterError::Lost { message, pod: record.name.clone(), namespace: namespace.clone() }.into()
    };
    remote::exec(host, record, client, command, is_detached, lost)
}

/// Starts a process of the helper, with pipes.
pub fn start(host: &Host, record: &Record, command: &[String]) -> Result<Child> {
    let recorded = record.pod.as_ref().and_then(|pod| Some((pod, pod.uid.as_ref()?)));
    let Some((recorded, uid)) = recorded else { return Err(ClusterError::NotStartedYet.into()) };
    let client = record.client(&crate::facts::host_path(host));
    let cluster: Vec<OsString> = recorded.cluster.iter().map(OsString::from).collect();
    let kubectl = Kubectl { client: &client, cluster: &cluster, namespace: &recorded.namespace };
    let pod = Pod::existing(kubectl, &record.name, uid);
    let started = pod.exec(GUEST, command);
    // It is the launcher's, which deletes it.
    pod.leave();
    Ok(started?)
}
