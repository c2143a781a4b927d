//! Reads what the cluster says about a pod: whether its keeper runs, and why not.

use serde_json::Value;

use super::error::ClusterError;
use crate::launch::{GUEST, KEEPER};
use crate::process::{KILLED, Outcome};

/// The reasons for which a container waits in vain.
const IMAGE_REASONS: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"];
const START_REASONS: [&str; 4] =
    ["CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"];

#[derive(Debug)]
pub enum PodState {
    Waiting,
    /// A node has it, and starts its containers.
    Scheduled,
    /// No node takes it yet.
    Unschedulable(String),
    KeeperRuns,
    Failed(ClusterError),
}

pub fn state(pod: &Value) -> PodState {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return PodState::Failed(ClusterError::Ended { reason: "the pod is being deleted".into() });
    }
    for status in statuses(pod) {
        if let Some(error) = container_problem(status) {
            return PodState::Failed(error);
        }
    }
    if matches!(text("/status/phase").as_str(), "Failed" | "Succeeded") {
        let message = [text("/status/reason"), text("/status/message")].join(" ").trim().to_owned();
        let message = if message.is_empty() { "its containers have ended".to_owned() } else { message };
        return PodState::Failed(ClusterError::NotStarted { reason: text("/status/phase"), message });
    }
    let runs = |status: &&Value| is_named(status, KEEPER) && status.pointer("/state/running").is_some();
    if statuses(pod).any(|status| runs(&status)) {
        return PodState::KeeperRuns;
    }
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    for condition in conditions {
        let is = |key: &str, value: &str| condition.get(key).and_then(Value::as_str) == Some(value);
        if is("type", "PodScheduled") && is("status", "False") && is("reason", "Unschedulable") {
            let message = condition.get("message").and_then(Value::as_str).unwrap_or_default();
            return PodState::Unschedulable(message.to_owned());
        }
    }
    if pod.pointer("/spec/nodeName").is_some() { PodState::Scheduled } else { PodState::Waiting }
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten()
}

fn is_named(status: &Value, name: &str) -> bool {
    status.get("name").and_then(Value::as_str) == Some(name)
}

fn container_problem(status: &Value) -> Option<ClusterError> {
    let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (reason, message) = (text("/state/waiting/reason"), text("/state/waiting/message"));
    if IMAGE_REASONS.contains(&reason.as_str()) {
        let message = if message.is_empty() { reason.clone() } else { message };
        return Some(ClusterError::Image { image: text("/image"), reason, message });
    }
    if START_REASONS.contains(&reason.as_str()) {
        return Some(ClusterError::NotStarted { reason, message });
    }
    let ended = status.pointer("/state/terminated")?;
    let word = |key: &str| ended.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let message = format!("the container `{}` ended with {code}: {}", text("/name"), word("message"));
    Some(ClusterError::NotStarted { reason: word("reason"), message })
}

/// Returns how the guest's container ended, if the kernel killed it for its memory.
pub fn killed_for_memory(pod: &Value) -> Option<Outcome> {
    let guest = statuses(pod).find(|status| is_named(status, GUEST))?;
    let reason = guest.pointer("/state/terminated/reason").and_then(Value::as_str)?;
    (reason == "OOMKilled").then_some(KILLED)
}

/// Returns what the cluster says about a pod that was lost.
pub fn last_words(pod: &Value) -> String {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let words = [text("/status/phase"), text("/status/reason"), text("/status/message")];
    words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with_status(status: Value) -> PodState {
        state(&json!({ "metadata": {}, "status": status }))
    }

    #[test]
    fn a_pod_is_ready_when_its_keeper_runs() {
        assert!(matches!(with_status(json!({ "phase": "Pending" })), PodState::Waiting));
        let running = |name: &str| json!({ "phase": "Running", "containerStatuses": [{ "name": name, "state": { "running": {} } }] });
        assert!(matches!(with_status(running("guest")), PodState::Waiting));
        assert!(matches!(with_status(running("keeper")), PodState::KeeperRuns));
    }

    #[test]
    fn reasons_of_the_cluster_are_kept() {
        let waiting = |reason: &str| json!({ "containerStatuses": [{ "name": "guest", "image": "x", "state": { "waiting": { "reason": reason, "message": "m" } } }] });
        assert!(matches!(with_status(waiting("ErrImagePull")), PodState::Failed(ClusterError::Image { .. })));
        assert!(matches!(with_status(waiting("RunContainerError")), PodState::Failed(ClusterError::NotStarted { .. })));
        assert!(matches!(with_status(waiting("ContainerCreating")), PodState::Waiting));
        let on_node = json!({ "spec": { "nodeName": "node" }, "status": { "phase": "Pending" } });
        assert!(matches!(state(&on_node), PodState::Scheduled));
        let condition = json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" }] });
        assert!(matches!(with_status(condition), PodState::Unschedulable(message) if message == "0/1 nodes"));
        let failed = json!({ "phase": "Failed", "reason": "Evicted", "message": "disk" });
        assert!(
            matches!(with_status(failed), PodState::Failed(ClusterError::NotStarted { message, .. }) if message == "Evicted disk")
        );
    }

    #[test]
    fn only_the_guest_is_killed_for_its_memory() {
        let pod = |name: &str, reason: &str| json!({ "status": { "containerStatuses": [{ "name": name, "state": { "terminated": { "reason": reason, "exitCode": 137 } } }] } });
        assert_eq!(killed_for_memory(&pod("guest", "OOMKilled")), Some(KILLED));
        assert_eq!(killed_for_memory(&pod("keeper", "OOMKilled")), None);
        assert_eq!(killed_for_memory(&pod("guest", "Error")), None);
    }
}
