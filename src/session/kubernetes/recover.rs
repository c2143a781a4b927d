//! A pod as its record describes it: connects to its keeper, looks whether it exists, and deletes it.

use std::ffi::OsString;
use std::process::Child;
use std::time::Duration;

use super::kubectl::{CallError, Kubectl};
use super::pod::{Pod, delete_by_labels, delete_by_uid};
use crate::launch::KEEPER;
use crate::path::HostPath;
use crate::process::Client;
use crate::session::registry::PodRecord;
use crate::session::remote::{self, Elsewhere, Presence, Recovered, link_command};
use crate::ui::Ui;

/// No command waits longer for a cluster that may not be there.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// A pod that may be another process's.
pub struct RecordedPod<'a> {
    pub kubectl: Kubectl<'a>,
    pub name: &'a str,
    pub recorded: &'a PodRecord,
}

impl Elsewhere for RecordedPod<'_> {
    const KIND: &'static str = "pod";

    fn name(&self) -> &str {
        self.name
    }

    fn connect(&self) -> Result<Child, String> {
        let uid = self.recorded.uid.as_deref().unwrap_or_default();
        let pod = Pod::existing(self.kubectl, self.name, uid);
        let client = pod.exec(KEEPER, &link_command()).map_err(|error| error.to_string());
        pod.leave();
        client
    }

    /// Takes no pod for it that another process has made under the same name.
    fn look(&self) -> Presence {
        let Some(uid) = &self.recorded.uid else {
            // The launcher was killed while it created the pod, in which nothing has run.
            return if self.remove() { Presence::NeverStarted } else { Presence::Unknown };
        };
        let arguments = ["get", "pod", self.name, "--output=jsonpath={.metadata.uid}"];
        match self.kubectl.call(&arguments, None, LOOK_TIMEOUT) {
            Ok(found) if found == uid.as_bytes() => Presence::There,
            Ok(_) => Presence::Gone,
            Err(CallError::Failed(failure)) if failure.reason.as_deref() == Some("NotFound") => Presence::Gone,
            Err(_) => Presence::Unknown,
        }
    }

    fn remove(&self) -> bool {
        match &self.recorded.uid {
            Some(uid) => delete_by_uid(&self.kubectl, self.name, uid),
            None => delete_by_labels(&self.kubectl, Some(&self.recorded.labels)),
        }
    }
}

/// Calls `work` with the pod of a record.
fn with_pod<T>(client: &Client, name: &str, recorded: &PodRecord, work: impl FnOnce(&RecordedPod<'_>) -> T) -> T {
    let cluster: Vec<OsString> = recorded.cluster.iter().map(OsString::from).collect();
    let kubectl = Kubectl { client, cluster: &cluster, namespace: &recorded.namespace };
    work(&RecordedPod { kubectl, name, recorded })
}

/// Brings home what a killed launcher left in a pod, and deletes the pod.
pub fn recover(client: &Client, name: &str, recorded: &PodRecord, session: &HostPath, ui: Ui) -> Recovered {
    with_pod(client, name, recorded, |pod| remote::recover(session, pod, ui))
}

/// Deletes the pod of a launcher that has ended; returns whether the cluster answered.
pub fn delete_recorded(client: &Client, name: &str, recorded: &PodRecord) -> bool {
    with_pod(client, name, recorded, |pod| pod.remove())
}
