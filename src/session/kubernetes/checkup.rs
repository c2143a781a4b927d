//! Asks a cluster whether a sandbox could run there, for `doctor`. Creates nothing.

use serde_json::Value;

use super::kubectl::{CALL_TIMEOUT, Kubectl};
use super::pod::{anonymous, explain};
use crate::error::Error;
use crate::launch::KubernetesLaunch;

/// What a launch does in the namespace.
const RIGHTS: [(&str, &str); 8] = [
    ("create", "pods"),
    ("get", "pods"),
    ("list", "pods"),
    ("watch", "pods"),
    ("delete", "pods"),
    ("create", "pods/exec"),
    ("get", "pods/exec"),
    ("list", "events"),
];

/// What the cluster says.
pub struct ClusterCheckup {
    /// The version of its server, or why it does not answer.
    pub server: Result<String, Error>,
    /// The rights that are denied, as verb and resource.
    pub denied: Vec<(&'static str, &'static str)>,
    /// Why it would not admit the pod.
    pub refusal: Option<Error>,
}

impl ClusterCheckup {
    pub fn look(launch: &KubernetesLaunch) -> Self {
        let kubectl = Kubectl { client: &launch.client, cluster: &launch.cluster, namespace: &launch.namespace };
        let version = kubectl.call(&["version", "--output=json"], None, CALL_TIMEOUT);
        let answer = match version {
            Ok(answer) => answer,
            Err(error) => {
                let error = explain(&kubectl, error, ("get", "pods")).into();
                return ClusterCheckup { server: Err(error), denied: Vec::new(), refusal: None };
            }
        };
        let version = serde_json::from_slice::<Value>(&answer).unwrap_or_default();
        let version = version.pointer("/serverVersion/gitVersion").and_then(Value::as_str);
        let denied = RIGHTS.into_iter().filter(|(verb, resource)| kubectl.can(verb, resource) == Some(false));
        let denied: Vec<_> = denied.collect();
        let refusal = if denied.contains(&("create", "pods")) { None } else { refusal(&kubectl, launch) };
        ClusterCheckup { server: Ok(version.unwrap_or("of an unknown version").to_owned()), denied, refusal }
    }
}

/// Lets the cluster check the pod without creating it.
fn refusal(kubectl: &Kubectl<'_>, launch: &KubernetesLaunch) -> Option<Error> {
    let mut manifest = launch.manifest.clone();
    // The plan has no id yet.
    *manifest.pointer_mut("/metadata/name")? = "sandpen-doctor".into();
    let input = anonymous(manifest.to_string().as_bytes()).ok()?;
    let arguments = ["create", "--dry-run=server", "--filename=-", "--output=name"];
    let refused = kubectl.call(&arguments, Some(input), CALL_TIMEOUT).err()?;
    Some(explain(kubectl, refused, ("create", "pods")).into())
}
